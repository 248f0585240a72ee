"""What an audit tells: findings and the state of each partition."""
