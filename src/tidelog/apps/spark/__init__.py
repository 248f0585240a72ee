"""Topics in Spark, with no jar: what `format("tidelog")` is made of.

session    a SparkSession with the settings that we recommend, and Java found first
columns    what a row of a topic has, for Spark and for Arrow
decoding   record batches to Arrow columns, vectorised
encoding   Arrow columns to record batches, vectorised
source     batch and streaming reads: options, offsets, plans, what was lost
sink       batch and streaming writes, each row once
"""
