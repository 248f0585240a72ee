"""Segments of one partition: each has a single small batch, so that thousands need little disk."""

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

from tidelog.core.api_table import LIST_OFFSETS
from tidelog.core.wire.codec import decode_response, encode_request

AXIS = "segments"
SIZES = (10, 40, 160, 640, 2560)
QUICK = (10, 100, 1000)
TOPIC = "old"
SEGMENT_BYTES = 200
START_MS = 1_700_000_000_000
STEP_MS = 1000
LIST_OFFSETS_VERSION = 7
MAX_TIMESTAMP = -3
DELETE_RECORDS = 21
REQUESTS = 500
RETENTION_CHECK_MS = 50


def measure(results: Results, sizes: tuple[int, ...]) -> None:
    settings = {"log.retention.check.interval.ms": str(RETENTION_CHECK_MS)}
    for size in sizes:
        with brokers(1, settings) as cluster:
            configs = {"retention.ms": "-1", "retention.bytes": str(1 << 40)}
            cluster.create(TOPIC, 1, (1,), {**configs, "segment.bytes": str(SEGMENT_BYTES)})
            cluster.create("empty", 1)
            _OneSize(results, cluster, size).run()


def stamped(at: int) -> bytes:
    return produce(TOPIC, {0: batch(value=100, timestamp=START_MS + at * STEP_MS)})


class _OneSize:
    """All costs with `size` segments."""

    def __init__(self, results: Results, cluster: Brokers, size: int) -> None:
        self.results = results
        self.brokers = cluster
        self.size = size

    def add(self, name: str, cost: float, unit: str, bound: str) -> None:
        self.results.add(AXIS, name, self.size, cost, unit, bound)

    def run(self) -> None:
        with self.brokers.connect() as connection:
            check_produced(connection.request(stamped(0)))
            before = self.brokers.rss_mb()
            connection.pipeline([stamped(at) for at in range(1, self.size)])
            self.add("memory", self.brokers.rss_mb() - before, "MB", LINEAR)
            self.readers(connection)
        idle = self.brokers.idle(2.0) * RETENTION_CHECK_MS / 1000
        self.add("retention check and rest, CPU", idle * 1e6, "µs", LINEAR)
        self.starts()
        with self.brokers.connect() as connection:
            more = [stamped(self.size + at) for at in range(50)]
            spent = self.brokers.measure(lambda: connection.pipeline(more))
            self.add("roll, CPU for each", spent.cpu_s / 50 * 1e6, "µs", FLAT)
            self.drop(connection)

    def readers(self, connection: Connection) -> None:
        for name, at in (("old", self.size // 2), ("last", self.size - 1)):
            frame = fetch(TOPIC, {0: at})
            found = decode_fetch(connection.request(frame))["responses"][0]["partitions"][0]
            assert found["records"], f"nothing at offset {at}"
            spent = self.brokers.least_cpu(lambda: connection.pipeline([frame] * REQUESTS))  # noqa: B023
            self.add(f"fetch of the {name} record, CPU", spent.cpu_s / REQUESTS * 1e6, "µs", FLAT)
        last = self.size - 1
        for name, stamp, expected in (
            ("first", START_MS, 0),
            ("last", START_MS + last * STEP_MS, last),
            ("largest", MAX_TIMESTAMP, last),
        ):
            frame = self.list_offsets(stamp)
            answer = decode_response(LIST_OFFSETS, LIST_OFFSETS_VERSION, connection.request(frame))[
                1
            ]
            found = answer["topics"][0]["partitions"][0]
            assert found["offset"] == expected, f"{found} is not at {expected}"
            spent = self.brokers.least_cpu(lambda: connection.pipeline([frame] * 200))  # noqa: B023
            bound = LINEAR if stamp == MAX_TIMESTAMP else FLAT
            self.add(f"ListOffsets, {name} time, CPU", spent.cpu_s / 200 * 1e6, "µs", bound)

    def list_offsets(self, stamp: int) -> bytes:
        part = {"partition_index": 0, "current_leader_epoch": -1, "timestamp": stamp}
        body = {
            "replica_id": -1,
            "isolation_level": 0,
            "topics": [{"name": TOPIC, "partitions": [part]}],
        }
        return encode_request(LIST_OFFSETS, LIST_OFFSETS_VERSION, 1, "bench", body)

    def starts(self) -> None:
        """Measure starts of the broker until it serves the log again."""
        cluster = self.brokers.cluster
        cluster.stop(1)
        self.started("clean stop")
        cluster.kill(1)
        self.started("kill -9")

    def started(self, after: str) -> None:
        began = time.perf_counter()
        self.brokers.cluster.start_broker(1)
        took = time.perf_counter() - began
        cpu_s = time.clock_gettime(self.brokers.clocks[0])
        self.add(f"start after {after}, CPU", cpu_s * 1e3, "ms", LINEAR)
        self.add(f"start after {after}", took * 1e3, "ms", LINEAR)

    def drop(self, connection: Connection) -> None:
        """Delete all but the last 50 records with DeleteRecords."""
        part = {"partition_index": 0, "offset": self.size}
        body = {"topics": [{"name": TOPIC, "partitions": [part]}], "timeout_ms": 30_000}
        spent = self.brokers.measure(lambda: connection.call(DELETE_RECORDS, 1, body))
        self.add("drop all but 50, CPU", spent.cpu_s * 1e3, "ms", LINEAR)
