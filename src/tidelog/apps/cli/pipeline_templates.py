"""A pipeline file of each kind to begin with: what `tidelog pipeline init` prints.

Always true: each is a sound file; a test reads them.
"""

LAND = """\
# Every record of these topics to Parquet files, once: data/topic=.../date=.../*.parquet
[pipeline]
kind = "land"
name = "orders"
topics = ["orders"]             # or: pattern = "orders-.*"
trigger = "available-now"       # all that is there, then end; or "10 seconds": for ever
# By default the cluster of ./tidelog-data:
# bootstrap = "localhost:9092,localhost:9093,localhost:9094"

[lake]
path = "lake"

# Options of format("tidelog"), as they are:
# [source]
# startingOffsets = "earliest"
# maxOffsetsPerTrigger = 1000000

# Values as columns; what does not fit goes to rejected/ with the reason.
# [decode]
# format = "json"
# schema = "id long, amount double, placed timestamp"
"""
AGGREGATE = """\
# Orders and their sum for each minute and country, to a table and a topic, once.
[pipeline]
kind = "aggregate"
name = "per-minute"
topics = ["orders"]
trigger = "available-now"       # all that is there, then end; or "10 seconds": for ever
# By default the cluster of ./tidelog-data:
# bootstrap = "localhost:9092,localhost:9093,localhost:9094"

[decode]
format = "json"
schema = "country string, amount double, placed timestamp"

[aggregate]
event_time = "placed"           # by default the record's timestamp
window = "1 minute"
watermark = "5 minutes"         # how late a row may be
group_by = ["country"]

[aggregate.columns]
orders = "count(*)"
revenue = "sum(amount)"

[output]
table = "per-minute"            # a folder of Parquet files
topic = "orders-per-minute"
"""
BACKFILL = """\
# A lake that `land` wrote, back to a topic: in order, once, resumable.
[pipeline]
kind = "backfill"
name = "orders-again"
topics = ["orders"]             # of the lake; by default all
# By default the cluster of ./tidelog-data:
# bootstrap = "localhost:9092,localhost:9093,localhost:9094"

[lake]
path = "lake"

[backfill]
topic = "orders-again"          # by default the topic it came from
# first = 2026-01-01            # by the day of the record's timestamp, UTC
# last = 2026-01-31
"""
FIRST_FILES = {"land": LAND, "aggregate": AGGREGATE, "backfill": BACKFILL}
