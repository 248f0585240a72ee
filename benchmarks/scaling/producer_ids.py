"""Idempotent producers of one partition: each has sent a batch, and the broker keeps its state."""

import time

from scaling.laws import FLAT, LINEAR, Book
from scaling.rig import Brokers, Line, batch, brokers, produce, produced_well

from tidelog.core.record.encoder import Producer

AXIS = "producers of a partition"
SIZES = (10, 100, 1000, 10_000)
QUICK = (10, 100, 1000)
TOPIC = "paid"
APPENDS = 300
ROLLS = 20
HOUR_MS = 3_600_000


def measure(book: Book, sizes: tuple[int, ...]) -> None:
    for size in sizes:
        with brokers() as cluster:
            cluster.create(TOPIC, 1, (1,), {"segment.ms": str(HOUR_MS), "retention.ms": "-1"})
            _one_size(book, cluster, size)


def _of(producer: int, sequence: int, hour: int = 0) -> bytes:
    """Return a batch that is some days old, so that later batches are not in the future."""
    stamp = time.time_ns() // 1_000_000 - 100 * HOUR_MS + hour * HOUR_MS
    records = batch(producer=Producer(producer, 0, sequence), timestamp=stamp)
    return produce(TOPIC, {0: records})


def _one_size(book: Book, cluster: Brokers, size: int) -> None:
    def note(name: str, cost: float, unit: str, may_be: str) -> None:
        book.note(AXIS, name, size, cost, unit, may_be)

    with cluster.line() as line:
        line.pipeline([_of(1_000_000, at) for at in range(100)])
        before = cluster.rss_mb()
        line.pipeline([_of(producer, 0) for producer in range(size)])
        note("memory", cluster.rss_mb() - before, "MB", LINEAR)
        more = [_of(0, at) for at in range(1, APPENDS + 1)]
        spent = cluster.spend(lambda: line.pipeline(more))
        note("append, CPU", spent.cpu_s / APPENDS * 1e6, "µs", FLAT)
        _rolls(book, cluster, line, size)
    cluster.cluster.kill(1)
    cluster.cluster.start_broker(1)
    burned = time.clock_gettime(cluster.clocks[0])
    note("start after kill -9, CPU", burned * 1e3, "ms", LINEAR)


def _rolls(book: Book, cluster: Brokers, line: Line, size: int) -> None:
    """Measure batches that are hours newer than the one before, so that each starts a segment."""
    rolling = [_of(0, APPENDS + 1 + at, 2 + at * 2) for at in range(ROLLS)]
    produced_well(line.ask(_of(1, 1)))
    spent = cluster.spend(lambda: line.pipeline(rolling, 1))
    produced_well(line.ask(_of(2, 1, 3 + ROLLS * 2)))
    cost = spent.cpu_s / ROLLS * 1e6
    book.note(AXIS, "roll with a snapshot, CPU", size, cost, "µs", LINEAR)
