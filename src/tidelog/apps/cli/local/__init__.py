"""Commands that start, show, control and stop brokers on this machine."""
