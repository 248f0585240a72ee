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
from scaling.rig import Brokers, Line, batch, brokers, fetch, produce, produced_well

from tidelog.core.api_table import METADATA
from tidelog.core.wire.codec import encode_request

SAMPLE_S = 0.05
TROUBLE_S, QUICK_TROUBLE_S = 5.0, 2.0
AFTER_S, AFTER_MB = 2.0, 50.0
PATIENCE_S = 10.0
POLITE_S = 0.02
SEND_BYTES = 65_536
LIMIT_BYTES = 2_500_000_000
"""Limit of the bytes that are sent or requested."""
WRITTEN_BYTES_MAX = 1_000_000_000
"""Limit of the bytes that are written to disk."""
FILES = 6000
ASKED = "asked of it so far"
HURT, POLITE, WIDE = "hurt", "polite", "wide"
WIDE_PARTITIONS = 2000
FETCH_BYTES = 1_000_000


class Trouble(NamedTuple):
    """One kind of overload."""

    name: str
    brokers: int
    make: Callable[[Brokers, ExitStack, "Watcher"], None]
    what: str = "sent to it so far"


class Watcher:
    """Samples the first broker's memory and the bytes sent so far; runs the well-behaved client."""

    def __init__(self, cluster: Brokers, trouble_s: float) -> None:
        self.sent = 0
        self._trouble_s = trouble_s
        self.samples: list[tuple[float, float, float]] = []
        self.waits: list[float] = []
        self.began = time.monotonic()
        self.over = threading.Event()
        self._pid = cluster.pids[0]
        self._line = cluster.line()
        self._threads = [threading.Thread(target=work) for work in (self._sample, self._ask)]

    @property
    def in_time(self) -> bool:
        return time.monotonic() - self.began < self._trouble_s and self.sent < LIMIT_BYTES

    @contextmanager
    def at_work(self) -> Iterator[None]:
        for thread in self._threads:
            thread.start()
        try:
            yield
        finally:
            self.over.set()
            for thread in self._threads:
                thread.join()
            self._line.socket.close()

    def _sample(self) -> None:
        while not self.over.wait(SAMPLE_S):
            at = time.monotonic() - self.began
            self.samples.append((at, self.sent / 1e6, rss_mb(self._pid)))

    def _ask(self) -> None:
        frame = produce(POLITE, {0: batch()})
        while not self.over.wait(POLITE_S):
            began = time.perf_counter()
            produced_well(self._line.ask(frame))
            self.waits.append(time.perf_counter() - began)


