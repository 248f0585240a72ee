"""The cost of Produce with growing followers, idempotent producers, batches and records.

Followers: one partition on five brokers. Producers: each has sent a batch to one partition, and the
broker keeps its state. Request sizes: batches in one request, and records in one batch.
"""

import time

from scaling.laws import FLAT, LINEAR, Results
from scaling.rig import Brokers, Connection, batch, brokers, check_produced, produce

from tidelog.core.record.encoder import Producer

FOLLOWERS = "followers"
FOLLOWER_SIZES = (0, 1, 2, 4)
BULK_BYTES, BULK_REQUESTS = 1_000_000, 100
SMALL_REQUESTS = 400
PRODUCERS = "producers of a partition"
PRODUCER_SIZES = (10, 100, 1000, 10_000)
PRODUCER_QUICK = (10, 100, 1000)
PAID = "paid"
APPENDS = 300
ROLLS = 20
HOUR_MS = 3_600_000
BATCHES = "batches in a Produce"
RECORDS = "records in a batch of 100 KB"
BATCH_SIZES = (1, 8, 64, 512)
BATCH_QUICK = (1, 16, 256)
RECORD_SIZES = (10, 100, 1000, 10_000)
WIDE = "wide"
BATCH_BYTES = 100_000
RECORD_OVERHEAD = 7
"""Bytes of lengths and deltas in a small record."""


def measure_followers(results: Results, sizes: tuple[int, ...]) -> None:
    with brokers(5, {"min.insync.replicas": "1"}) as cluster:
        for size in sizes:
            _some_followers(results, cluster, size)


def _some_followers(results: Results, cluster: Brokers, size: int) -> None:
    topic = f"copies-{size}"
    cluster.create(topic, 1, range(1, size + 2))
    with cluster.connect() as connection:
        bulk = produce(topic, {0: batch(BULK_BYTES // 1000, 990)}, acks=-1)
        small = produce(topic, {0: batch()}, acks=-1)
        check_produced(connection.request(bulk))
        check_produced(connection.request(small))
        spent = cluster.least_cpu(lambda: connection.pipeline([bulk] * BULK_REQUESTS, 4), 2)
        gigabytes = len(bulk) * BULK_REQUESTS / 1e9
        results.add(
            FOLLOWERS, "bulk, acks=all, CPU a GB", size, spent.cpu_s / gigabytes, "s", LINEAR
        )
        took: list[float] = []

        def one_in_flight() -> None:
            for _ in range(SMALL_REQUESTS):
                began = time.perf_counter()
                connection.request(small)
                took.append(time.perf_counter() - began)

        spent = cluster.least_cpu(one_in_flight)
        cost = spent.cpu_s / SMALL_REQUESTS * 1e6
        results.add(FOLLOWERS, "small, acks=all, one in flight, CPU", size, cost, "µs", LINEAR)
        median = sorted(took)[len(took) // 2] * 1e6
        results.add(FOLLOWERS, "small, acks=all, one in flight, p50", size, median, "µs", LINEAR)


def measure_producers(results: Results, sizes: tuple[int, ...]) -> None:
    for size in sizes:
        with brokers() as cluster:
            cluster.create(PAID, 1, (1,), {"segment.ms": str(HOUR_MS), "retention.ms": "-1"})
            _some_producers(results, cluster, size)


def _request(producer: int, sequence: int, hour: int = 0) -> bytes:
    """Return a batch that is some days old, so that later batches are not in the future."""
    stamp = time.time_ns() // 1_000_000 - 100 * HOUR_MS + hour * HOUR_MS
    records = batch(producer=Producer(producer, 0, sequence), timestamp=stamp)
    return produce(PAID, {0: records})


def _some_producers(results: Results, cluster: Brokers, size: int) -> None:
    def add(name: str, cost: float, unit: str, bound: str) -> None:
        results.add(PRODUCERS, name, size, cost, unit, bound)

    with cluster.connect() as connection:
        connection.pipeline([_request(1_000_000, at) for at in range(100)])
        before = cluster.rss_mb()
        connection.pipeline([_request(producer, 0) for producer in range(size)])
        add("memory", cluster.rss_mb() - before, "MB", LINEAR)
        more = [_request(0, at) for at in range(1, APPENDS + 1)]
        spent = cluster.measure(lambda: connection.pipeline(more))
        add("append, CPU", spent.cpu_s / APPENDS * 1e6, "µs", FLAT)
        _rolls(results, cluster, connection, size)
    cluster.cluster.kill(1)
    cluster.cluster.start_broker(1)
    cpu_s = time.clock_gettime(cluster.clocks[0])
    add("start after kill -9, CPU", cpu_s * 1e3, "ms", LINEAR)


def _rolls(results: Results, cluster: Brokers, connection: Connection, size: int) -> None:
    """Measure batches that are hours newer than the one before, so that each starts a segment."""
    rolling = [_request(0, APPENDS + 1 + at, 2 + at * 2) for at in range(ROLLS)]
    check_produced(connection.request(_request(1, 1)))
    spent = cluster.measure(lambda: connection.pipeline(rolling, 1))
    check_produced(connection.request(_request(2, 1, 3 + ROLLS * 2)))
    cost = spent.cpu_s / ROLLS * 1e6
    results.add(PRODUCERS, "roll with a snapshot, CPU", size, cost, "µs", LINEAR)


def measure_request_sizes(results: Results, sizes: tuple[int, ...]) -> None:
    with brokers() as cluster, cluster.connect() as connection:
        cluster.create(WIDE, max(sizes))
        records = batch()
        for size in sizes:
            frame = produce(WIDE, dict.fromkeys(range(size), records))
            check_produced(connection.request(frame))
            times = max(5, 2000 // size)
            spent = cluster.least_cpu(lambda: connection.pipeline([frame] * times, 4))  # noqa: B023
            cost = spent.cpu_s / times / size * 1e6
            results.add(BATCHES, "CPU a batch", size, cost, "µs", FLAT)
        for size in RECORD_SIZES:
            records = batch(size, max(BATCH_BYTES // size - RECORD_OVERHEAD, 1))
            frame = produce(WIDE, {0: records})
            check_produced(connection.request(frame))
            spent = cluster.least_cpu(lambda: connection.pipeline([frame] * 300, 4))  # noqa: B023
            results.add(RECORDS, "CPU a request", size, spent.cpu_s / 300 * 1e6, "µs", FLAT)
