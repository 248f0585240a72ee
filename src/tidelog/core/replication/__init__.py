"""The heart: one replica of one partition, as step(event) -> effects."""
