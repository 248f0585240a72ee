"""Write rows to topics, batch and streaming, each row once.

write_options    the options of a write and the columns of its rows, checked
routing          which partition a row goes to
identity         the producer id and epoch of a task, the same in every attempt
found_rows       which rows an earlier attempt has written
ledger           which micro-batches are done
delivery         one task: find earlier rows, send batches, detect other attempts
writing          one micro-batch: its tasks, then the driver
spark_writers    the classes that Spark calls
"""
