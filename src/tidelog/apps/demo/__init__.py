"""The main job in one command: a cluster, a writer, a Spark job, a killed leader, nothing lost.

play         the whole, step by step
orders       what is written: records whose content follows from their number
writer       a librdkafka producer that never stops, and every promise it got
observer     what each replica says of itself, ten times a second or more
timeline     what the observer saw: lines, reigns, who was in sync, who was down
comparison   promises beside the log, the lake and the aggregates, record by record
job_process  the Spark job as a process, and what it tells
spark_job    what that process does: two pipelines, then the audit
lean_home    Spark without the zip that makes its workers slow to start
spark_watch  how far it is, and what it left behind
outcome      all that was found, and whether it holds
report       one HTML file with the picture
"""
