"""Consumer groups on one broker, each with one member; then one group with many members."""

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack

from scaling.laws import FLAT, LINEAR, Results
from scaling.rig import Brokers, Connection, brokers

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
from tidelog.shell.client.groups.group_admin import find_coordinator

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
GROUPS_ASKED = 1_000
"""Enough names that each of the 50 partitions of offsets has some."""
AT_ONCE = {"group.initial.rebalance.delay.ms": "0", "group.max.session.timeout.ms": "300000"}


def measure(results: Results, sizes: tuple[int, ...]) -> None:
    for size in sizes:
        with brokers(1, AT_ONCE) as cluster:
            cluster.create(TOPIC, 1)
            _some_groups(results, cluster, size)
    with brokers(1, AT_ONCE) as cluster:
        cluster.create(TOPIC, 1)
        for size in MEMBER_SIZES:
            _one_group(results, cluster, size)


class Member:
    """A member of one group, on a connection that other members may share."""

    def __init__(self, connection: Connection, group: str) -> None:
        self.connection = connection
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

    def receive_joined(self) -> None:
        self.joined = check_error(
            decode_response(JOIN_GROUP, JOIN_VERSION, self.connection.receive())[1]
        )
        self.id = self.joined["member_id"]

    def sync(self) -> bytes:
        listed = [
            {"member_id": one["member_id"], "assignment": bytes(30)}
            for one in self.joined["members"]
        ]
        body = {**self.ids(), "assignments": listed}
        return encode_request(SYNC_GROUP, SYNC_VERSION, 1, "bench", body)

    def receive_synced(self) -> None:
        check_error(decode_response(SYNC_GROUP, SYNC_VERSION, self.connection.receive())[1])

    def ids(self) -> Struct:
        generation = self.joined["generation_id"]
        return {"group_id": self.group, "generation_id": generation, "member_id": self.id}

    def heartbeat(self) -> bytes:
        return encode_request(HEARTBEAT, HEARTBEAT_VERSION, 1, "bench", self.ids())

    def commit(self, offset: int) -> bytes:
        part = {"partition_index": 0, "committed_offset": offset, "committed_metadata": ""}
        body = {
            **self.ids(),
            "generation_id_or_member_epoch": self.joined["generation_id"],
            "topics": [{"name": TOPIC, "partitions": [part]}],
        }
        return encode_request(OFFSET_COMMIT, COMMIT_VERSION, 1, "bench", body)


def check_error(answer: Struct) -> Struct:
    if answer.get("error_code"):
        raise SystemExit(f"a group's request failed: error code {answer['error_code']}")
    return answer


def _await_coordinator(cluster: Brokers) -> None:
    """Wait until every partition of the topic of offsets, which the first request creates, has a
    coordinator: until then groups of the others get NOT_COORDINATOR, which clients retry."""
    until = time.monotonic() + PATIENCE_S
    body = {"groups": [f"any-{number}" for number in range(GROUPS_ASKED)]}
    with Cluster(cluster.cluster.bootstrap) as client, cluster.connect() as connection:
        while time.monotonic() < until:
            try:
                find_coordinator(client, "any")
            except ClientError:
                time.sleep(0.05)
                continue
            found = connection.call(DESCRIBE_GROUPS, DESCRIBE_VERSION, body)["groups"]
            if not any(group["error_code"] for group in found):
                return
            time.sleep(0.05)
    raise SystemExit(f"no group coordinator within {PATIENCE_S:g} s")


