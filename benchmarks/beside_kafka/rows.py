"""The rows of the benchmark: each is one kind of work, which both sides do in turns.

Adjacent rows with the same work share its rounds, and use different figures from them. Every round
uses a topic of its own, which is deleted afterwards. Goals are ratios: above 1 Tidelog is better.
The default goal for the brokers' CPU is 1: at most as much as Kafka.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from enum import Enum
from itertools import count as numbers
from typing import Any, NamedTuple

from beside_kafka import events
from beside_kafka.loads import BULK, Loads
from beside_kafka.sides import Side

Work = Callable[[Loads, Side, float], dict[str, Any]]
LINGER = "linger.ms=5"
BURST_RECORDS = 400_000
_numbers = numbers()


class Where(Enum):
    """The clusters on which a row's work is done."""

    SHARED = "on clusters that stay up and are warm"
    OWN = "on clusters of rows with the same settings"
    FRESH = "on clusters that were started for the round"


class Row(NamedTuple):
    """One line of the table."""

    name: str
    work: Work
    unit: str
    goal: float = 0
    """Goal for the ratio by time; 0: no goal."""
    goal_cpu: float = 1
    """Goal for the ratio by the brokers' CPU; 0: CPU is not compared."""
    quick: bool = False
    """Whether the row is also part of the quick run."""
    take: str = ""
    """The name of the figure in the work's result; if empty, the figure is a rate."""
    where: Where = Where.SHARED
    settings: Mapping[str, str] = {}
    rounds: int = 0
    """Number of rounds; 0: as many as the command line requests."""
    at_once: bool = False
    """Whether both sides work at the same time."""
    warm: bool = False
    """Whether Kafka does the work once before, because its cluster was just started."""
    takes_s: float = 20
    """Approximate seconds of all rounds together."""


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
        thousands = partitions * 1000  # the load writes 1,000 records to each partition in turn
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
            messages = scaled(5000 if replicas > 1 else 12_000, scale)
            options = ("linger.ms=0", acks)
            return loads.librdkafka(side, "latency", name, 1, messages, 100, *options)

    return work


def paced(rate: float, size: int, seconds: float) -> Work:
    def work(loads: Loads, side: Side, scale: float) -> dict[str, Any]:
        return at_pace(loads, side, rate, scaled(int(rate * seconds), scale), size, "linger.ms=1")

    return work


def at_pace(
    loads: Loads, side: Side, rate: float, records: int, size: int, linger: str
) -> dict[str, Any]:
    """Run a producer that sends `rate` records a second, and a consumer of these records."""
    with topic(side, 3, 3) as name:
        options = (str(rate), linger, "acks=all")
        return loads.librdkafka(side, "paced", name, 3, records, size, *options)


class HalfOfMaximum:
    """Work at half the rate that the slower side reached in a burst, so that both do the same."""

    def __init__(self, size: int, seconds: float) -> None:
        self._size, self._seconds = size, seconds
        self.rate = 0.0

    def find(self, loads: Loads, sides: Sequence[Side], scale: float) -> str:
        records = scaled(BURST_RECORDS, scale)
        found = [at_pace(loads, side, 1e9, records, self._size, LINGER) for side in sides]
        self.rate = min(one["messages"] / one["seconds"] for one in found) / 2
        return f"{self.rate:,.0f} records a second: half of what the slower side took in a burst"

    def __call__(self, loads: Loads, side: Side, scale: float) -> dict[str, Any]:
        records = scaled(int(self.rate * self._seconds), scale)
        return at_pace(loads, side, self.rate, records, self._size, LINGER)


def requests(connections: int, window: int, count: int, replicas: int = 1) -> Work:
    def work(loads: Loads, side: Side, scale: float) -> dict[str, Any]:
        with topic(side, 1, replicas) as name:
            return loads.requests(side, name, scaled(count, scale), 100, connections, window)

    return work


