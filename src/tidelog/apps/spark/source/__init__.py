"""Reading topics in Spark.

options        what was asked for, understood
checkpoint     a stream's offset: offsets, leader epochs, topic ids, as JSON
survey         which partitions there are, where they begin and end: asks the brokers
planning       ranges of offsets, cut into tasks
loss           what is gone: retention, truncation, a topic made anew
batch_reader   `spark.read`
stream_reader  `spark.readStream`
task           what runs on executors: one range to rows
range_reader   fetches, checks, decodes
"""
