"""`make fuzz`: hostile frames by the million, in memory and through real sockets."""
