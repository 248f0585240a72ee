"""Real brokers, clients that use little CPU, and the CPU that the brokers use.

Requests are encoded beforehand and sent as bytes. Responses are counted, and the first of each kind
is decoded. CPU is read from the brokers' own CPU clocks, in nanoseconds: it is nearly the same on a
busy machine as on an idle one.
"""

import os
import selectors
import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from struct import Struct
from tempfile import TemporaryDirectory

from processes import rss_mb

from tidelog.core.api_table import FETCH, PRODUCE
from tidelog.core.record.encoder import NO_PRODUCER, Producer, encode_batch
from tidelog.core.record.record import Record
from tidelog.core.wire.codec import Struct as Body
from tidelog.core.wire.codec import decode_response, encode_request
from tidelog.shell.client.admin import await_leaders
from tidelog.shell.client.administration.topics import NewTopic, create_topics
from tidelog.shell.client.cluster import Cluster
from tidelog.shell.supervisor.cluster import LocalCluster

PATIENCE_S = 60.0
WINDOW = 8
"""Requests in flight when many are sent on one connection."""
RECEIVE_BYTES = 1 << 20
PRODUCE_VERSION, FETCH_VERSION = 9, 12
MEMORY_DISK = Path("/dev/shm")
FREE_BYTES_MIN = 8_000_000_000
QUIET = {"auto.create.topics.enable": "false"}
_LENGTH = Struct(">I")


def cpu_clock(pid: int) -> int:
    """Return the id of another process's CPU clock, as Linux numbers them."""
    return (~pid << 3) | 2


class Cost:
    """The brokers' CPU seconds and the wall-clock seconds of a piece of work."""

    def __init__(self, pids: Sequence[int]) -> None:
        self._clocks = [cpu_clock(pid) for pid in pids]
        self._cpu, self._wall = self._used(), time.perf_counter()
        self.cpu_s = self.wall_s = 0.0

    def _used(self) -> float:
        return sum(map(time.clock_gettime, self._clocks))

    def stop(self) -> "Cost":
        self.wall_s = time.perf_counter() - self._wall
        self.cpu_s = self._used() - self._cpu
        return self


class Brokers:
    """A cluster, and its use of CPU and memory."""

    def __init__(self, cluster: LocalCluster) -> None:
        self.cluster = cluster

    @property
    def pids(self) -> list[int]:
        return [self.cluster.pid(each) for each in self.cluster.ids]

    @property
    def clocks(self) -> list[int]:
        """The ids of the brokers' CPU clocks; each clock starts at 0 with its process."""
        return list(map(cpu_clock, self.pids))

    def measure(self, work: Callable[[], object]) -> Cost:
        spent = Cost(self.pids)
        work()
        return spent.stop()

    def least_cpu(self, work: Callable[[], object], times: int = 5) -> Cost:
        """Repeat the work; return the round with the least CPU."""
        return min((self.measure(work) for _ in range(times)), key=lambda spent: spent.cpu_s)

    def rss_mb(self) -> float:
        return sum(map(rss_mb, self.pids))

    def idle(self, seconds: float) -> float:
        """Return the CPU seconds a second of all brokers while no client sends requests."""
        spent = self.measure(lambda: time.sleep(seconds))
        return spent.cpu_s / spent.wall_s

    def create(
        self,
        name: str,
        partitions: int = 1,
        replicas: Sequence[int] = (1,),
        configs: Mapping[str, str] | None = None,
    ) -> None:
        """Create a topic whose partitions all have these replicas, the first one as leader."""
        with Cluster(self.cluster.bootstrap, timeout_s=PATIENCE_S) as client:
            assigned = [list(replicas)] * partitions
            [(made, _, _)] = create_topics(
                client, [NewTopic(name, -1, -1, assigned, configs or {})]
            )
            if made.error:
                raise SystemExit(f"cannot create topic {name}: {made.error} {made.message}")
            await_leaders(client, name)
        self._await_serving(name, partitions, replicas[0])

    def _await_serving(self, topic: str, partitions: int, leader: int) -> None:
        """Wait until the leader serves all partitions: metadata lists them a moment earlier."""
        deadline = time.monotonic() + PATIENCE_S
        request = fetch(topic, dict.fromkeys(range(partitions), 0), max_bytes=1)
        with self.connect(leader) as connection:
            while time.monotonic() < deadline:
                body = decode_response(FETCH, FETCH_VERSION, connection.request(request))[1]
                if not any(p["error_code"] for t in body["responses"] for p in t["partitions"]):
                    return
                time.sleep(0.02)
        raise SystemExit(f"topic {topic}: a partition is not served within {PATIENCE_S:g} s")

    def connect(self, broker: int = 1) -> "Connection":
        return Connection(self.cluster.port(broker))


@contextmanager
def brokers(count: int = 1, settings: Mapping[str, str] | None = None) -> Iterator[Brokers]:
    """Start fresh brokers, with their files in memory where possible.

    The time that a file system needs for a thousand new folders depends on what was deleted there a
    minute ago. The topic of group offsets has at most as many replicas as there are brokers.
    """
    folder = MEMORY_DISK if MEMORY_DISK.is_dir() and _free(MEMORY_DISK) > FREE_BYTES_MIN else None
    wanted = {**QUIET, **(settings or {})}
    with (
        TemporaryDirectory(prefix="tidelog-scaling-", dir=folder) as data,
        LocalCluster(brokers=count, data=data, settings=wanted) as cluster,
    ):
        yield Brokers(cluster)


