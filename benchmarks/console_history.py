"""Cost of the console's history: bytes for each partition and day, time to record and to read.

    .venv/bin/python benchmarks/console_history.py

No broker runs: the samples are made by the fake cluster of the store's tests.
"""

import os
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests/apps/console_history"))

from samples import FakeCluster

from tidelog.apps.console.history.schema import used_bytes
from tidelog.apps.console.history.store import HistoryStore

DAY_MS = 86_400_000
UNBOUNDED = 1 << 40


class Filled:
    """A store filled with samples of a cluster."""

    def __init__(self, folder: str, partitions: int) -> None:
        self.store = HistoryStore(os.path.join(folder, "history.db"), UNBOUNDED)
        self.cluster = FakeCluster(partitions)
        self.seconds = 0.0
        self.samples = 0

    def sample(self) -> None:
        states, metadata = self.cluster.states(), self.cluster.metadata()
        began = time.perf_counter()
        self.store.record(self.cluster.at_ms, states, metadata)
        self.seconds += time.perf_counter() - began
        self.samples += 1

    @property
    def bytes(self) -> int:
        writer = self.store._writer  # noqa: SLF001
        assert writer is not None
        return used_bytes(writer)


def per_day(kind: str, every_ms: int, minutes: int, partitions: int = 10) -> None:
    """Print the growth in a day, from the growth in some minutes."""
    with tempfile.TemporaryDirectory() as folder:
        filled = Filled(folder, partitions)
        cluster = filled.cluster
        filled.sample()
        before, began_ms = filled.bytes, cluster.at_ms
        while cluster.at_ms - began_ms < minutes * 60_000:
            cluster.tick(every_ms)
            minute = (cluster.at_ms - began_ms) // 60_000
            if kind != "idle":
                for number in range(partitions):
                    cluster.produce(number, 1000 + (cluster.at_ms * (number + 7)) % 97)
            if kind == "failing":
                down = minute % 3 + 1
                if cluster.alive != {1, 2, 3} - {down}:
                    fail_over(cluster, down)
            filled.sample()
        grown = filled.bytes - before
        days = (cluster.at_ms - began_ms) / DAY_MS
        each = grown / partitions / days
        print(
            f"{kind:8} sample every {every_ms / 1000:>4g} s: {each / 1e6:8.3f} MB a partition and"
            f" day; {filled.seconds / filled.samples * 1000:.2f} ms a sample"
        )
        filled.store.close()


def fail_over(cluster: FakeCluster, down: int) -> None:
    """Kill one broker and start the one that was down."""
    cluster.alive = {1, 2, 3} - {down}
    for each in cluster.partitions:
        isr = sorted(cluster.alive)
        leader = each.leader if each.leader in isr else isr[each.partition % len(isr)]
        for broker in isr:
            each.ends[broker] = max(each.ends.values())
        each.elect(leader, isr)
        each.epochs = each.epochs[-20:]


def full(partitions: int, samples: int, copies: int) -> None:
    """Print how long one moment takes to read from a week in which all partitions move.

    Some samples are recorded; copies of their rows between them fill the file as a week does.
    """
    with tempfile.TemporaryDirectory() as folder:
        filled = Filled(folder, partitions)
        cluster = filled.cluster
        gap_ms = 7 * DAY_MS // samples
        for _ in range(samples):
            cluster.tick(gap_ms)
            for number in range(partitions):
                cluster.produce(number, 100 + number % 7)
            filled.sample()
        writer = filled.store._writer  # noqa: SLF001
        assert writer is not None
        with writer:
            last_ms = cluster.at_ms
            for copy in range(1, copies):
                more = gap_ms * copy // copies
                writer.execute(
                    "INSERT INTO state SELECT partition, at_ms + ?1, shape, numbers FROM state"
                    " WHERE (at_ms - ?2) % ?3 = 0 AND at_ms < ?2",
                    (more, last_ms, gap_ms),
                )
                writer.execute(
                    "INSERT INTO sample SELECT at_ms + ?1 FROM sample"
                    " WHERE (at_ms - ?2) % ?3 = 0 AND at_ms < ?2",
                    (more, last_ms, gap_ms),
                )
        (rows,) = writer.execute("SELECT count(*) FROM state").fetchone()
        size = filled.bytes
        times = []
        for part in range(1, 20):
            at_ms = cluster.at_ms - 7 * DAY_MS * part // 21
            began = time.perf_counter()
            assert filled.store.state_at(at_ms) is not None
            times.append(time.perf_counter() - began)
        times.sort()
        print(
            f"{partitions} partitions, {rows:,} rows in a week, {size / 1e6:.0f} MB:"
            f" {filled.seconds / filled.samples * 1000:.0f} ms a sample;"
            f" state_at {times[9] * 1000:.0f} ms (median), {times[-1] * 1000:.0f} ms (longest)"
        )
        filled.store.close()


def main() -> None:
    """Print all rows."""
    if "--full" not in sys.argv:
        for kind in ("idle", "busy", "failing"):
            for every_ms in (5_000, 1_000):
                per_day(kind, every_ms, minutes=60)
    full(3_000, 40, 35)


if __name__ == "__main__":
    main()
