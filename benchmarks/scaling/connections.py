"""Connections to one broker: idle, busy, waiting, and many that are opened at once."""

import time
from collections.abc import Sequence
from contextlib import ExitStack

from processes import allow_open_files
from scaling.laws import FLAT, LINEAR, Results
from scaling.rig import (
    Brokers,
    Connection,
    all_at_once,
    batch,
    brokers,
    check_produced,
    fetch,
    produce,
)

from tidelog.core.api_table import API_VERSIONS
from tidelog.core.wire.codec import encode_request

AXIS = "connections"
SIZES = (10, 40, 160, 640, 2560)
QUICK = (10, 100, 1000)
TOPIC = "orders"
PARTITIONS = 4
REQUESTS = 5000
SPARE_FILES = 500
IDLE_S = 2.0
VERSIONS = encode_request(
    API_VERSIONS, 3, 1, "bench", {"client_software_name": "b", "client_software_version": "1"}
)
"""The first request of every client."""


def measure(results: Results, sizes: tuple[int, ...]) -> None:
    room = allow_open_files(max(sizes) * 2 + SPARE_FILES) - SPARE_FILES
    for size in sizes:
        if size <= room:
            with brokers() as cluster, ExitStack() as stack:
                cluster.create(TOPIC, PARTITIONS)
                _one_size(results, cluster, stack, size)


def _one_size(results: Results, cluster: Brokers, stack: ExitStack, size: int) -> None:
    def add(name: str, cost: float, unit: str, bound: str) -> None:
        results.add(AXIS, name, size, cost, unit, bound)

    one = stack.enter_context(cluster.connect())
    one.pipeline([VERSIONS] * 100)
    before = cluster.rss_mb()
    connections: list[Connection] = []

    def storm() -> None:
        connections.extend(stack.enter_context(cluster.connect()) for _ in range(size))
        all_at_once(connections, [VERSIONS] * size, 1)

    spent = cluster.measure(storm)
    add("all connect at once: CPU for each", spent.cpu_s / size * 1e6, "µs", FLAT)
    add("memory of all that are idle", cluster.rss_mb() - before, "MB", LINEAR)
    time.sleep(0.5)
    add("idle: CPU a second", cluster.idle(IDLE_S) * 1e3, "ms", LINEAR)
    frame = produce(TOPIC, {0: batch()})
    spent = cluster.least_cpu(lambda: one.pipeline([frame] * 500, 1))
    add("one is busy: CPU a request", spent.cpu_s / 500 * 1e6, "µs", FLAT)
    check_produced(one.request(frame))
    rounds = max(2, REQUESTS // size)
    spent = cluster.least_cpu(lambda: all_at_once(connections, [frame] * size, rounds))
    add("all are busy, one in flight: CPU a request", spent.cpu_s / rounds / size * 1e6, "µs", FLAT)
    _waiting(results, cluster, one, connections)
    add("memory with all of that", cluster.rss_mb() - before, "MB", LINEAR)


def _waiting(
    results: Results, cluster: Brokers, one: Connection, connections: Sequence[Connection]
) -> None:
    """Measure while all other connections wait for records of one partition.

    First records are written to another partition, then one record to the partition that they wait
    for.
    """
    size = len(connections)
    elsewhere, there = produce(TOPIC, {1: batch()}), produce(TOPIC, {2: batch()})
    ends = [0]
    cost = []
    for _ in range(3):
        poll = fetch(TOPIC, {2: ends[0]}, max_wait_ms=60_000)
        for connection in connections:
            connection.socket.sendall(poll)
        one.pipeline([elsewhere] * 100, 1)
        spent = cluster.measure(lambda: one.pipeline([elsewhere] * 200, 1))
        woken = cluster.measure(lambda: _wake(one, connections, there))
        ends[0] += 1
        cost.append((spent.cpu_s / 200 * 1e6, woken.cpu_s / size * 1e6))
    results.add(
        AXIS,
        "all wait for another partition: CPU a produce",
        size,
        min(a for a, _ in cost),
        "µs",
        FLAT,
    )
    name = "all wait for one record: CPU for each"
    results.add(AXIS, name, size, min(b for _, b in cost), "µs", FLAT)


def _wake(one: Connection, connections: Sequence[Connection], frame: bytes) -> None:
    one.request(frame)
    for connection in connections:
        connection.receive()
