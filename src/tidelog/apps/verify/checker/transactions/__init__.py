"""Check a history of transactions against the final logs. Pure."""
