"""Record batches as they lie in logs and travel on the wire (Kafka's magic 2)."""
