"""Sockets, owned by us: one loop, one thread."""
