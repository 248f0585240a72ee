"""Requests of one connection are handled in Kafka's order, where the order can be seen."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from real_cluster import PATIENCE_S, eventually, make_topic

from tidelog.core.api_table import HEARTBEAT, JOIN_GROUP, OFFSET_COMMIT, SYNC_GROUP
from tidelog.core.errors import ErrorCode
from tidelog.core.wire.codec import decode_response, encode_request
from tidelog.shell.client.cluster import Cluster
from tidelog.shell.client.coordinators import find_coordinator
from tidelog.shell.supervisor.cluster import LocalCluster

VERSIONS = {HEARTBEAT: 0, JOIN_GROUP: 3, SYNC_GROUP: 2, OFFSET_COMMIT: 6}


class Member:
    """A group member on one connection that sends several requests at a time."""

    def __init__(self, address: tuple[str, int], group: str) -> None:
        self.socket = socket.create_connection(address, timeout=PATIENCE_S)
        self.group = group
        self.id = ""
        self.generation = -1

    def send(self, *requests: tuple[int, dict[str, Any]]) -> None:
        self.socket.sendall(
            b"".join(encode_request(key, VERSIONS[key], 1, "raw", body) for key, body in requests)
        )

    def answer(self, key: int) -> dict[str, Any]:
        size = int.from_bytes(self._exactly(4), "big")
        return dict(decode_response(key, VERSIONS[key], self._exactly(size))[1])

    def _exactly(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            more = self.socket.recv(size - len(data))
            assert more, "the broker closed the connection"
            data += more
        return data

    def join(self) -> tuple[int, dict[str, Any]]:
        return JOIN_GROUP, {
            "group_id": self.group,
            "session_timeout_ms": 120_000,
            "rebalance_timeout_ms": 120_000,
            "member_id": self.id,
            "protocol_type": "consumer",
            "protocols": [{"name": "range", "metadata": b""}],
        }

    def is_in(self) -> bool:
        """Join once; return False on an error, as from a coordinator that is still loading."""
        self.send(self.join())
        answer = self.answer(JOIN_GROUP)
        self.id, self.generation = answer["member_id"], answer["generation_id"]
        return bool(answer["error_code"] == ErrorCode.NONE)

    def joined(self) -> None:
        answer = self.answer(JOIN_GROUP)
        assert answer["error_code"] == ErrorCode.NONE
        self.id, self.generation = answer["member_id"], answer["generation_id"]

    def must_rejoin(self) -> bool:
        member = {"generation_id": self.generation, "member_id": self.id}
        self.send((HEARTBEAT, {"group_id": self.group, **member}))
        return bool(self.answer(HEARTBEAT)["error_code"] == ErrorCode.REBALANCE_IN_PROGRESS)

    def sync(self) -> tuple[int, dict[str, Any]]:
        return SYNC_GROUP, {
            "group_id": self.group,
            "generation_id": self.generation,
            "member_id": self.id,
            "assignments": [],
        }

    def commit(self, topic: str) -> tuple[int, dict[str, Any]]:
        partition = {"partition_index": 0, "committed_offset": 5, "committed_metadata": ""}
        return OFFSET_COMMIT, {
            "group_id": self.group,
            "generation_id_or_member_epoch": self.generation,
            "member_id": self.id,
            "topics": [{"name": topic, "partitions": [partition]}],
        }

    def committed(self) -> ErrorCode:
        [topic] = self.answer(OFFSET_COMMIT)["topics"]
        [partition] = topic["partitions"]
        return ErrorCode(partition["error_code"])


@contextmanager
def two_members(cluster: LocalCluster, group: str) -> Iterator[tuple[Member, Member]]:
    """The leader of a stable group and its follower."""
    with Cluster(cluster.bootstrap, timeout_s=PATIENCE_S) as client:
        broker = client.metadata.brokers[find_coordinator(client, group)]
    address = (broker.host, broker.port)
    first, second = Member(address, group), Member(address, group)
    with first.socket, second.socket:
        eventually(first.is_in, "the coordinator is ready")
        first.send(first.sync())
        assert first.answer(SYNC_GROUP)["error_code"] == ErrorCode.NONE
        second.send(second.join())
        eventually(first.must_rejoin, "the second member's join begins a rebalance")
        first.send(first.join())
        first.joined()
        second.joined()
        for member in (first, second):
            member.send(member.sync())
            assert member.answer(SYNC_GROUP)["error_code"] == ErrorCode.NONE
        yield first, second


def test_commit_behind_a_waiting_join_sees_the_generation_of_that_join(
    calm: LocalCluster, name: str
) -> None:
    make_topic(calm.bootstrap, name)
    with two_members(calm, name) as (first, second):
        before = first.generation
        first.send(first.join(), first.commit(name))
        eventually(second.must_rejoin, "the first member's join begins a rebalance")
        second.send(second.join())
        second.joined()
        first.joined()
        assert first.generation == before + 1
        assert first.committed() is ErrorCode.ILLEGAL_GENERATION
        first.send(first.sync(), first.commit(name))
        assert first.answer(SYNC_GROUP)["error_code"] == ErrorCode.NONE
        assert first.committed() is ErrorCode.NONE


def test_commit_before_a_join_counts_in_its_own_generation(calm: LocalCluster, name: str) -> None:
    make_topic(calm.bootstrap, name)
    with two_members(calm, name) as (first, second):
        first.send(first.commit(name), first.join())
        eventually(second.must_rejoin, "the first member's join begins a rebalance")
        second.send(second.join())
        second.joined()
        assert first.committed() is ErrorCode.NONE
        first.joined()
