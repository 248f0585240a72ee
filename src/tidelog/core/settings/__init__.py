"""Every setting of a broker and of a topic, under Kafka's names."""
