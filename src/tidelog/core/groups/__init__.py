"""Consumer groups and their committed offsets: Kafka's classic group coordinator, without I/O.

Start with `shard.py`: all groups of one partition of `__consumer_offsets`.
"""
