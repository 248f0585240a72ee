"""Arrow columns to record batches: each target's rows in their order, nothing for each row
in Python.

encoder            rows in, whole batches out
row_columns        where the bytes of a row's columns are
record_kernel      records, and hashes of keys, in machine code (numba)
kernel_records     the kernel at work
joined_records     the same with numpy and Arrow alone
key_partitions     which partition a key goes to, as Kafka's Java client has it
"""
