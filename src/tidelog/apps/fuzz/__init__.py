"""`make fuzz`: send millions of invalid frames to brokers, in memory and through real sockets."""
