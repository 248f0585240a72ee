"""A broker's process: sockets, files, the store and the clock around the core's node."""
