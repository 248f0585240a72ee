"""Write rows to topics, in batch and streaming queries, each row once.

write_options    parse and check the options of a write and the columns of its rows
routing          choose the partition of each row
identity         the producer id and epoch of a task, the same in every attempt
found_rows       find the rows that an earlier attempt has written
ledger           a topic that lists completed micro-batches
delivery         one task: find earlier rows, send batches, detect other attempts
writing          one micro-batch: its tasks, then the driver's commit
spark_writers    the classes that Spark calls
"""
