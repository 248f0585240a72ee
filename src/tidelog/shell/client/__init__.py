"""A small blocking Kafka client, for our own commands, tests and checks.

It speaks to Tidelog and to any Kafka from 2.1 on. One thread uses it; nothing happens in
the background: no call, no traffic.

    connection   one socket: versions are agreed on, requests answered, time-outs kept
    cluster      who leads what; asks the right broker, and again when leaders change
    admin        topics and settings, one at a time
    administration  all that an administrator may ask, many at once
    offsets      where many partitions begin and end
    producer     appends batches, exactly once if asked to
    reader       fetches batches and opens them; offsets by time
"""
