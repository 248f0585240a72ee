"""SASL mechanisms, for brokers and for clients: bytes in, bytes out."""
