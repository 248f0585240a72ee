"""All settings of brokers and topics, under Kafka's names."""
