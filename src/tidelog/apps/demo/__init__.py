"""The demo: a cluster, a producer, a Spark job and a killed leader, without a lost record.

play         the whole demo, step by step
orders       the records that the demo writes, with content computed from their number
writer       a librdkafka producer that writes all the time, and every acknowledgement it received
observer     the state of each replica, sampled ten times a second or more
timeline     the observer's samples as lines, leader periods and replica states
comparison   acknowledged orders compared with the log, the lake and the sums, record by record
job_process  the Spark job as a process, and the events it sends
spark_job    the code of that process: two pipelines, then the audit
lean_home    a Spark home without the zip that makes Python workers slow to start
spark_watch  the progress of the Spark job, and the files and records it wrote
outcome      all results of the demo, and whether the demo passed
report       one HTML file with the picture
"""
