"""What is measured: each row is one kind of work, done by both sides in turns.

A row's `figure` is what its ratio is made of; `more` says whether more of it is better. Every
round works on a topic of its own, which is dropped behind it.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count as numbers
from typing import Any, NamedTuple

from beside_kafka.loads import BULK, Loads
from beside_kafka.sides import Side

Work = Callable[[Loads, Side, float], dict[str, Any]]
_numbers = numbers()


class Row(NamedTuple):
    """One line of the table."""

    name: str
    work: Work
    unit: str
    goal: float = 0
    """Of the ratio by time; 0: none was set."""
    goal_cpu: float = 0
    """Of the ratio by the brokers' CPU."""
    quick: bool = False
    """Also in the short run."""


@contextmanager
def topic(side: Side, partitions: int, replicas: int) -> Iterator[str]:
    name = f"bench-{next(_numbers)}"
    side.make(name, partitions, replicas)
    yield name
    side.drop(name)


def scaled(count: int, scale: float, least: int = 1000) -> int:
    return max(int(count * scale), least)


def produce(size: int, gigabytes: float, partitions: int, replicas: int, *options: str) -> Work:
    acks = "acks=all" if replicas > 1 else "acks=1"

    def work(loads: Loads, side: Side, scale: float) -> dict[str, Any]:
        records = scaled(int(gigabytes * 1e9 / size), scale)
        with topic(side, partitions, replicas) as name:
            return loads.librdkafka(
                side, "produce", name, partitions, records, size, *BULK, acks, *options
            )

    return work


def produce_java(size: int, gigabytes: float, partitions: int, replicas: int) -> Work:
    def work(loads: Loads, side: Side, scale: float) -> dict[str, Any]:
        records = scaled(int(gigabytes * 1e9 / size), scale)
        with topic(side, partitions, replicas) as name:
            acks = "all" if replicas > 1 else "1"
            return loads.producer_performance(side, name, records, size, acks)

    return work


def consume(size: int, gigabytes: float, readers: int, *options: str) -> Work:
    partitions = 6 if readers > 1 else 1

    def work(loads: Loads, side: Side, scale: float) -> dict[str, Any]:
        thousands = partitions * 1000  # the load fills partitions in turns of a thousand
        records = max(scaled(int(gigabytes * 1e9 / size), scale) // thousands, 1) * thousands
        with topic(side, partitions, 1) as name:
            loads.librdkafka(
                side, "produce", name, partitions, records, size, *BULK, "acks=1", *options
            )
            return loads.consumers(side, name, readers, partitions, records, size)

    return work


def one_in_flight(replicas: int) -> Work:
    acks = "acks=all" if replicas > 1 else "acks=1"

    def work(loads: Loads, side: Side, scale: float) -> dict[str, Any]:
        with topic(side, 1, replicas) as name:
            return loads.librdkafka(
                side, "latency", name, 1, scaled(5000, scale), 100, "linger.ms=0", acks
            )

    return work


def paced(rate: float, size: int, seconds: float) -> Work:
    def work(loads: Loads, side: Side, scale: float) -> dict[str, Any]:
        records = scaled(int(rate * seconds), scale)
        options = (str(rate), "linger.ms=1", "acks=all")
        with topic(side, 3, 3) as name:
            return loads.librdkafka(side, "paced", name, 3, records, size, *options)

    return work


def requests(connections: int, window: int, count: int, replicas: int = 1) -> Work:
    def work(loads: Loads, side: Side, scale: float) -> dict[str, Any]:
        with topic(side, 1, replicas) as name:
            return loads.requests(side, name, scaled(count, scale), 100, connections, window)

    return work


LZ4, ZSTD = "compression.codec=lz4", "compression.codec=zstd"
ROWS = (
    Row("produce RF3 1 KB", produce(1000, 1.0, 1, 3), "MB/s", 2, 2, quick=True),
    Row("produce RF3 1 KB, 6 partitions", produce(1000, 1.0, 6, 3), "MB/s"),
    Row("produce RF3 100 B", produce(100, 0.6, 1, 3), "MB/s", 0, 1.5, quick=True),
    Row("produce RF3 100 B, 6 partitions", produce(100, 0.6, 6, 3), "MB/s"),
    Row("produce RF1 1 KB", produce(1000, 1.5, 1, 1), "MB/s", 1.5, 2.5, quick=True),
    Row("produce RF1 1 KB, 6 partitions", produce(1000, 1.5, 6, 1), "MB/s"),
    Row("produce RF1 100 B", produce(100, 0.8, 1, 1), "MB/s", 0, 1.2),
    Row("produce RF1 100 B, 6 partitions", produce(100, 0.8, 6, 1), "MB/s"),
    Row("produce RF3 1 KB lz4", produce(1000, 1.0, 1, 3, LZ4), "MB/s"),
    Row("produce RF3 1 KB zstd", produce(1000, 1.0, 1, 3, ZSTD), "MB/s"),
    Row("produce RF3 1 KB, 1,000 partitions", produce(1000, 0.6, 1000, 3), "MB/s"),
    Row("Java RF3 1 KB, 3 partitions", produce_java(1000, 1.0, 3, 3), "MB/s"),
    Row("Java RF3 100 B, 3 partitions", produce_java(100, 0.4, 3, 3), "MB/s"),
    Row("Java RF1 1 KB, 3 partitions", produce_java(1000, 1.0, 3, 1), "MB/s"),
    Row("Java RF1 100 B, 3 partitions", produce_java(100, 0.4, 3, 1), "MB/s"),
    Row("consume 1 KB", consume(1000, 1.5, 1), "MB/s", 0, 1.2, quick=True),
    Row("consume 1 KB, 3 consumers", consume(1000, 1.5, 3), "MB/s", 0, 1.2),
    Row("consume 100 B", consume(100, 0.6, 1), "MB/s", 0, 1.2),
    Row("consume 100 B, 3 consumers", consume(100, 0.6, 3), "MB/s", 0, 1.2),
    Row("consume 1 KB lz4", consume(1000, 1.5, 1, LZ4), "MB/s", 0, 1.2),
    Row("one in flight RF3", one_in_flight(3), "us", 1.25, 1, quick=True),
    Row("one in flight RF1", one_in_flight(1), "us", 0.9, 1, quick=True),
    Row("end to end, 1,000 a second", paced(1000, 100, 8), "us"),
    Row("end to end, 20,000 a second", paced(20_000, 100, 8), "us"),
    Row("requests, window 32", requests(1, 32, 60_000), "req/s"),
    Row("requests, 16 connections", requests(16, 1, 40_000), "req/s", quick=True),
    Row("requests, 500 connections", requests(500, 1, 40_000), "req/s"),
    Row("requests RF3, 16 connections", requests(16, 1, 20_000, 3), "req/s"),
)
