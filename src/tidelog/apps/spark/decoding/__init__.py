"""Record batches to Arrow columns: only what is asked for, nothing for each record in Python.

batch_headers    the headers of all batches of a chunk, as arrays; checksums
selection        which of those batches a reader sees: range, control, aborted
unpacking        their records, unpacked a few megabytes at a time
column_buffers   the memory that columns are written to, used again and again
kernel           the records, in machine code (numba), with every bound checked
filling          the kernel at work
vectorised       the same with numpy alone, where numba is not to be had
shared_columns   columns that both make in the same way
decoder          all of it together
engines          which of the two is used
jit              how machine code is made and kept
"""
