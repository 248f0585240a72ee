"""Messages about transactions and producers."""

MESSAGES = {
    # AddPartitionsToTxn
    24: """
request
  transactions [] 4+
    transactional_id string, producer_id i64, producer_epoch i16, verify_only bool
    topics []
      name string, partitions []i32
  v3_and_below_transactional_id string 0-3, v3_and_below_producer_id i64 0-3
  v3_and_below_producer_epoch i16 0-3
  v3_and_below_topics [] 0-3
    name string, partitions []i32
response
  throttle_time_ms i32, error_code i16 4+
  results_by_transaction [] 4+
    transactional_id string
    topic_results []
      name string
      results_by_partition []
        partition_index i32, partition_error_code i16
  results_by_topic_v3_and_below [] 0-3
    name string
    results_by_partition []
      partition_index i32, partition_error_code i16
""",
    # AddOffsetsToTxn
    25: """
request
  transactional_id string, producer_id i64, producer_epoch i16, group_id string
response
  throttle_time_ms i32, error_code i16
""",
    # EndTxn
    26: """
request
  transactional_id string, producer_id i64, producer_epoch i16, committed bool
response
  throttle_time_ms i32, error_code i16, producer_id i64 5+ =-1, producer_epoch i16 5+ =-1
""",
    # WriteTxnMarkers
    27: """
request
  markers []
    producer_id i64, producer_epoch i16, transaction_result bool
    topics []
      name string, partition_indexes []i32
    coordinator_epoch i32, transaction_version i8 2+
response
  markers []
    producer_id i64
    topics []
      name string
      partitions []
        partition_index i32, error_code i16
""",
    # TxnOffsetCommit
    28: """
request
  transactional_id string, group_id string, producer_id i64, producer_epoch i16
  generation_id i32 3+ =-1, member_id string 3+, group_instance_id string 3+ ? =null
  topics []
    name string
    partitions []
      partition_index i32, committed_offset i64, committed_leader_epoch i32 2+ =-1
      committed_metadata string ?
response
  throttle_time_ms i32
  topics []
    name string
    partitions []
      partition_index i32, error_code i16
""",
    # DescribeProducers
    61: """
request
  topics []
    name string, partition_indexes []i32
response
  throttle_time_ms i32
  topics []
    name string
    partitions []
      partition_index i32, error_code i16, error_message string ? =null
      active_producers []
        producer_id i64, producer_epoch i32, last_sequence i32 =-1, last_timestamp i64 =-1
        coordinator_epoch i32, current_txn_start_offset i64 =-1
""",
    # DescribeTransactions
    65: """
request
  transactional_ids []string
response
  throttle_time_ms i32
  transaction_states []
    error_code i16, transactional_id string, transaction_state string
    transaction_timeout_ms i32, transaction_start_time_ms i64, producer_id i64
    producer_epoch i16
    topics []
      topic string, partitions []i32
""",
    # ListTransactions
    66: """
request
  state_filters []string, producer_id_filters []i64, duration_filter i64 1+ =-1
  transactional_id_pattern string 2+ ? =null
response
  throttle_time_ms i32, error_code i16, unknown_state_filters []string
  transaction_states []
    transactional_id string, producer_id i64, transaction_state string
""",
}
