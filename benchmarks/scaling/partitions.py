"""Partitions: two brokers, each partition led by the first and followed by the second."""

import time

from scaling.laws import FLAT, LINEAR, Results
from scaling.rig import (
    Brokers,
    Connection,
    batch,
    brokers,
    check_produced,
    decode_fetch,
    fetch,
    produce,
)

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


def measure(results: Results, sizes: tuple[int, ...]) -> None:
    for size in sizes:
        with brokers(2) as cluster:
            _OneSize(results, cluster, size).run()


class _OneSize:
    """All costs with `size` partitions."""

    def __init__(self, results: Results, cluster: Brokers, size: int) -> None:
        self.results = results
        self.brokers = cluster
        self.size = size

    def add(self, name: str, cost: float, unit: str, bound: str) -> None:
        self.results.add(AXIS, name, self.size, cost, unit, bound)

    def run(self) -> None:
        before = self.brokers.rss_mb()
        spent = self.brokers.measure(self.create)
        self.add("create them all, CPU", spent.cpu_s * 1e3, "ms", LINEAR)
        self.add("memory, both brokers", self.brokers.rss_mb() - before, "MB", LINEAR)
        self.brokers.create(SMALL, 1, (1, 2))
        with self.brokers.connect() as connection:
            self.metadata(connection)
            self.produces(connection)
            self.consumer(connection)
        time.sleep(1)
        self.add("idle, CPU a second", self.brokers.idle(IDLE_S) * 1e3, "ms", LINEAR)
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
        raise SystemExit(f"{self.size} partitions are not in sync within {PATIENCE_S:g} s")

    def metadata(self, connection: Connection) -> None:
        """Measure Metadata of all topics, cached and not cached; then of a topic with one
        partition.

        The broker caches responses by the content of the request, so a request with other flags is
        not cached yet.
        """
        same = self.metadata_request(None, 0)
        connection.request(same)
        spent = self.brokers.least_cpu(lambda: connection.pipeline([same] * REQUESTS))
        self.add("Metadata of all again, CPU", spent.cpu_s / REQUESTS * 1e6, "µs", LINEAR)
        variants = iter([self.metadata_request(None, number) for number in range(1, 8)])
        spent = self.brokers.least_cpu(lambda: connection.request(next(variants)), 7)
        self.add("Metadata of all, not cached, CPU", spent.cpu_s * 1e6, "µs", LINEAR)
        other = self.metadata_request([{"name": SMALL}], 0)
        spent = self.brokers.least_cpu(lambda: connection.pipeline([other] * REQUESTS))
        self.add("Metadata of another topic, CPU", spent.cpu_s / REQUESTS * 1e6, "µs", FLAT)

    def metadata_request(self, topics: list[dict[str, str]] | None, variant: int) -> bytes:
        body = {
            "topics": topics,
            "allow_auto_topic_creation": bool(variant & 1),
            "include_cluster_authorized_operations": bool(variant & 2),
            "include_topic_authorized_operations": bool(variant & 4),
        }
        return encode_request(METADATA, METADATA_VERSION, 1, "bench", body)

    def produces(self, connection: Connection) -> None:
        """Measure Produce to one partition, to each in turn, and to all in one request.

        The second broker follows all partitions in one fetch session, and its CPU counts.
        """
        records = batch()
        one = [produce(TOPIC, {0: records})] * REQUESTS
        check_produced(connection.request(one[0]))
        spent = self.brokers.least_cpu(lambda: connection.pipeline(one))
        self.add("produce to one of them, CPU a request", spent.cpu_s / REQUESTS * 1e6, "µs", FLAT)
        count = max(REQUESTS, self.size)
        turns = [produce(TOPIC, {at % self.size: records}) for at in range(count)]
        connection.pipeline(turns)
        spent = self.brokers.least_cpu(lambda: connection.pipeline(turns), 2)
        self.add("produce to each in turn, CPU a request", spent.cpu_s / count * 1e6, "µs", FLAT)
        to_all = produce(TOPIC, dict.fromkeys(range(self.size), records))
        check_produced(connection.request(to_all))
        rounds = max(2, 600 // self.size)
        spent = self.brokers.least_cpu(lambda: connection.pipeline([to_all] * rounds, 1))
        per_batch = spent.cpu_s / rounds / self.size * 1e6
        self.add("produce to all in one request, CPU a batch", per_batch, "µs", FLAT)

    def consumer(self, connection: Connection) -> None:
        """Measure fetches with a session on all partitions, and fetches without a session.

        In the session, only one partition gets records.
        """
        record = produce(TOPIC, {0: batch()})
        to_all = dict.fromkeys(range(self.size), batch())
        check_produced(connection.request(produce(TOPIC, to_all, acks=-1)))  # commits all of them
        with self.brokers.connect() as reader:
            ends = self.ends(reader)
            body = decode_fetch(reader.request(fetch(TOPIC, ends, session=(0, 0))))
            session, epoch = body["session_id"], 1
            assert session, "the broker opened no session"

            def rounds() -> None:
                nonlocal epoch
                for _ in range(100):
                    check_produced(connection.request(record))
                    request = fetch(TOPIC, {0: ends[0]}, session=(session, epoch), max_wait_ms=1000)
                    found = decode_fetch(reader.request(request))["responses"][0]["partitions"]
                    assert len(found) == 1, "only one partition has new records"
                    ends[0] += 1
                    epoch += 1

            spent = self.brokers.least_cpu(rounds)
            name = "one record for a session on all, CPU"
            self.add(name, spent.cpu_s / 100 * 1e6, "µs", FLAT)
            whole = fetch(TOPIC, ends)
            times = max(5, 3000 // self.size)
            spent = self.brokers.least_cpu(lambda: reader.pipeline([whole] * times, 1))
            self.add("fetch of all without a session, CPU", spent.cpu_s / times * 1e6, "µs", LINEAR)

    def ends(self, reader: Connection) -> dict[int, int]:
        """Return the high watermark of each partition, from a fetch with a limit of one byte."""
        response = decode_fetch(
            reader.request(fetch(TOPIC, dict.fromkeys(range(self.size), 0), max_bytes=1))
        )
        found = response["responses"][0]["partitions"]
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
        cpu_s = sum(time.clock_gettime(clock) for clock in self.brokers.clocks)
        self.add(f"start after {after}, CPU", cpu_s * 1e3, "ms", LINEAR)
        self.add(f"start after {after} until in sync", took * 1e3, "ms", LINEAR)
