"""Messages about topics: create, delete, add partitions."""

MESSAGES = {
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
