"""The truncation rules Kafka has had: small files, each one operator away from the next."""
