"""A lake: folders of Parquet files that any reader may list, written exactly once.

Always true: a row that a plain reader finds under `data` is there once, after a crash too.
"""
