"""Frames that no honest client would send, and a broker in memory that has to bear them."""
