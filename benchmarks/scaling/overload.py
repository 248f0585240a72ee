"""The brokers' memory over time while clients read no responses, or a follower hangs.

Each overload lasts some seconds. Meanwhile a well-behaved client sends small Produce requests, one
at a time, to a topic of its own, and is timed. Then the overload ends, and the brokers must serve
as before. The memory must stay below a bound while the sent bytes grow.
"""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple

from group_load.figures import percentile
from processes import allow_open_files, rss_mb
from scaling.rig import Brokers, Connection, batch, brokers, check_produced, fetch, produce

from tidelog.core.api_table import METADATA
from tidelog.core.wire.codec import encode_request

SAMPLE_S = 0.05
OVERLOAD_S, QUICK_OVERLOAD_S = 5.0, 2.0
AFTER_S, AFTER_MB = 2.0, 50.0
PATIENCE_S = 10.0
OTHER_S = 0.02
SEND_BYTES = 65_536
LIMIT_BYTES = 2_500_000_000
"""Limit of the bytes that are sent or requested."""
WRITTEN_BYTES_MAX = 1_000_000_000
"""Limit of the bytes that are written to disk."""
FILES = 6000
REQUESTED = "requested from it so far"
OVERLOADED, OTHER, WIDE = "overloaded", "other", "wide"
WIDE_PARTITIONS = 2000
FETCH_BYTES = 1_000_000


class Overload(NamedTuple):
    """One kind of overload."""

    name: str
    brokers: int
    make: Callable[[Brokers, ExitStack, "Monitor"], None]
    what: str = "sent to it so far"


class Monitor:
    """Samples the first broker's memory and the bytes sent so far; runs the well-behaved client."""

    def __init__(self, cluster: Brokers, overload_s: float) -> None:
        self.sent = 0
        self._overload_s = overload_s
        self.samples: list[tuple[float, float, float]] = []
        self.waits: list[float] = []
        self.began = time.monotonic()
        self.over = threading.Event()
        self._pid = cluster.pids[0]
        self._connection = cluster.connect()
        self._threads = [threading.Thread(target=work) for work in (self._sample, self._send_small)]

    @property
    def in_progress(self) -> bool:
        return time.monotonic() - self.began < self._overload_s and self.sent < LIMIT_BYTES

    @contextmanager
    def running(self) -> Iterator[None]:
        for thread in self._threads:
            thread.start()
        try:
            yield
        finally:
            self.over.set()
            for thread in self._threads:
                thread.join()
            self._connection.socket.close()

    def _sample(self) -> None:
        while not self.over.wait(SAMPLE_S):
            at = time.monotonic() - self.began
            self.samples.append((at, self.sent / 1e6, rss_mb(self._pid)))

    def _send_small(self) -> None:
        frame = produce(OTHER, {0: batch()})
        while not self.over.wait(OTHER_S):
            began = time.perf_counter()
            check_produced(self._connection.request(frame))
            self.waits.append(time.perf_counter() - began)


