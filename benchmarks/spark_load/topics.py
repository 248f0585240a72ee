"""Topics to read: millions of records in seconds, from a few batches that are sent repeatedly."""

import random
import time
from collections.abc import Iterator
from itertools import cycle, islice

from tidelog.core.record.compression import Codec
from tidelog.core.record.encoder import encode_batch
from tidelog.core.record.record import Record
from tidelog.shell.client.admin import create_topic
from tidelog.shell.client.cluster import Cluster
from tidelog.shell.client.producer import produce

PARTITIONS = 2
DIFFERENT = 24
BATCH_BYTES = 128_000
"""Bytes of records in a batch; a producer under load fills its batches."""
LEADER_ONLY = 1
WORDS = tuple(f"{word}{n} " for n in range(16) for word in ("order", "paid", "sent", "late"))
"""Text made of these compresses to a third of its size with lz4."""


def batches(size: int, codec: Codec) -> Iterator[tuple[int, bytes]]:
    """Yield batches, each with its number of records."""
    draw = random.Random(size)
    now = int(time.time() * 1000)  # retention would delete older records
    count = max(BATCH_BYTES // size, 1)
    for number in range(DIFFERENT):
        records = []
        for at in range(count):
            text = "".join(draw.choices(WORDS, k=size // 5 + 1)).encode()[:size]
            records.append(Record(b"%010d" % (number * count + at), text, now + at))
        yield count, bytes(encode_batch(records, attributes=codec))


def fill(bootstrap: str, topic: str, rows: int, size: int, codec: Codec) -> int:
    """Create a topic with about `rows` records; return the exact number."""
    with Cluster(bootstrap) as client:
        create_topic(client, topic, PARTITIONS, 1)
        known = client.topic(topic)
        made = list(batches(size, codec))
        wanted = -(-rows // made[0][0])
        written = 0
        for number, (count, batch) in enumerate(islice(cycle(made), wanted)):
            partition = number % PARTITIONS
            leader = client.broker(client.leader(topic, partition).leader)
            answer = produce(leader, known, partition, batch, LEADER_ONLY)
            if answer.error:
                raise SystemExit(f"{topic}-{partition} refuses a batch: error {answer.error}")
            written += count
    return written
