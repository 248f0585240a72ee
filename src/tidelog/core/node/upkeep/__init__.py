"""What a broker does by the clock: checkpoints, retention, flushes."""