def measure(quick: bool) -> list[dict[str, Any]]:
    allow_open_files(FILES)
    found = []
    for overload in OVERLOADS:
        with brokers(overload.brokers, {"min.insync.replicas": "1"}) as cluster:
            everywhere = range(1, overload.brokers + 1)
            cluster.create(OVERLOADED, 4, everywhere, {"retention.bytes": "-1"})
            cluster.create(OTHER, 1)
            if overload.make is metadata_unread:
                cluster.create(WIDE, WIDE_PARTITIONS // (4 if quick else 1))
            found.append(_one(overload, cluster, QUICK_OVERLOAD_S if quick else OVERLOAD_S))
    return found


def _one(overload: Overload, cluster: Brokers, overload_s: float) -> dict[str, Any]:
    before = rss_mb(cluster.pids[0])
    monitor = Monitor(cluster, overload_s)
    with monitor.running():
        with ExitStack() as held:
            overload.make(cluster, held, monitor)
            while monitor.in_progress:
                time.sleep(SAMPLE_S)
        ended = time.monotonic() - monitor.began
        _settle(cluster, before)
    with cluster.connect() as connection:
        check_produced(connection.request(produce(OVERLOADED, {0: batch()}, acks=-1)))
    return {
        "name": overload.name,
        "what": overload.what,
        "sent_mb": monitor.sent / 1e6,
        "before_mb": before,
        "peak_mb": max(memory for _, _, memory in monitor.samples),
        "after_mb": rss_mb(cluster.pids[0]),
        "ended_s": ended,
        "other_client_p50_ms": percentile(monitor.waits, 50) * 1e3,
        "other_client_max_ms": max(monitor.waits) * 1e3,
        "samples": monitor.samples,
    }


def _settle(cluster: Brokers, before: float) -> None:
    """Wait until the broker has read the data left in sockets and released its memory."""
    until = time.monotonic() + PATIENCE_S
    time.sleep(AFTER_S)
    while rss_mb(cluster.pids[0]) > before + AFTER_MB and time.monotonic() < until:
        time.sleep(SAMPLE_S)


def _send_repeatedly(
    monitor: Monitor,
    connections: Sequence[Connection],
    data: bytes,
    rounds: int = 1 << 30,
    worth: float = 1.0,
) -> None:
    """Send `data` repeatedly on all connections, as fast as the broker accepts it.

    `worth` is the number of response bytes that one sent byte requests.
    """
    left = {connection: memoryview(data) for connection in connections}
    turns = dict.fromkeys(connections, rounds)
    for connection in connections:
        connection.socket.setblocking(False)
    while left and monitor.in_progress:
        idle = True
        for connection in list(left):
            try:
                count = connection.socket.send(left[connection][:SEND_BYTES])
            except BlockingIOError:
                continue
            except OSError:  # the broker has closed the connection
                del left[connection]
                continue
            idle = False
            monitor.sent += int(count * worth)
            left[connection] = left[connection][count:]
            if not left[connection]:
                left[connection] = memoryview(data)
                turns[connection] -= 1
                if not turns[connection]:
                    del left[connection]
        if idle:
            time.sleep(0.005)


def _connect(cluster: Brokers, held: ExitStack, count: int) -> list[Connection]:
    return [held.enter_context(cluster.connect()) for _ in range(count)]


def responses_unread(cluster: Brokers, held: ExitStack, monitor: Monitor) -> None:
    """Send small Produce requests without end, and read no responses."""
    _send_repeatedly(monitor, _connect(cluster, held, 20), produce(OVERLOADED, {0: batch(10)}) * 20)


def records_unread(cluster: Brokers, held: ExitStack, monitor: Monitor) -> None:
    """Let a hundred consumers each request a megabyte twenty times, and read no responses."""
    with cluster.connect() as connection:
        connection.pipeline([produce(OVERLOADED, {0: batch(900, 1000)})] * 100)
    frame = fetch(OVERLOADED, {0: 0}, max_bytes=FETCH_BYTES)
    connections = _connect(cluster, held, 100)
    _send_repeatedly(monitor, connections, frame * 20, 1, FETCH_BYTES / len(frame))


def metadata_unread(cluster: Brokers, held: ExitStack, monitor: Monitor) -> None:
    """Let fifty clients request all topics 128 times each, with four different requests."""
    requests = [
        {
            "topics": None,
            "allow_auto_topic_creation": bool(n & 1),
            "include_topic_authorized_operations": n > 1,
        }
        for n in range(4)
    ]
    frames = [encode_request(METADATA, 12, 1, "bench", body) for body in requests]
    with cluster.connect() as connection:
        worth = len(connection.request(frames[0])) / len(frames[0])
    _send_repeatedly(monitor, _connect(cluster, held, 50), b"".join(frames * 32), 1, worth)


def half_a_frame(cluster: Brokers, held: ExitStack, monitor: Monitor) -> None:
    """Let 2,000 connections send two thirds of a request of almost a megabyte, never the rest."""
    whole = produce(OVERLOADED, {0: batch(900, 1000)})
    _send_repeatedly(monitor, _connect(cluster, held, 2000), whole[: len(whole) * 2 // 3], 1)


def hung_follower(cluster: Brokers, held: ExitStack, monitor: Monitor) -> None:
    """Send batches of a megabyte at full rate with acks=1 while a follower is stopped."""
    _stop_a_follower(cluster, held)
    frame = produce(OVERLOADED, {0: batch(900, 1000)})
    with cluster.connect() as connection:
        while monitor.in_progress and monitor.sent < WRITTEN_BYTES_MAX:
            connection.pipeline([frame] * 8)
            monitor.sent += len(frame) * 8


def hung_commits(cluster: Brokers, held: ExitStack, monitor: Monitor) -> None:
    """Let two hundred producers with acks=all send records that can't be committed."""
    _stop_a_follower(cluster, held)
    _send_repeatedly(
        monitor, _connect(cluster, held, 200), produce(OVERLOADED, {0: batch(10)}, acks=-1) * 20
    )


def _stop_a_follower(cluster: Brokers, held: ExitStack) -> None:
    last = cluster.cluster.ids[-1]
    cluster.cluster.pause(last)
    held.callback(cluster.cluster.resume, last)


OVERLOADS = (
    Overload("producers that read no responses", 1, responses_unread),
    Overload("consumers that read no records", 1, records_unread, REQUESTED),
    Overload("Metadata of 2,000 partitions, not read", 1, metadata_unread, REQUESTED),
    Overload("2,000 requests, two thirds sent", 1, half_a_frame),
    Overload("a follower hangs, acks=1", 3, hung_follower),
    Overload("a follower hangs, acks=all", 3, hung_commits),
)


def table(found: Sequence[dict[str, Any]]) -> str:
    """Return a readable table."""
    columns = (
        "sent_mb",
        "before_mb",
        "peak_mb",
        "after_mb",
        "other_client_p50_ms",
        "other_client_max_ms",
    )
    heads = ("sent", "RSS MB", "peak", "after", "p50 ms", "max ms")
    lines = [f"{'overload':50}" + "".join(f"{head:>9}" for head in heads)]
    for one in found:
        figures = "".join(f"{one[column]:>9.1f}" for column in columns)
        lines.append(f"  {one['name']:48}{figures}")
    return "\n".join(lines)
