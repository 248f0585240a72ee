"""Logs on a disk: segments, indexes, checkpoints, recovery, repair and compaction.

Start with `log.py`. All reads and writes use the interface in `disk.py`, so the same code runs on
a file system, in memory, and on the simulator's faulty disk.
"""
