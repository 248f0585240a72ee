"""Decode values into columns if a schema is given; values that do not fit get a reason.

Invariant: a null value (a tombstone) is not an error, and gives null columns.
"""
