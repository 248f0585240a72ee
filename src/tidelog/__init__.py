"""Tidelog: a replicated commit log that speaks Kafka's protocol."""
