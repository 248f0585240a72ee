"""Compaction: what of a log is dirty, and how it is written anew without what is superseded.

Nothing here changes a file of the log. `cleaner.clean` reads segments that are no longer
written to and writes `.cleaned` files beside them, so it can run in another process; the
log itself puts them in their place (`swap_in`), or never does.
"""
