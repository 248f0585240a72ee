"""The Spark data source `format("tidelog")`, without a jar.

session         a SparkSession with recommended settings; finds Java first
data_source     the class that Spark registers
client_options  options that source and sink share
columns         the columns of a topic's row, for Spark and for Arrow
decoding        record batches to Arrow columns
encoding        Arrow columns to record batches
worker          settings of a Python worker: numba or core's code, garbage collection
source          batch and streaming reads
sink            batch and streaming writes, each row once
"""
