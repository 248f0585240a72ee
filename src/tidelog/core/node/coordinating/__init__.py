"""Hosts coordinators: loads, serves and unloads shards with the leadership of their partitions."""
