"""Messages about records: produce, fetch, look up offsets, delete."""

MESSAGES = {
    # Produce
    0: """
request
  transactional_id string ? =null, acks i16, timeout_ms i32
  topic_data []
    name string 0-12, topic_id uuid 13+
    partition_data []
      index i32, records records ?
response
  responses []
    name string 0-12, topic_id uuid 13+
    partition_responses []
      index i32, error_code i16, base_offset i64, log_append_time_ms i64 =-1
      log_start_offset i64 5+ =-1
      record_errors [] 8+
        batch_index i32, batch_index_error_message string ? =null
      error_message string 8+ ? =null
      current_leader {} 10+ @0
        leader_id i32 =-1, leader_epoch i32 =-1
  throttle_time_ms i32
  node_endpoints [] 10+ @0
    node_id i32, host string, port i32, rack string ? =null
""",
    # Fetch
    1: """
request
  cluster_id string 12+ ? @0 =null, replica_id i32 0-14 =-1
  replica_state {} 15+ @1
    replica_id i32 =-1, replica_epoch i64 =-1
  max_wait_ms i32, min_bytes i32, max_bytes i32 =0x7fffffff, isolation_level i8
  session_id i32 7+, session_epoch i32 7+ =-1
  topics []
    topic string 0-12, topic_id uuid 13+
    partitions []
      partition i32, current_leader_epoch i32 9+ =-1, fetch_offset i64
      last_fetched_epoch i32 12+ =-1, log_start_offset i64 5+ =-1, partition_max_bytes i32
      replica_directory_id uuid 17+ @0, high_watermark i64 18+ @1 =9223372036854775807
  forgotten_topics_data [] 7+
    topic string 7-12, topic_id uuid 13+, partitions []i32
  rack_id string 11+
response
  throttle_time_ms i32, error_code i16 7+, session_id i32 7+
  responses []
    topic string 0-12, topic_id uuid 13+
    partitions []
      partition_index i32, error_code i16, high_watermark i64, last_stable_offset i64 =-1
      log_start_offset i64 5+ =-1
      diverging_epoch {} 12+ @0
        epoch i32 =-1, end_offset i64 =-1
      current_leader {} 12+ @1
        leader_id i32 =-1, leader_epoch i32 =-1
      snapshot_id {} 12+ @2
        end_offset i64 =-1, epoch i32 =-1
      aborted_transactions [] ?
        producer_id i64, first_offset i64
      preferred_read_replica i32 11+ =-1, records records ?
  node_endpoints [] 16+ @0
    node_id i32, host string, port i32, rack string ? =null
""",
    # ListOffsets
    2: """
request
  replica_id i32, isolation_level i8 2+
  topics []
    name string
    partitions []
      partition_index i32, current_leader_epoch i32 4+ =-1, timestamp i64
  timeout_ms i32 10+
response
  throttle_time_ms i32 2+
  topics []
    name string
    partitions []
      partition_index i32, error_code i16, timestamp i64 =-1, offset i64 =-1
      leader_epoch i32 4+ =-1
""",
    # DeleteRecords
    21: """
request
  topics []
    name string
    partitions []
      partition_index i32, offset i64
  timeout_ms i32
response
  throttle_time_ms i32
  topics []
    name string
    partitions []
      partition_index i32, low_watermark i64, error_code i16
""",
    # InitProducerId
    22: """
request
  transactional_id string ?, transaction_timeout_ms i32, producer_id i64 3+ =-1
  producer_epoch i16 3+ =-1, enable2_pc bool 6+, keep_prepared_txn bool 6+
response
  throttle_time_ms i32, error_code i16, producer_id i64 =-1, producer_epoch i16
  ongoing_txn_producer_id i64 6+ =-1, ongoing_txn_producer_epoch i16 6+ =-1
""",
    # OffsetForLeaderEpoch
    23: """
request
  replica_id i32 3+ =-2
  topics []
    topic string
    partitions []
      partition i32, current_leader_epoch i32 =-1, leader_epoch i32
response
  throttle_time_ms i32
  topics []
    topic string
    partitions []
      error_code i16, partition i32, leader_epoch i32 =-1, end_offset i64 =-1
""",
}
