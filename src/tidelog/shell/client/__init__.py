"""A small blocking Kafka client for our own commands, tests and checks.

It works with Tidelog and with Kafka from 2.1 on. It has no thread: it sends and receives only
during a call.

    connection      one socket: agrees on versions, sends requests, receives responses, times out
    cluster         metadata and a connection to each broker; sends requests to the right one
    retry           the retry policy: which errors, how often, for how long
    admin           create, delete and describe single topics; list brokers
    administration  topics, configs, reassignments and elections, many at once
    offsets         offsets by time, ends of logs and of leader epochs
    batch_sender    sends batches to leaders, several requests in flight
    producer        appends batches, exactly once if idempotent
    partitioner     the partition of a record, as Kafka's Java client chooses it
    fetching        the fetch pipeline
    consumer        reads one partition, or many at once over leader changes
    groups          describes and changes consumer groups, or joins one
"""
