"""`make fuzz`: millions of hostile frames, in memory and through real sockets."""