def transactions(producers: int, records: int, count: int) -> Work:
    def work(loads: Loads, side: Side, scale: float) -> dict[str, Any]:
        with topic(side, 3, 3) as name:
            options = (str(producers), str(records), "linger.ms=0")
            committed = scaled(count, scale, least=10 * producers)
            return loads.librdkafka(side, "transact", name, 3, committed, 100, *options)

    return work


def read_committed(count: int) -> Work:
    def work(loads: Loads, side: Side, scale: float) -> dict[str, Any]:
        with topic(side, 1, 3) as name:
            messages = scaled(count, scale, least=100)
            return loads.librdkafka(side, "committed", name, 1, messages, 100, "linger.ms=0")

    return work


def latency(name: str, work: Work, goals: tuple[float, float], quick: bool = False) -> list[Row]:
    """Return two rows for the same work: the median latency, and the 99th percentile."""
    return [
        Row(name, work, "us", goals[0], quick=quick, take="p50_us", takes_s=25),
        Row(f"{name}, p99", work, "us", goals[1], 0, quick=quick, take="p99_us", takes_s=0),
    ]


def many(name: str, work: Work, quick: bool = False) -> Row:
    """Return a row with more rounds, because short rounds differ by half.

    A round takes one or two seconds. Its speed depends on whether cores fall asleep between
    requests.
    """
    return Row(name, work, "req/s", quick=quick, rounds=7)


def committed(name: str, producers: int, records: int, count: int, quick: bool = False) -> Row:
    """Return a row of transactions with three replicas. The client waits for several round trips in
    each, so by time both sides are limited by them."""
    work = transactions(producers, records, count)
    return Row(name, work, "txn/s", 1 / 1.1, quick=quick, takes_s=60)


def event(
    name: str, work: Work, goal: float, takes_s: float, where: Where = Where.OWN, **more: Any
) -> Row:
    """Return a row measured in seconds.

    Its CPU is compared on fresh clusters only: a wait for a session time-out uses no CPU.
    """
    goal_cpu = 1 if where is Where.FRESH else 0
    given = {"goal_cpu": goal_cpu, "where": where, "takes_s": takes_s, **more}
    return Row(name, work, "s", goal, take="seconds", **given)


def flushed(name: str, work: Work, unit: str) -> Row:
    """Return a row whose brokers call fsync before each acknowledgement."""
    settings = {"log.flush.interval.messages": "1"}
    return Row(name, work, unit, where=Where.OWN, settings=settings, warm=True, takes_s=30)


