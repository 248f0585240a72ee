"""One replica's log on a disk: segments, indexes, checkpoints, recovery.

Start with `log.py`. Everything below it reads and writes through `disk.py`, so the same
code runs on a real file system, in memory, and on the simulator's faulty disk.
"""
