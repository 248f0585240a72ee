"""Encode Arrow columns into record batches, without Python per record.

encoder          batches by target partition; uses core's encoder where numba is missing
record_kernel    rows to records, and keys to partitions, in machine code (numba)
"""
