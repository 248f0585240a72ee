"""Topics: where replicas go, and what making, growing and deleting them writes."""
