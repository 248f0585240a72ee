"""The replication rules: one replica of one partition, as step(event) -> effects."""
