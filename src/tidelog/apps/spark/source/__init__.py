"""Read topics in Spark.

source_options    parse and check the options of a read
checkpoint        a stream's offset as JSON: offsets, leader epochs, topic ids
partition_lookup  requests to the brokers: subscribed partitions, their start and end offsets
planning          from options to offsets, and from ranges of offsets to tasks
data_loss         detect lost records, and fail, report or skip
batch_reader      `spark.read`
stream_reader     `spark.readStream`
offset_tracker    the offsets that a stream can read now; losses since its checkpoint
task              reads the ranges of a task on an executor
range_reader      fetch, check and decode one range
"""
