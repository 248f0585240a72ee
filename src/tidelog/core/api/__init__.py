"""Kafka's requests as they come over the wire, handled by the node."""
