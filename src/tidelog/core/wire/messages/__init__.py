"""Kafka's messages in the notation of schema/notation.py, one module for each family of APIs."""
