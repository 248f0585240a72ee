"""The audit of log directories on Spark: it reads the files of every replica from disk.

folders    finds log directories and partitions, and reads their small files
scan       reads a stretch of a segment once: batches, checksums, a short summary
source     `format("tidelog-log")`: the same files as rows for queries
checks     the rules for a log, for the files beside it, and between replicas
report     findings, the meaning of each kind, the summary
run        runs all steps in order
"""
