"""Connections to one broker: idle, busy, waiting, and many that are opened at once."""

import time
from collections.abc import Sequence
from contextlib import ExitStack

from processes import allow_open_files
from scaling.laws import FLAT, LINEAR, Book
from scaling.rig import Brokers, Line, all_at_once, batch, brokers, fetch, produce, produced_well

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


def measure(book: Book, sizes: tuple[int, ...]) -> None:
    room = allow_open_files(max(sizes) * 2 + SPARE_FILES) - SPARE_FILES
    for size in sizes:
        if size <= room:
            with brokers() as cluster, ExitStack() as open_lines:
                cluster.create(TOPIC, PARTITIONS)
                _one_size(book, cluster, open_lines, size)


def _one_size(book: Book, cluster: Brokers, open_lines: ExitStack, size: int) -> None:
    def note(name: str, cost: float, unit: str, may_be: str) -> None:
        book.note(AXIS, name, size, cost, unit, may_be)

    one = open_lines.enter_context(cluster.line())
    one.pipeline([VERSIONS] * 100)
    before = cluster.rss_mb()
    lines: list[Line] = []

    def storm() -> None:
        lines.extend(open_lines.enter_context(cluster.line()) for _ in range(size))
        all_at_once(lines, [VERSIONS] * size, 1)

    spent = cluster.spend(storm)
    note("all come at once: CPU for each", spent.cpu_s / size * 1e6, "µs", FLAT)
    note("memory of all that are idle", cluster.rss_mb() - before, "MB", LINEAR)
    time.sleep(0.5)
    note("idle: CPU a second", cluster.idle(IDLE_S) * 1e3, "ms", LINEAR)
    frame = produce(TOPIC, {0: batch()})
    spent = cluster.least(lambda: one.pipeline([frame] * 500, 1))
    note("one is busy: CPU a request", spent.cpu_s / 500 * 1e6, "µs", FLAT)
    produced_well(one.ask(frame))
    rounds = max(2, REQUESTS // size)
    spent = cluster.least(lambda: all_at_once(lines, [frame] * size, rounds))
    note(
        "all are busy, one in flight: CPU a request", spent.cpu_s / rounds / size * 1e6, "µs", FLAT
    )
    _waiting(book, cluster, one, lines)
    note("memory with all of that", cluster.rss_mb() - before, "MB", LINEAR)


def _waiting(book: Book, cluster: Brokers, one: Line, lines: Sequence[Line]) -> None:
    """Measure while all other connections wait for records of one partition.

    First records are written to another partition, then one record to the partition that they wait
    for.
    """
    size = len(lines)
    elsewhere, there = produce(TOPIC, {1: batch()}), produce(TOPIC, {2: batch()})
    ends = [0]
    cost = []
    for _ in range(3):
        poll = fetch(TOPIC, {2: ends[0]}, max_wait_ms=60_000)
        for line in lines:
            line.socket.sendall(poll)
        one.pipeline([elsewhere] * 100, 1)
        spent = cluster.spend(lambda: one.pipeline([elsewhere] * 200, 1))
        woken = cluster.spend(lambda: _wake(one, lines, there))
        ends[0] += 1
        cost.append((spent.cpu_s / 200 * 1e6, woken.cpu_s / size * 1e6))
    book.note(AXIS, "all wait elsewhere: CPU a produce", size, min(a for a, _ in cost), "µs", FLAT)
    name = "all wait for one record: CPU for each"
    book.note(AXIS, name, size, min(b for _, b in cost), "µs", FLAT)


def _wake(one: Line, lines: Sequence[Line], frame: bytes) -> None:
    one.ask(frame)
    for line in lines:
        line.take()
