"""Periodic work: checkpoints, retention, flushes, compaction, repair."""
