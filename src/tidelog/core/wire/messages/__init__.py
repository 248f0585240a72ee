"""Kafka's messages in our notation (schema/notation.py), a table for each family of APIs."""
