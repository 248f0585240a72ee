"""A small blocking Kafka client, for our own commands, tests and checks.

It speaks to Tidelog and to any Kafka from 2.1 on. One thread uses it; nothing happens in
the background: no call, no traffic.

    connection   one socket: versions are agreed on, requests answered, time-outs kept
    cluster      who leads what; asks the right broker, and again when leaders change
    admin        topics and settings, one at a time
    administration  all that an administrator may ask, many at once
    offsets      where many partitions begin and end
    producer     appends batches, exactly once if asked to
    partitioner  which partition a record goes to, as Kafka's Java client has it
    reader       fetches batches and opens them; offsets by time
    consuming    reads many partitions at once, and follows their leaders
    groups       looks after consumer groups, or is a member of one
"""
