"""Kafka's messages in the notation of notation.py, one module for each family of APIs."""
