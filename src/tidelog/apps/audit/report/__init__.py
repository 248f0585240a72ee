"""The report of an audit: findings and the state of each partition."""
