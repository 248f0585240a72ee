"""Followers of one partition, on five brokers: none, one, two, four."""

import time

from scaling.laws import LINEAR, Book
from scaling.rig import Brokers, batch, brokers, produce, produced_well

AXIS = "followers"
SIZES = (0, 1, 2, 4)
QUICK = (0, 1, 2, 4)
BULK_BYTES, BULK_REQUESTS = 1_000_000, 100
SMALL_REQUESTS = 400


def measure(book: Book, sizes: tuple[int, ...]) -> None:
    with brokers(5, {"min.insync.replicas": "1"}) as cluster:
        for size in sizes:
            _one_size(book, cluster, size)


def _one_size(book: Book, cluster: Brokers, size: int) -> None:
    topic = f"copies-{size}"
    cluster.create(topic, 1, range(1, size + 2))
    with cluster.line() as line:
        bulk = produce(topic, {0: batch(BULK_BYTES // 1000, 990)}, acks=-1)
        small = produce(topic, {0: batch()}, acks=-1)
        produced_well(line.ask(bulk))
        produced_well(line.ask(small))
        spent = cluster.least(lambda: line.pipeline([bulk] * BULK_REQUESTS, 4), 2)
        gigabytes = len(bulk) * BULK_REQUESTS / 1e9
        book.note(AXIS, "bulk, acks=all, CPU a GB", size, spent.cpu_s / gigabytes, "s", LINEAR)
        took: list[float] = []

        def one_in_flight() -> None:
            for _ in range(SMALL_REQUESTS):
                began = time.perf_counter()
                line.ask(small)
                took.append(time.perf_counter() - began)

        spent = cluster.least(one_in_flight)
        cost = spent.cpu_s / SMALL_REQUESTS * 1e6
        book.note(AXIS, "small, acks=all, one in flight, CPU", size, cost, "µs", LINEAR)
        median = sorted(took)[len(took) // 2] * 1e6
        book.note(AXIS, "small, acks=all, one in flight, p50", size, median, "µs", LINEAR)
