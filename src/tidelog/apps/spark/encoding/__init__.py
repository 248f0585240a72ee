"""Encode Arrow columns into record batches, without Python per record.

encoder          batches by target partition; core's encoder where numba is missing
row_columns      the Arrow columns that records are encoded from, and the partition of a key
record_kernel    rows to records, and keys to partitions, in machine code (numba)
kernel_records   the kernel's input
"""
