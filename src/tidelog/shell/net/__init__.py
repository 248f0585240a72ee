"""A broker's sockets, in one event loop and one thread."""
