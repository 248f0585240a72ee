"""Consumer groups on one broker, each with one member; then one group with many members."""

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack

from scaling.laws import FLAT, LINEAR, Book
from scaling.rig import Brokers, Line, brokers

from tidelog.core.api_table import (
    DESCRIBE_GROUPS,
    HEARTBEAT,
    JOIN_GROUP,
    LIST_GROUPS,
    OFFSET_COMMIT,
    SYNC_GROUP,
)
from tidelog.core.wire.codec import Struct, decode_response, encode_request
from tidelog.shell.client.client_errors import ClientError
from tidelog.shell.client.cluster import Cluster
from tidelog.shell.client.groups.coordinator import find_coordinator

GROUPS, MEMBERS = "consumer groups", "members of a group"
SIZES = (10, 40, 160, 640, 2560)
QUICK = (10, 100, 1000)
MEMBER_SIZES = (10, 30, 100, 300)
TOPIC = "orders"
JOIN_VERSION, SYNC_VERSION, COMMIT_VERSION = 3, 2, 7
LIST_VERSION, DESCRIBE_VERSION, HEARTBEAT_VERSION = 3, 4, 2
TIMEOUT_MS = 120_000
REQUESTS = 600
GENERATIONS = 4
PATIENCE_S = 60.0
AT_ONCE = {"group.initial.rebalance.delay.ms": "0", "group.max.session.timeout.ms": "300000"}


def measure(book: Book, sizes: tuple[int, ...]) -> None:
    for size in sizes:
        with brokers(1, AT_ONCE) as cluster:
            cluster.create(TOPIC, 1)
            _some_groups(book, cluster, size)
    with brokers(1, AT_ONCE) as cluster:
        cluster.create(TOPIC, 1)
        for size in MEMBER_SIZES:
            _one_group(book, cluster, size)


class Member:
    """A member of one group, on a connection that other members may share."""

    def __init__(self, line: Line, group: str) -> None:
        self.line = line
        self.group = group
        self.id = ""
        self.joined: Struct = {}

    def join(self, generation: int) -> bytes:
        """Encode JoinGroup with new metadata, so that the first such request starts a rebalance."""
        body = {
            "group_id": self.group,
            "session_timeout_ms": TIMEOUT_MS,
            "rebalance_timeout_ms": TIMEOUT_MS,
            "member_id": self.id,
            "protocol_type": "consumer",
            "protocols": [{"name": "range", "metadata": bytes(20) + generation.to_bytes(4)}],
        }
        return encode_request(JOIN_GROUP, JOIN_VERSION, 1, "bench", body)

    def has_joined(self) -> None:
        self.joined = good(decode_response(JOIN_GROUP, JOIN_VERSION, self.line.take())[1])
        self.id = self.joined["member_id"]

    def sync(self) -> bytes:
        listed = [
            {"member_id": one["member_id"], "assignment": bytes(30)}
            for one in self.joined["members"]
        ]
        body = {**self.place(), "assignments": listed}
        return encode_request(SYNC_GROUP, SYNC_VERSION, 1, "bench", body)

    def has_synced(self) -> None:
        good(decode_response(SYNC_GROUP, SYNC_VERSION, self.line.take())[1])

    def place(self) -> Struct:
        generation = self.joined["generation_id"]
        return {"group_id": self.group, "generation_id": generation, "member_id": self.id}

    def heartbeat(self) -> bytes:
        return encode_request(HEARTBEAT, HEARTBEAT_VERSION, 1, "bench", self.place())

    def commit(self, offset: int) -> bytes:
        part = {"partition_index": 0, "committed_offset": offset, "committed_metadata": ""}
        body = {
            **self.place(),
            "generation_id_or_member_epoch": self.joined["generation_id"],
            "topics": [{"name": TOPIC, "partitions": [part]}],
        }
        return encode_request(OFFSET_COMMIT, COMMIT_VERSION, 1, "bench", body)


def good(answer: Struct) -> Struct:
    if answer.get("error_code"):
        raise SystemExit(f"a group's request was refused: {answer['error_code']}")
    return answer


def _ready(cluster: Brokers) -> None:
    """Wait for a coordinator; the first request creates the topic of offsets."""
    until = time.monotonic() + PATIENCE_S
    with Cluster(cluster.cluster.bootstrap) as client:
        while time.monotonic() < until:
            try:
                find_coordinator(client, "any")
            except ClientError:
                time.sleep(0.05)
            else:
                return
    raise SystemExit("there is no coordinator")


