"""The main job in one command: a cluster, a writer, a Spark job, a killed leader, nothing lost.

play         the whole, step by step
orders       what is written: records whose content follows from their number
writer       a librdkafka producer that never stops, and every promise it got
observer     what each replica says of itself, some twenty times a second
timeline     what the observer saw: lines, reigns, who was in sync, who was down
comparison   promises beside the log, the lake and the aggregates, record by record
outcome      all that was found, and whether it holds
report       one HTML file with the picture
"""
