"""The console's history: a bounded store of samples, and files of history events.

`store.py` keeps what changed from sample to sample in one SQLite file; `event_file.py` reads a
history that the demo, the simulator or a story wrote. Both serve the same pages.
"""
