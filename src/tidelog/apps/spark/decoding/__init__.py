"""Decode record batches into Arrow columns: only the requested columns, without Python per record.

batch_headers    the headers of all batches of a chunk as arrays; checksums; which batches are read
kernel           records to columns in machine code (numba), with every bound checked
kernel_decoder   decompresses batches and runs the kernel; its memory, and RecordBatches over it
decoder          the interface; uses core's decoder where numba is missing
jit              how machine code is compiled and cached
"""
