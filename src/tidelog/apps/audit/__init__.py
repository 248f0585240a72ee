"""The audit of log directories on Spark: every replica's files, read straight from disk.

folders    what is on disk: log directories, partitions, their files
scan       a stretch of a segment read once: framing, checksums, and what is in it in short
source     `format("tidelog-log")`: the same files as rows that anyone can query
checks     what must be true of a log, of the files beside it, and between replicas
report     findings, what each means, the summary
run        all of it in order
"""