def _some_groups(book: Book, cluster: Brokers, size: int) -> None:
    def note(name: str, cost: float, unit: str, may_be: str) -> None:
        book.note(GROUPS, name, size, cost, unit, may_be)

    _ready(cluster)
    with cluster.line() as line:
        before = cluster.rss_mb()
        members = [Member(line, f"group-{number:05}") for number in range(size)]
        spent = cluster.spend(lambda: _settle(members))
        note("begin: join, sync, first commit, CPU for each", spent.cpu_s / size * 1e6, "µs", FLAT)
        note("memory", cluster.rss_mb() - before, "MB", LINEAR)
        turns = [members[at % size] for at in range(REQUESTS)]
        for name, frames in (
            ("commit, CPU", [member.commit(1) for member in turns]),
            ("heartbeat, CPU", [member.heartbeat() for member in turns]),
        ):
            spent = cluster.least(lambda: line.pipeline(frames))  # noqa: B023
            note(name, spent.cpu_s / REQUESTS * 1e6, "µs", FLAT)
        time.sleep(0.5)
        note("idle, CPU a second", cluster.idle(2.0) * 1e3, "ms", LINEAR)
        names = [member.group for member in members]
        _asked(note, cluster, line, names)
    cluster.cluster.kill(1)
    began = time.perf_counter()
    cluster.cluster.start_broker(1)
    _loaded(cluster, names)
    note(
        "start after kill -9 until all are told", (time.perf_counter() - began) * 1e3, "ms", LINEAR
    )


def _settle(members: Sequence[Member]) -> None:
    for member in members:
        member.line.socket.sendall(member.join(1))
        member.has_joined()
        member.line.socket.sendall(member.sync())
        member.has_synced()
        member.line.ask(member.commit(0))


def _asked(
    note: Callable[[str, float, str, str], None], cluster: Brokers, line: Line, names: list[str]
) -> None:
    listing = encode_request(LIST_GROUPS, LIST_VERSION, 1, "bench", {})
    listed = decode_response(LIST_GROUPS, LIST_VERSION, line.ask(listing))[1]["groups"]
    assert len(listed) == len(names), "groups are missing"
    body = {"groups": names, "include_authorized_operations": False}
    description = encode_request(DESCRIBE_GROUPS, DESCRIBE_VERSION, 1, "bench", body)
    for name, frame in (("list, CPU", listing), ("describe all, CPU", description)):
        line.ask(frame)
        spent = cluster.least(lambda: line.pipeline([frame] * 5, 1))  # noqa: B023
        note(name, spent.cpu_s / 5 * 1e6, "µs", LINEAR)


def _loaded(cluster: Brokers, names: Sequence[str]) -> None:
    until = time.monotonic() + PATIENCE_S
    with cluster.line() as line:
        while time.monotonic() < until:
            answer = line.call(LIST_GROUPS, LIST_VERSION, {})
            if not answer["error_code"] and len(answer["groups"]) == len(names):
                return
            time.sleep(0.005)
    raise SystemExit("groups are missing after a restart")


def _one_group(book: Book, cluster: Brokers, size: int) -> None:
    """Measure generations of one group: all members join again and sync."""
    _ready(cluster)
    with ExitStack() as open_lines:
        members = [
            Member(open_lines.enter_context(cluster.line()), f"crew-{size}") for _ in range(size)
        ]
        first, others = members[0], members[1:]
        first.line.socket.sendall(first.join(0))
        first.has_joined()
        for member in others:
            member.line.socket.sendall(member.join(0))
        time.sleep(0.3)  # the first must join last, or it gets a response alone
        first.line.socket.sendall(first.join(1))
        for member in members:
            member.has_joined()
        _all_sync(members)
        cost = []
        for number in range(GENERATIONS):
            spent = cluster.spend(lambda: _generation(members, number + 2))  # noqa: B023
            cost.append(spent)
        best = min(cost, key=lambda spent: spent.cpu_s)
        book.note(MEMBERS, "rebalance, CPU", size, best.cpu_s * 1e3, "ms", LINEAR)
        book.note(MEMBERS, "rebalance", size, min(c.wall_s for c in cost) * 1e3, "ms", LINEAR)


def _generation(members: Sequence[Member], number: int) -> None:
    for member in members:
        member.line.socket.sendall(member.join(number))
    for member in members:
        member.has_joined()
    _all_sync(members)


def _all_sync(members: Sequence[Member]) -> None:
    for member in members:
        member.line.socket.sendall(member.sync())
    for member in members:
        member.has_synced()
