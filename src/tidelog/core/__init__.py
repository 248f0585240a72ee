"""Core decides. Pure: no sockets, files, clocks, randomness or tasks."""
