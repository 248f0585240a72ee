"""Messages about consumer groups and their committed offsets."""

MESSAGES = {
    # OffsetCommit
    8: """
request
  group_id string, generation_id_or_member_epoch i32 =-1, member_id string
  group_instance_id string 7+ ? =null, retention_time_ms i64 0-4 =-1
  topics []
    name string 0-9, topic_id uuid 10+
    partitions []
      partition_index i32, committed_offset i64, committed_leader_epoch i32 6+ =-1
      committed_metadata string ?
response
  throttle_time_ms i32 3+
  topics []
    name string 0-9, topic_id uuid 10+
    partitions []
      partition_index i32, error_code i16
""",
    # OffsetFetch
    9: """
request
  group_id string 0-7
  topics [] 0-7 ?2-7
    name string, partition_indexes []i32
  groups [] 8+
    group_id string, member_id string 9+ ? =null, member_epoch i32 9+ =-1
    topics [] ?
      name string 8-9, topic_id uuid 10+, partition_indexes []i32
  require_stable bool 7+
response
  throttle_time_ms i32 3+
  topics [] 0-7
    name string
    partitions []
      partition_index i32, committed_offset i64, committed_leader_epoch i32 5-7 =-1
      metadata string ?, error_code i16
  error_code i16 2-7
  groups [] 8+
    group_id string
    topics []
      name string 8-9, topic_id uuid 10+
      partitions []
        partition_index i32, committed_offset i64, committed_leader_epoch i32 =-1
        metadata string ?, error_code i16
    error_code i16
""",
    # FindCoordinator
    10: """
request
  key string 0-3, key_type i8 1+, coordinator_keys []string 4+
response
  throttle_time_ms i32 1+, error_code i16 0-3, error_message string 1-3 ?, node_id i32 0-3
  host string 0-3, port i32 0-3
  coordinators [] 4+
    key string, node_id i32, host string, port i32, error_code i16, error_message string ?
""",
    # JoinGroup
    11: """
request
  group_id string, session_timeout_ms i32, rebalance_timeout_ms i32 1+ =-1, member_id string
  group_instance_id string 5+ ? =null, protocol_type string
  protocols []
    name string, metadata bytes
  reason string 8+ ? =null
response
  throttle_time_ms i32 2+, error_code i16, generation_id i32 =-1
  protocol_type string 7+ ? =null, protocol_name string ?7+, leader string
  skip_assignment bool 9+, member_id string
  members []
    member_id string, group_instance_id string 5+ ? =null, metadata bytes
""",
    # Heartbeat
    12: """
request
  group_id string, generation_id i32, member_id string, group_instance_id string 3+ ? =null
response
  throttle_time_ms i32 1+, error_code i16
""",
    # LeaveGroup
    13: """
request
  group_id string, member_id string 0-2
  members [] 3+
    member_id string, group_instance_id string ? =null, reason string 5+ ? =null
response
  throttle_time_ms i32 1+, error_code i16
  members [] 3+
    member_id string, group_instance_id string ?, error_code i16
""",
    # SyncGroup
    14: """
request
  group_id string, generation_id i32, member_id string, group_instance_id string 3+ ? =null
  protocol_type string 5+ ? =null, protocol_name string 5+ ? =null
  assignments []
    member_id string, assignment bytes
response
  throttle_time_ms i32 1+, error_code i16, protocol_type string 5+ ? =null
  protocol_name string 5+ ? =null, assignment bytes
""",
    # DescribeGroups
    15: """
request
  groups []string, include_authorized_operations bool 3+
response
  throttle_time_ms i32 1+
  groups []
    error_code i16, error_message string 6+ ? =null, group_id string, group_state string
    protocol_type string, protocol_data string
    members []
      member_id string, group_instance_id string 4+ ? =null, client_id string
      client_host string, member_metadata bytes, member_assignment bytes
    authorized_operations i32 3+ =-2147483648
""",
    # ListGroups
    16: """
request
  states_filter []string 4+, types_filter []string 5+
response
  throttle_time_ms i32 1+, error_code i16
  groups []
    group_id string, protocol_type string, group_state string 4+, group_type string 5+
""",
    # DeleteGroups
    42: """
request
  groups_names []string
response
  throttle_time_ms i32
  results []
    group_id string, error_code i16
""",
    # OffsetDelete
    47: """
request
  group_id string
  topics []
    name string
    partitions []
      partition_index i32
response
  error_code i16, throttle_time_ms i32
  topics []
    name string
    partitions []
      partition_index i32, error_code i16
""",
    # ConsumerGroupHeartbeat
    68: """
request
  group_id string, member_id string, member_epoch i32, instance_id string ? =null
  rack_id string ? =null, rebalance_timeout_ms i32 =-1, subscribed_topic_names []string ? =null
  subscribed_topic_regex string 1+ ? =null, server_assignor string ? =null
  topic_partitions [] ? =null
    topic_id uuid, partitions []i32
response
  throttle_time_ms i32, error_code i16, error_message string ? =null, member_id string ? =null
  member_epoch i32, heartbeat_interval_ms i32
  assignment {} ? =null
    topic_partitions []
      topic_id uuid, partitions []i32
""",
    # ConsumerGroupDescribe
    69: """
request
  group_ids []string, include_authorized_operations bool
response
  throttle_time_ms i32
  groups []
    error_code i16, error_message string ? =null, group_id string, group_state string
    group_epoch i32, assignment_epoch i32, assignor_name string
    members []
      member_id string, instance_id string ? =null, rack_id string ? =null, member_epoch i32
      client_id string, client_host string, subscribed_topic_names []string
      subscribed_topic_regex string ? =null
      assignment {}
        topic_partitions []
          topic_id uuid, topic_name string, partitions []i32
      target_assignment {}
        topic_partitions []
          topic_id uuid, topic_name string, partitions []i32
      member_type i8 1+ =-1
    authorized_operations i32 =-2147483648
""",
}
