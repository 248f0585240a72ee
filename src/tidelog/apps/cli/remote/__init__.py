"""What commands find out about a running cluster, ours or any Kafka, before it is shown."""