def _some_groups(results: Results, cluster: Brokers, size: int) -> None:
    def add(name: str, cost: float, unit: str, bound: str) -> None:
        results.add(GROUPS, name, size, cost, unit, bound)

    _await_coordinator(cluster)
    with cluster.connect() as connection:
        before = cluster.rss_mb()
        members = [Member(connection, f"group-{number:05}") for number in range(size)]
        spent = cluster.measure(lambda: _join_all(members))
        add("begin: join, sync, first commit, CPU for each", spent.cpu_s / size * 1e6, "µs", FLAT)
        add("memory", cluster.rss_mb() - before, "MB", LINEAR)
        turns = [members[at % size] for at in range(REQUESTS)]
        for name, frames in (
            ("commit, CPU", [member.commit(1) for member in turns]),
            ("heartbeat, CPU", [member.heartbeat() for member in turns]),
        ):
            spent = cluster.least_cpu(lambda: connection.pipeline(frames))  # noqa: B023
            add(name, spent.cpu_s / REQUESTS * 1e6, "µs", FLAT)
        time.sleep(0.5)
        add("idle, CPU a second", cluster.idle(2.0) * 1e3, "ms", LINEAR)
        names = [member.group for member in members]
        _list_and_describe(add, cluster, connection, names)
    cluster.cluster.kill(1)
    began = time.perf_counter()
    cluster.cluster.start_broker(1)
    _await_listed(cluster, names)
    add(
        "start after kill -9 until all are listed",
        (time.perf_counter() - began) * 1e3,
        "ms",
        LINEAR,
    )


def _join_all(members: Sequence[Member]) -> None:
    for member in members:
        member.connection.socket.sendall(member.join(1))
        member.receive_joined()
        member.connection.socket.sendall(member.sync())
        member.receive_synced()
        member.connection.request(member.commit(0))


def _list_and_describe(
    add: Callable[[str, float, str, str], None],
    cluster: Brokers,
    connection: Connection,
    names: list[str],
) -> None:
    listing = encode_request(LIST_GROUPS, LIST_VERSION, 1, "bench", {})
    listed = decode_response(LIST_GROUPS, LIST_VERSION, connection.request(listing))[1]["groups"]
    assert len(listed) == len(names), "groups are missing"
    body = {"groups": names, "include_authorized_operations": False}
    description = encode_request(DESCRIBE_GROUPS, DESCRIBE_VERSION, 1, "bench", body)
    for name, frame in (("list, CPU", listing), ("describe all, CPU", description)):
        connection.request(frame)
        spent = cluster.least_cpu(lambda: connection.pipeline([frame] * 5, 1))  # noqa: B023
        add(name, spent.cpu_s / 5 * 1e6, "µs", LINEAR)


def _await_listed(cluster: Brokers, names: Sequence[str]) -> None:
    until = time.monotonic() + PATIENCE_S
    with cluster.connect() as connection:
        while time.monotonic() < until:
            answer = connection.call(LIST_GROUPS, LIST_VERSION, {})
            if not answer["error_code"] and len(answer["groups"]) == len(names):
                return
            time.sleep(0.005)
    raise SystemExit(f"groups are not listed within {PATIENCE_S:g} s after a restart")


def _one_group(results: Results, cluster: Brokers, size: int) -> None:
    """Measure generations of one group: all members join again and sync."""
    _await_coordinator(cluster)
    with ExitStack() as stack:
        members = [
            Member(stack.enter_context(cluster.connect()), f"crew-{size}") for _ in range(size)
        ]
        first, others = members[0], members[1:]
        first.connection.socket.sendall(first.join(0))
        first.receive_joined()
        for member in others:
            member.connection.socket.sendall(member.join(0))
        time.sleep(0.3)  # the first must join last, or it gets a response alone
        first.connection.socket.sendall(first.join(1))
        for member in members:
            member.receive_joined()
        _all_sync(members)
        cost = []
        for number in range(GENERATIONS):
            spent = cluster.measure(lambda: _generation(members, number + 2))  # noqa: B023
            cost.append(spent)
        best = min(cost, key=lambda spent: spent.cpu_s)
        results.add(MEMBERS, "rebalance, CPU", size, best.cpu_s * 1e3, "ms", LINEAR)
        results.add(MEMBERS, "rebalance", size, min(c.wall_s for c in cost) * 1e3, "ms", LINEAR)


def _generation(members: Sequence[Member], number: int) -> None:
    for member in members:
        member.connection.socket.sendall(member.join(number))
    for member in members:
        member.receive_joined()
    _all_sync(members)


def _all_sync(members: Sequence[Member]) -> None:
    for member in members:
        member.connection.socket.sendall(member.sync())
    for member in members:
        member.receive_synced()
