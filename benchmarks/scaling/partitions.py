"""Partitions: two brokers, each partition led by the first and followed by the second."""

import time

from scaling.laws import FLAT, LINEAR, Book
from scaling.rig import Brokers, Line, batch, brokers, fetch, fetched, produce, produced_well

from tidelog.core.api_table import METADATA
from tidelog.core.wire.codec import encode_request
from tidelog.shell.client.cluster import Cluster

AXIS = "partitions"
SIZES = (10, 30, 100, 300, 1000, 3000)
QUICK = (10, 100, 1000)
TOPIC, SMALL = "many", "one"
METADATA_VERSION = 9
REQUESTS = 300
IDLE_S = 4.0
PATIENCE_S = 120.0


def measure(book: Book, sizes: tuple[int, ...]) -> None:
    for size in sizes:
        with brokers(2) as cluster:
            _OneSize(book, cluster, size).run()


class _OneSize:
    """All costs with `size` partitions."""

    def __init__(self, book: Book, cluster: Brokers, size: int) -> None:
        self.book = book
        self.brokers = cluster
        self.size = size

    def note(self, name: str, cost: float, unit: str, may_be: str) -> None:
        self.book.note(AXIS, name, self.size, cost, unit, may_be)

    def run(self) -> None:
        before = self.brokers.rss_mb()
        spent = self.brokers.spend(self.create)
        self.note("create them all, CPU", spent.cpu_s * 1e3, "ms", LINEAR)
        self.note("memory, both brokers", self.brokers.rss_mb() - before, "MB", LINEAR)
        self.brokers.create(SMALL, 1, (1, 2))
        with self.brokers.line() as line:
            self.metadata(line)
            self.produces(line)
            self.consumer(line)
        time.sleep(1)
        self.note("idle, CPU a second", self.brokers.idle(IDLE_S) * 1e3, "ms", LINEAR)
        self.restarts()

    def create(self) -> None:
        self.brokers.create(TOPIC, self.size, (1, 2))
        self.wait_in_sync()

    def wait_in_sync(self) -> None:
        until = time.monotonic() + PATIENCE_S
        while time.monotonic() < until:
            with Cluster(self.brokers.cluster.bootstrap, timeout_s=PATIENCE_S) as client:
                found = client.refresh([TOPIC]).topics[TOPIC].partitions.values()
                if len(found) == self.size and all(len(each.isr) == 2 for each in found):
                    return
            time.sleep(0.2)
        raise SystemExit(f"{self.size} partitions were never in sync")

    def metadata(self, line: Line) -> None:
        """Measure Metadata of all topics, cached and not cached; then of a topic with one
        partition.

        The broker caches responses by the content of the request, so a request with other flags is
        not cached yet.
        """
        same = self.question(None, 0)
        line.ask(same)
        spent = self.brokers.least(lambda: line.pipeline([same] * REQUESTS))
        self.note("Metadata of all again, CPU", spent.cpu_s / REQUESTS * 1e6, "µs", LINEAR)
        wordings = iter([self.question(None, number) for number in range(1, 8)])
        spent = self.brokers.least(lambda: line.ask(next(wordings)), 7)
        self.note("Metadata of all, made anew, CPU", spent.cpu_s * 1e6, "µs", LINEAR)
        other = self.question([{"name": SMALL}], 0)
        spent = self.brokers.least(lambda: line.pipeline([other] * REQUESTS))
        self.note("Metadata of another topic, CPU", spent.cpu_s / REQUESTS * 1e6, "µs", FLAT)

    def question(self, topics: list[dict[str, str]] | None, wording: int) -> bytes:
        body = {
            "topics": topics,
            "allow_auto_topic_creation": bool(wording & 1),
            "include_cluster_authorized_operations": bool(wording & 2),
            "include_topic_authorized_operations": bool(wording & 4),
        }
        return encode_request(METADATA, METADATA_VERSION, 1, "bench", body)

    def produces(self, line: Line) -> None:
        """Measure Produce to one partition, to each in turn, and to all in one request.

        The second broker follows all partitions in one fetch session, and its CPU counts.
        """
        records = batch()
        one = [produce(TOPIC, {0: records})] * REQUESTS
        produced_well(line.ask(one[0]))
        spent = self.brokers.least(lambda: line.pipeline(one))
        self.note("produce to one of them, CPU a request", spent.cpu_s / REQUESTS * 1e6, "µs", FLAT)
        count = max(REQUESTS, self.size)
        turns = [produce(TOPIC, {at % self.size: records}) for at in range(count)]
        line.pipeline(turns)
        spent = self.brokers.least(lambda: line.pipeline(turns), 2)
        self.note("produce to each in turn, CPU a request", spent.cpu_s / count * 1e6, "µs", FLAT)
        everywhere = produce(TOPIC, dict.fromkeys(range(self.size), records))
        produced_well(line.ask(everywhere))
        rounds = max(2, 600 // self.size)
        spent = self.brokers.least(lambda: line.pipeline([everywhere] * rounds, 1))
        per_batch = spent.cpu_s / rounds / self.size * 1e6
        self.note("produce to all in one request, CPU a batch", per_batch, "µs", FLAT)

    def consumer(self, line: Line) -> None:
        """Measure fetches with a session on all partitions, and fetches without a session.

        In the session, only one partition gets records.
        """
        record = produce(TOPIC, {0: batch()})
        everywhere = dict.fromkeys(range(self.size), batch())
        produced_well(line.ask(produce(TOPIC, everywhere, acks=-1)))  # commits all of them
        with self.brokers.line() as reader:
            ends = self.ends(reader)
            body = fetched(reader.ask(fetch(TOPIC, ends, session=(0, 0))))
            session, epoch = body["session_id"], 1
            assert session, "the broker opened no session"

            def rounds() -> None:
                nonlocal epoch
                for _ in range(100):
                    produced_well(line.ask(record))
                    said = fetch(TOPIC, {0: ends[0]}, session=(session, epoch), max_wait_ms=1000)
                    found = fetched(reader.ask(said))["responses"][0]["partitions"]
                    assert len(found) == 1, "only one partition had news"
                    ends[0] += 1
                    epoch += 1

            spent = self.brokers.least(rounds)
            name = "one record for a session on all, CPU"
            self.note(name, spent.cpu_s / 100 * 1e6, "µs", FLAT)
            whole = fetch(TOPIC, ends)
            times = max(5, 3000 // self.size)
            spent = self.brokers.least(lambda: reader.pipeline([whole] * times, 1))
            self.note(
                "fetch of all without a session, CPU", spent.cpu_s / times * 1e6, "µs", LINEAR
            )

    def ends(self, reader: Line) -> dict[int, int]:
        """Return the high watermark of each partition, from a fetch with a limit of one byte."""
        asked = fetched(reader.ask(fetch(TOPIC, dict.fromkeys(range(self.size), 0), max_bytes=1)))
        found = asked["responses"][0]["partitions"]
        return {one["partition_index"]: one["high_watermark"] for one in found}

    def restarts(self) -> None:
        """Measure from exec of both brokers until all replicas are in sync."""
        cluster = self.brokers.cluster
        for broker in cluster.ids:
            cluster.stop(broker, timeout_s=PATIENCE_S)
        self.started("clean stop")
        for broker in cluster.ids:
            cluster.kill(broker)
        self.started("kill -9")
        for broker in cluster.ids:
            cluster.kill(broker)

    def started(self, after: str) -> None:
        cluster = self.brokers.cluster
        began = time.perf_counter()
        for broker in cluster.ids:
            cluster.start_broker(broker, wait=False)
        cluster.wait_ready(PATIENCE_S)
        self.wait_in_sync()
        took = time.perf_counter() - began
        burned = sum(time.clock_gettime(clock) for clock in self.brokers.clocks)
        self.note(f"start after {after}, CPU", burned * 1e3, "ms", LINEAR)
        self.note(f"start after {after} until in sync", took * 1e3, "ms", LINEAR)