def measure(quick: bool) -> list[dict[str, Any]]:
    allow_open_files(FILES)
    found = []
    for trouble in TROUBLES:
        with brokers(trouble.brokers, {"min.insync.replicas": "1"}) as cluster:
            everywhere = range(1, trouble.brokers + 1)
            cluster.create(HURT, 4, everywhere, {"retention.bytes": "-1"})
            cluster.create(POLITE, 1)
            if trouble.make is metadata_unread:
                cluster.create(WIDE, WIDE_PARTITIONS // (4 if quick else 1))
            found.append(_one(trouble, cluster, QUICK_TROUBLE_S if quick else TROUBLE_S))
    return found


def _one(trouble: Trouble, cluster: Brokers, trouble_s: float) -> dict[str, Any]:
    before = rss_mb(cluster.pids[0])
    watcher = Watcher(cluster, trouble_s)
    with watcher.at_work():
        with ExitStack() as held:
            trouble.make(cluster, held, watcher)
            while watcher.in_time:
                time.sleep(SAMPLE_S)
        ended = time.monotonic() - watcher.began
        _settle(cluster, before)
    with cluster.line() as line:
        produced_well(line.ask(produce(HURT, {0: batch()}, acks=-1)))
    return {
        "name": trouble.name,
        "what": trouble.what,
        "sent_mb": watcher.sent / 1e6,
        "before_mb": before,
        "peak_mb": max(memory for _, _, memory in watcher.samples),
        "after_mb": rss_mb(cluster.pids[0]),
        "ended_s": ended,
        "polite_p50_ms": percentile(watcher.waits, 50) * 1e3,
        "polite_max_ms": max(watcher.waits) * 1e3,
        "samples": watcher.samples,
    }


def _settle(cluster: Brokers, before: float) -> None:
    """Wait until the broker has read the data left in sockets and released its memory."""
    until = time.monotonic() + PATIENCE_S
    time.sleep(AFTER_S)
    while rss_mb(cluster.pids[0]) > before + AFTER_MB and time.monotonic() < until:
        time.sleep(SAMPLE_S)


def _push(
    watcher: Watcher,
    lines: Sequence[Line],
    data: bytes,
    rounds: int = 1 << 30,
    worth: float = 1.0,
) -> None:
    """Send `data` repeatedly on all connections, as fast as the broker accepts it.

    `worth` is the number of response bytes that one sent byte requests.
    """
    left = {line: memoryview(data) for line in lines}
    turns = dict.fromkeys(lines, rounds)
    for line in lines:
        line.socket.setblocking(False)
    while left and watcher.in_time:
        idle = True
        for line in list(left):
            try:
                count = line.socket.send(left[line][:SEND_BYTES])
            except BlockingIOError:
                continue
            except OSError:  # the broker has closed the connection
                del left[line]
                continue
            idle = False
            watcher.sent += int(count * worth)
            left[line] = left[line][count:]
            if not left[line]:
                left[line] = memoryview(data)
                turns[line] -= 1
                if not turns[line]:
                    del left[line]
        if idle:
            time.sleep(0.005)


def _lines(cluster: Brokers, held: ExitStack, count: int) -> list[Line]:
    return [held.enter_context(cluster.line()) for _ in range(count)]


def answers_unread(cluster: Brokers, held: ExitStack, watcher: Watcher) -> None:
    """Send small Produce requests without end, and read no responses."""
    _push(watcher, _lines(cluster, held, 20), produce(HURT, {0: batch(10)}) * 20)


def records_unread(cluster: Brokers, held: ExitStack, watcher: Watcher) -> None:
    """Let a hundred consumers each request a megabyte twenty times, and read no responses."""
    with cluster.line() as line:
        line.pipeline([produce(HURT, {0: batch(900, 1000)})] * 100)
    frame = fetch(HURT, {0: 0}, max_bytes=FETCH_BYTES)
    lines = _lines(cluster, held, 100)
    _push(watcher, lines, frame * 20, 1, FETCH_BYTES / len(frame))


def metadata_unread(cluster: Brokers, held: ExitStack, watcher: Watcher) -> None:
    """Let fifty clients request all topics 128 times each, with four different requests."""
    asked = [
        {
            "topics": None,
            "allow_auto_topic_creation": bool(n & 1),
            "include_topic_authorized_operations": n > 1,
        }
        for n in range(4)
    ]
    frames = [encode_request(METADATA, 12, 1, "bench", body) for body in asked]
    with cluster.line() as line:
        worth = len(line.ask(frames[0])) / len(frames[0])
    _push(watcher, _lines(cluster, held, 50), b"".join(frames * 32), 1, worth)


def half_a_frame(cluster: Brokers, held: ExitStack, watcher: Watcher) -> None:
    """Let 2,000 connections send two thirds of a request of almost a megabyte, never the rest."""
    whole = produce(HURT, {0: batch(900, 1000)})
    _push(watcher, _lines(cluster, held, 2000), whole[: len(whole) * 2 // 3], 1)


def hung_follower(cluster: Brokers, held: ExitStack, watcher: Watcher) -> None:
    """Send batches of a megabyte at full rate with acks=1 while a follower is stopped."""
    _stop_a_follower(cluster, held)
    frame = produce(HURT, {0: batch(900, 1000)})
    with cluster.line() as line:
        while watcher.in_time and watcher.sent < WRITTEN_BYTES_MAX:
            line.pipeline([frame] * 8)
            watcher.sent += len(frame) * 8


def hung_commits(cluster: Brokers, held: ExitStack, watcher: Watcher) -> None:
    """Let two hundred producers with acks=all send records that can't be committed."""
    _stop_a_follower(cluster, held)
    _push(watcher, _lines(cluster, held, 200), produce(HURT, {0: batch(10)}, acks=-1) * 20)


def _stop_a_follower(cluster: Brokers, held: ExitStack) -> None:
    last = cluster.cluster.ids[-1]
    cluster.cluster.pause(last)
    held.callback(cluster.cluster.resume, last)


TROUBLES = (
    Trouble("producers that read no answers", 1, answers_unread),
    Trouble("consumers that read no records", 1, records_unread, ASKED),
    Trouble("Metadata of 2,000 partitions, not read", 1, metadata_unread, ASKED),
    Trouble("2,000 requests, two thirds sent", 1, half_a_frame),
    Trouble("a follower hangs, acks=1", 3, hung_follower),
    Trouble("a follower hangs, acks=all", 3, hung_commits),
)


def table(found: Sequence[dict[str, Any]]) -> str:
    """Return a readable table."""
    columns = ("sent_mb", "before_mb", "peak_mb", "after_mb", "polite_p50_ms", "polite_max_ms")
    heads = ("sent/ask", "RSS MB", "peak", "after", "p50 ms", "max ms")
    lines = [f"{'overload':50}" + "".join(f"{head:>9}" for head in heads)]
    for one in found:
        figures = "".join(f"{one[column]:>9.1f}" for column in columns)
        lines.append(f"  {one['name']:48}{figures}")
    return "\n".join(lines)
