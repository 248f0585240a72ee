"""Kafka's wire format: bytes to values and back."""
