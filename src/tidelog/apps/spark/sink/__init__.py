"""Rows to topics, batch and streaming, each row once.

write_options    what the user asks for
row_columns      which columns there are, and their types
routing          which partition a row goes to
task_sender      batches to leaders, and whether another attempt wrote them
replays          who a task is to the brokers, what it wrote before, which batches are done
delivery         one task: begin, append, settle
writing          one micro-batch: tasks, then the driver
batch_writer, stream_writer   what Spark calls
"""