def _free(folder: Path) -> int:
    found = os.statvfs(folder)
    return found.f_bavail * found.f_frsize


class Connection:
    """One connection that sends bytes and counts responses."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), PATIENCE_S)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._received = bytearray()

    def __enter__(self) -> "Connection":
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def request(self, frame: bytes) -> bytes:
        """Send one request; return its response without the length."""
        self.socket.sendall(frame)
        return self.receive()

    def call(self, api: int, version: int, body: Body) -> Body:
        """Send one request; return its decoded response."""
        frame = encode_request(api, version, 1, "bench", body)
        return decode_response(api, version, self.request(frame))[1]

    def receive(self) -> bytes:
        """Return the next response."""
        while (answer := self._complete_response()) is None:
            got = self.socket.recv(RECEIVE_BYTES)
            if not got:
                raise SystemExit("a broker closed the connection")
            self._received += got
        return answer

    def _complete_response(self) -> bytes | None:
        received = self._received
        if len(received) < _LENGTH.size:
            return None
        end = _LENGTH.size + _LENGTH.unpack_from(received)[0]
        if len(received) < end:
            return None
        answer = bytes(received[_LENGTH.size : end])
        del received[:end]
        return answer

    def pipeline(self, frames: Sequence[bytes], window: int = WINDOW) -> None:
        """Send all frames, with about `window` in flight; wait for all responses."""
        for number, frame in enumerate(frames):
            self.socket.sendall(frame)
            if number >= window:
                self.receive()
        for _ in range(min(window, len(frames))):
            self.receive()


def all_at_once(connections: Sequence[Connection], frames: Sequence[bytes], rounds: int) -> None:
    """Send each connection its frame `rounds` times, with one request in flight on each."""
    left = dict.fromkeys(connections, rounds)
    with selectors.DefaultSelector() as selector:
        for connection, frame in zip(connections, frames, strict=True):
            selector.register(connection.socket, selectors.EVENT_READ, (connection, frame))
            connection.socket.sendall(frame)
        while left:
            ready = selector.select(PATIENCE_S)
            if not ready:
                raise SystemExit(f"{len(left)} connections got no response within {PATIENCE_S:g} s")
            for key, _ in ready:
                connection, frame = key.data
                connection.receive()
                left[connection] -= 1
                if left[connection]:
                    connection.socket.sendall(frame)
                else:
                    del left[connection]
                    selector.unregister(connection.socket)


# -- frames ----------------------------------------------------------------------------------


def batch(
    records: int = 1, value: int = 100, producer: Producer = NO_PRODUCER, timestamp: int = 0
) -> bytes:
    stamp = timestamp or time.time_ns() // 1_000_000
    return bytes(
        encode_batch([Record(None, bytes(value), stamp) for _ in range(records)], producer=producer)
    )


def produce(topic: str, batches: Mapping[int, bytes], acks: int = 1) -> bytes:
    """Encode a Produce request with one batch for each of these partitions."""
    listed = [{"index": index, "records": records} for index, records in batches.items()]
    body = {
        "transactional_id": None,
        "acks": acks,
        "timeout_ms": 30_000,
        "topic_data": [{"name": topic, "partition_data": listed}],
    }
    return encode_request(PRODUCE, PRODUCE_VERSION, 1, "bench", body)


def fetch(
    topic: str,
    offsets: Mapping[int, int],
    *,
    session: tuple[int, int] = (0, -1),
    max_bytes: int = 1 << 20,
    max_wait_ms: int = 0,
) -> bytes:
    """Encode a Fetch from these offsets.

    `session` is its id and epoch; epoch -1 means no session.
    """
    listed = [
        {
            "partition": index,
            "current_leader_epoch": -1,
            "fetch_offset": offset,
            "last_fetched_epoch": -1,
            "log_start_offset": -1,
            "partition_max_bytes": max_bytes,
        }
        for index, offset in offsets.items()
    ]
    body = {
        "replica_id": -1,
        "max_wait_ms": max_wait_ms,
        "min_bytes": 1,
        "max_bytes": max_bytes,
        "isolation_level": 0,
        "session_id": session[0],
        "session_epoch": session[1],
        "topics": [{"topic": topic, "partitions": listed}] if listed else [],
        "forgotten_topics_data": [],
        "rack_id": "",
    }
    return encode_request(FETCH, FETCH_VERSION, 1, "bench", body)


def check_produced(answer: bytes) -> None:
    """Raise SystemExit if any partition of a Produce failed."""
    body = decode_response(PRODUCE, PRODUCE_VERSION, answer)[1]
    codes = {
        part["error_code"] for topic in body["responses"] for part in topic["partition_responses"]
    }
    if codes != {0}:
        raise SystemExit(f"a Produce request failed: error codes {sorted(codes)}")


def decode_fetch(answer: bytes) -> Body:
    """Decode a Fetch response; raise SystemExit if it has an error."""
    body = decode_response(FETCH, FETCH_VERSION, answer)[1]
    codes = {p["error_code"] for topic in body["responses"] for p in topic["partitions"]}
    if body["error_code"] or codes - {0}:
        raise SystemExit(f"a Fetch request failed: {body['error_code']} {sorted(codes)}")
    return body
