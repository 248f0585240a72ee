"""Messages about brokers, metadata, topics, settings, leaders and replicas."""

MESSAGES = {
    # Metadata
    3: """
request
  topics [] ?1+
    topic_id uuid 10+, name string ?10+
  allow_auto_topic_creation bool 4+ =true, include_cluster_authorized_operations bool 8-10
  include_topic_authorized_operations bool 8+
response
  throttle_time_ms i32 3+
  brokers []
    node_id i32, host string, port i32, rack string 1+ ? =null
  cluster_id string 2+ ? =null, controller_id i32 1+ =-1
  topics []
    error_code i16, name string ?12+, topic_id uuid 10+, is_internal bool 1+
    partitions []
      error_code i16, partition_index i32, leader_id i32, leader_epoch i32 7+ =-1
      replica_nodes []i32, isr_nodes []i32, offline_replicas []i32 5+
    topic_authorized_operations i32 8+ =-2147483648
  cluster_authorized_operations i32 8-10 =-2147483648, error_code i16 13+
""",
    # ApiVersions
    18: """
request
  client_software_name string 3+, client_software_version string 3+
response
  error_code i16
  api_keys []
    api_key i16, min_version i16, max_version i16
  throttle_time_ms i32 1+
  supported_features [] 3+ @0
    name string, min_version i16, max_version i16
  finalized_features_epoch i64 3+ @1 =-1
  finalized_features [] 3+ @2
    name string, max_version_level i16, min_version_level i16
  zk_migration_ready bool 3+ @3
""",
    # DescribeConfigs
    32: """
request
  resources []
    resource_type i8, resource_name string, configuration_keys []string ?
  include_synonyms bool, include_documentation bool 3+
response
  throttle_time_ms i32
  results []
    error_code i16, error_message string ?, resource_type i8, resource_name string
    configs []
      name string, value string ?, read_only bool, config_source i8 =-1, is_sensitive bool
      synonyms []
        name string, value string ?, source i8
      config_type i8 3+, documentation string 3+ ?
""",
    # AlterConfigs
    33: """
request
  resources []
    resource_type i8, resource_name string
    configs []
      name string, value string ?
  validate_only bool
response
  throttle_time_ms i32
  responses []
    error_code i16, error_message string ?, resource_type i8, resource_name string
""",
    # AlterReplicaLogDirs
    34: """
request
  dirs []
    path string
    topics []
      name string, partitions []i32
response
  throttle_time_ms i32
  results []
    topic_name string
    partitions []
      partition_index i32, error_code i16
""",
    # DescribeLogDirs
    35: """
request
  topics [] ?
    topic string, partitions []i32
response
  throttle_time_ms i32, error_code i16 3+
  results []
    error_code i16, log_dir string
    topics []
      name string
      partitions []
        partition_index i32, partition_size i64, offset_lag i64, is_future_key bool
    total_bytes i64 4+ =-1, usable_bytes i64 4+ =-1, is_cordoned bool 5+
""",
    # ElectLeaders
    43: """
request
  election_type i8 1+
  topic_partitions [] ?
    topic string, partitions []i32
  timeout_ms i32 =60000
response
  throttle_time_ms i32, error_code i16 1+
  replica_election_results []
    topic string
    partition_result []
      partition_id i32, error_code i16, error_message string ?
""",
    # IncrementalAlterConfigs
    44: """
request
  resources []
    resource_type i8, resource_name string
    configs []
      name string, config_operation i8, value string ?
  validate_only bool
response
  throttle_time_ms i32
  responses []
    error_code i16, error_message string ?, resource_type i8, resource_name string
""",
    # AlterPartitionReassignments
    45: """
request
  timeout_ms i32 =60000, allow_replication_factor_change bool 1+ =true
  topics []
    name string
    partitions []
      partition_index i32, replicas []i32 ? =null
response
  throttle_time_ms i32, allow_replication_factor_change bool 1+ =true, error_code i16
  error_message string ?
  responses []
    name string
    partitions []
      partition_index i32, error_code i16, error_message string ?
""",
    # ListPartitionReassignments
    46: """
request
  timeout_ms i32 =60000
  topics [] ? =null
    name string, partition_indexes []i32
response
  throttle_time_ms i32, error_code i16, error_message string ?
  topics []
    name string
    partitions []
      partition_index i32, replicas []i32, adding_replicas []i32, removing_replicas []i32
""",
    # DescribeQuorum
    55: """
request
  topics []
    topic_name string
    partitions []
      partition_index i32
response
  error_code i16, error_message string 2+ ?
  topics []
    topic_name string
    partitions []
      partition_index i32, error_code i16, error_message string 2+ ?, leader_id i32
      leader_epoch i32, high_watermark i64
      current_voters []
        replica_id i32, replica_directory_id uuid 2+, log_end_offset i64
        last_fetch_timestamp i64 1+ =-1, last_caught_up_timestamp i64 1+ =-1
      observers []
        replica_id i32, replica_directory_id uuid 2+, log_end_offset i64
        last_fetch_timestamp i64 1+ =-1, last_caught_up_timestamp i64 1+ =-1
  nodes [] 2+
    node_id i32
    listeners []
      name string, host string, port u16
""",
    # UpdateFeatures
    57: """
request
  timeout_ms i32 =60000
  feature_updates []
    feature string, max_version_level i16, allow_downgrade bool 0-0, upgrade_type i8 1+ =1
  validate_only bool 1+
response
  throttle_time_ms i32, error_code i16, error_message string ?
  results [] 0-1
    feature string, error_code i16, error_message string ?
""",
    # DescribeCluster
    60: """
request
  include_cluster_authorized_operations bool, endpoint_type i8 1+ =1
  include_fenced_brokers bool 2+
response
  throttle_time_ms i32, error_code i16, error_message string ? =null, endpoint_type i8 1+ =1
  cluster_id string, controller_id i32 =-1
  brokers []
    broker_id i32, host string, port i32, rack string ? =null, is_fenced bool 2+
  cluster_authorized_operations i32 =-2147483648
""",
    # UnregisterBroker
    64: """
request
  broker_id i32
response
  throttle_time_ms i32, error_code i16, error_message string ?
""",
    # ListConfigResources
    74: """
request
  resource_types []i8 1+
response
  throttle_time_ms i32, error_code i16
  config_resources []
    resource_name string, resource_type i8 1+ =16
""",
    # DescribeTopicPartitions
    75: """
request
  topics []
    name string
  response_partition_limit i32 =2000
  cursor {} ? =null
    topic_name string, partition_index i32
response
  throttle_time_ms i32
  topics []
    error_code i16, name string ?, topic_id uuid, is_internal bool
    partitions []
      error_code i16, partition_index i32, leader_id i32, leader_epoch i32 =-1
      replica_nodes []i32, isr_nodes []i32, eligible_leader_replicas []i32 ? =null
      last_known_elr []i32 ? =null, offline_replicas []i32
    topic_authorized_operations i32 =-2147483648
  next_cursor {} ? =null
    topic_name string, partition_index i32
""",
    # CreateTopics
    19: """
request
  topics []
    name string, num_partitions i32, replication_factor i16
    assignments []
      partition_index i32, broker_ids []i32
    configs []
      name string, value string ?
  timeout_ms i32 =60000, validate_only bool
response
  throttle_time_ms i32
  topics []
    name string, topic_id uuid 7+, error_code i16, error_message string ?
    topic_config_error_code i16 5+ @0, num_partitions i32 5+ =-1, replication_factor i16 5+ =-1
    configs [] 5+ ?
      name string, value string ?, read_only bool, config_source i8 =-1, is_sensitive bool
""",
    # DeleteTopics
    20: """
request
  topics [] 6+
    name string ? =null, topic_id uuid
  topic_names []string 0-5, timeout_ms i32
response
  throttle_time_ms i32
  responses []
    name string ?6+, topic_id uuid 6+, error_code i16, error_message string 5+ ? =null
""",
    # CreatePartitions
    37: """
request
  topics []
    name string, count i32
    assignments [] ?
      broker_ids []i32
  timeout_ms i32, validate_only bool
response
  throttle_time_ms i32
  results []
    name string, error_code i16, error_message string ? =null
""",
}