LZ4, ZSTD = "compression.codec=lz4", "compression.codec=zstd"
OWN, FRESH = Where.OWN, Where.FRESH
BULK_ROWS = (
    Row("produce RF3 1 KB", produce(1000, 1.0, 1, 3), "MB/s", 2, 2, quick=True),
    Row("produce RF3 1 KB, 6 partitions", produce(1000, 1.0, 6, 3), "MB/s", 2, 2),
    Row("produce RF3 100 B", produce(100, 0.6, 1, 3), "MB/s", 0, 1.5, quick=True),
    Row("produce RF3 100 B, 6 partitions", produce(100, 0.6, 6, 3), "MB/s", 0, 1.5),
    Row("produce RF1 1 KB", produce(1000, 2.4, 1, 1), "MB/s", 1.5, 2.5, quick=True),
    Row("produce RF1 1 KB, 6 partitions", produce(1000, 2.4, 6, 1), "MB/s", 1.5, 2.5),
    Row("produce RF1 100 B", produce(100, 0.8, 1, 1), "MB/s", 0, 1.2),
    Row("produce RF1 100 B, 6 partitions", produce(100, 0.8, 6, 1), "MB/s", 0, 1.2),
    Row("produce RF3 1 KB lz4", produce(1000, 1.0, 1, 3, LZ4), "MB/s"),
    Row("produce RF3 1 KB zstd", produce(1000, 1.0, 1, 3, ZSTD), "MB/s"),
    Row("Java RF3 1 KB, 3 partitions", produce_java(1000, 0.8, 3, 3), "MB/s", takes_s=45),
    Row("Java RF3 100 B, 3 partitions", produce_java(100, 0.3, 3, 3), "MB/s", takes_s=35),
    Row("Java RF1 1 KB, 3 partitions", produce_java(1000, 0.8, 3, 1), "MB/s", takes_s=35),
    Row("Java RF1 100 B, 3 partitions", produce_java(100, 0.3, 3, 1), "MB/s", takes_s=30),
    Row("consume 1 KB", consume(1000, 2.0, 1), "MB/s", 0, 1.2, quick=True, takes_s=30),
    Row("consume 1 KB, 3 consumers", consume(1000, 2.0, 3), "MB/s", 0, 1.2, takes_s=30),
    Row("consume 100 B", consume(100, 0.6, 1), "MB/s", 0, 1.2),
    Row("consume 100 B, 3 consumers", consume(100, 0.6, 3), "MB/s", 0, 1.2),
    Row("consume 1 KB lz4", consume(1000, 1.5, 1, LZ4), "MB/s", 0, 1.2),
)
SMALL_ROWS = (
    *latency("one in flight RF3", one_in_flight(3), (1.25, 1), quick=True),
    *latency("one in flight RF1", one_in_flight(1), (1 / 1.1, 0), quick=True),
    *latency("end to end, 1,000 a second", paced(1000, 100, 5), (0, 0)),
    *latency("end to end, 20,000 a second", paced(20_000, 100, 5), (0, 0)),
    *latency("end to end, half of maximum", HalfOfMaximum(1000, 5), (0, 0)),
    many("requests, window 32", requests(1, 32, 60_000)),
    many("requests, 16 connections", requests(16, 1, 40_000), quick=True),
    many("requests, 500 connections", requests(500, 1, 40_000)),
    many("requests RF3, 16 connections", requests(16, 1, 20_000, 3)),
    committed("transactions, 1 record", 1, 1, 800, quick=True),
    committed("transactions, 1 record, 16 producers", 16, 1, 4_800, quick=True),
    committed("transactions, 1,000 records", 1, 1000, 300),
    committed("transactions, 1,000 records, 16 producers", 16, 1000, 1_600),
    *latency("read committed, one transaction at a time", read_committed(800), (1 / 1.1, 0)),
    # Last, because Kafka removes the thousands of folders of deleted topics a minute later.
    Row("produce RF3 1 KB, 1,000 partitions", produce(1000, 0.6, 1000, 3), "MB/s", takes_s=50),
)
EVENT_ROWS = (
    Row("idle memory", events.idle, "MB", 10, 0, True, "rss_mb", OWN, at_once=True, takes_s=50),
    Row("idle CPU", events.idle, "cores", 2, 0, True, "cores", OWN, at_once=True, takes_s=0),
    Row(
        "empty follower catches up, 2 GB",
        events.catch_up,
        "MB/s",
        1,
        where=OWN,
        warm=True,
        takes_s=90,
    ),
    event("new topic to its first record", events.first_record, 0, 40, quick=True),
    event("failover after kill -9", events.kill, 10, 75, quick=True),
    event("failover, kill, equal sessions", events.kill, 10, 60, settings=events.EQUAL),
    event("failover, hang, equal sessions", events.hang, 0, 60, settings=events.EQUAL),
    flushed("flushed, requests, window 32", requests(1, 32, 12_000), "req/s"),
    flushed("flushed, produce RF1 1 KB", produce(1000, 0.5, 1, 1), "MB/s"),
    flushed("flushed, produce RF3 1 KB", produce(1000, 0.4, 1, 3), "MB/s"),
    event("start-up to ready", events.start_up, 20, 30, FRESH, quick=True),
    event("unclean restart, 2 GB", events.restart, 0, 140, FRESH),
    event("unclean restart, 3,000 partitions", events.restart_with_many, 2, 300, FRESH, rounds=1),
)
ROWS = (*BULK_ROWS, *SMALL_ROWS, *EVENT_ROWS)
