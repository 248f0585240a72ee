"""Decode record batches into Arrow columns: only the requested columns, without Python per record.

batch_headers    the headers of all batches of a chunk, as arrays; checksums; which are read
unpacking        their records, decompressed a few megabytes at a time
kernel           records to columns in machine code (numba), with every bound checked
column_buffers   the kernel's memory, and RecordBatches over it
decoder          all of it together; core's decoder where numba is missing
jit              how machine code is compiled and cached
"""
