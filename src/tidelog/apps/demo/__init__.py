"""The demo: a cluster, a producer, a Spark job and a killed leader, without a lost record.

play         the whole demo, step by step
orders       the records that the demo writes, with content computed from their number
writer       a librdkafka producer that writes all the time, and every acknowledgement it received
observer     the state of each replica, sampled ten times a second or more
history      all events of a run, in the format of core/history.py; written to a file
timeline     the history as lines, leader periods and replica states
job_process  the Spark job as a process, and the events it sends
spark_job    the code of that process: two pipelines, then the audit
spark_watch  the progress of the Spark job, and the files and records it wrote
outcome      the comparison of orders and sums, all results, and whether the demo passed
report       one HTML file with the picture
"""
