"""Compaction: which part of a log is dirty, and how it is rewritten without old values of a key.

This package changes no file of the log. `cleaner.clean` reads closed segments and writes `.cleaned`
files, so it can run in another process. The log replaces its segments with these files
(segment_swap.py), or discards them.
"""
