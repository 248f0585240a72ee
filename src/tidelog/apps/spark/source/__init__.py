"""Read topics in Spark.

source_options    the options of a read, checked
checkpoint        a stream's offset as JSON: offsets, leader epochs, topic ids
partition_lookup  requests to the brokers: which partitions are read, where they begin and end
planning          from options to offsets, and from ranges of offsets to tasks
data_loss         lost records: how a loss is detected, and what is done about it
batch_reader      `spark.read`
stream_reader     `spark.readStream`
offset_tracker    what a stream can read now, and whether its checkpoint still fits the logs
task              runs on executors: ranges to rows
range_reader      fetch, check and decode one range
"""
