"""A lake: folders of Parquet files that any reader may list, with each row written exactly once.

Invariant: a plain Parquet reader finds each row under `data` exactly once, also after a crash.
"""
