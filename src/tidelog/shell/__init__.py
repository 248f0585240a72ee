"""Input and output: sockets, files, processes, clocks. Core has none of these."""
