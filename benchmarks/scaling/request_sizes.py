"""The size of a request: batches in one Produce, and records in one batch of the same bytes."""

from scaling.laws import FLAT, Book
from scaling.rig import batch, brokers, produce, produced_well

BATCHES = "batches in a Produce"
RECORDS = "records in a batch of 100 KB"
SIZES = (1, 8, 64, 512)
QUICK = (1, 16, 256)
RECORD_SIZES = (10, 100, 1000, 10_000)
TOPIC = "wide"
BATCH_BYTES = 100_000
RECORD_OVERHEAD = 7
"""Bytes of lengths and deltas in a small record."""


def measure(book: Book, sizes: tuple[int, ...]) -> None:
    with brokers() as cluster, cluster.line() as line:
        cluster.create(TOPIC, max(sizes))
        records = batch()
        for size in sizes:
            frame = produce(TOPIC, dict.fromkeys(range(size), records))
            produced_well(line.ask(frame))
            times = max(5, 2000 // size)
            spent = cluster.least(lambda: line.pipeline([frame] * times, 4))  # noqa: B023
            cost = spent.cpu_s / times / size * 1e6
            book.note(BATCHES, "CPU a batch", size, cost, "µs", FLAT)
        for size in RECORD_SIZES:
            records = batch(size, max(BATCH_BYTES // size - RECORD_OVERHEAD, 1))
            frame = produce(TOPIC, {0: records})
            produced_well(line.ask(frame))
            spent = cluster.least(lambda: line.pipeline([frame] * 300, 4))  # noqa: B023
            book.note(RECORDS, "CPU a request", size, spent.cpu_s / 300 * 1e6, "µs", FLAT)
