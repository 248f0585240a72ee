"""Record batches in the format of logs and messages (Kafka's magic 2)."""
