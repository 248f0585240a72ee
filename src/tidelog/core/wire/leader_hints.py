"""The current leader, sent together with the error (KIP-951).

A client that sent a request to the wrong broker need not request metadata: the response has the
leader, its epoch and its address. Both parts are tagged fields, so a response without them costs
one zero byte for each.
"""

from collections.abc import Callable
from struct import Struct
from typing import NamedTuple, TypeAlias

from tidelog.core.types import BrokerId, LeaderEpoch, TopicPartition
from tidelog.core.wire.primitives import INT32, compact_string, optional_compact_string, uvarint

NO_TAGS = b"\0"

_LEADER = Struct(">iib")


class NodeEndpoint(NamedTuple):
    """A broker's address for the clients of one listener."""

    node_id: BrokerId
    host: str
    port: int
    rack: str | None = None


class CurrentLeader(NamedTuple):
    """The leader of a partition, its epoch and its address."""

    leader_id: BrokerId
    leader_epoch: LeaderEpoch
    endpoint: NodeEndpoint | None = None


LeaderOf: TypeAlias = Callable[[TopicPartition], CurrentLeader | None]
"""Returns None if the partition has no leader or is unknown."""


class LeaderHints:
    """Collects the leaders and addresses for one response."""

    __slots__ = ("_endpoints", "_leader_of")

    def __init__(self, leader_of: LeaderOf) -> None:
        self._leader_of = leader_of
        self._endpoints: dict[BrokerId, NodeEndpoint] = {}

    def current_leader(self, topic_partition: TopicPartition) -> bytes:
        """The body of the tagged field; empty if the leader is unknown."""
        leader = self._leader_of(topic_partition)
        if leader is None:
            return b""
        if leader.endpoint is not None:
            self._endpoints[leader.leader_id] = leader.endpoint
        return _LEADER.pack(leader.leader_id, leader.leader_epoch, 0)

    def node_endpoints(self) -> bytes:
        """The tagged fields at the end of the response."""
        if not self._endpoints:
            return NO_TAGS
        body = bytearray(uvarint(len(self._endpoints) + 1))
        for node_id, host, port, rack in self._endpoints.values():
            body += INT32.pack(node_id) + compact_string(host) + INT32.pack(port)
            body += optional_compact_string(rack) + NO_TAGS
        return tagged({0: bytes(body)})


def tagged(fields: dict[int, bytes]) -> bytes:
    """Encode a section of tagged fields; the tags must be in ascending order."""
    section = bytearray(uvarint(len(fields)))
    for tag, body in fields.items():
        section += uvarint(tag) + uvarint(len(body)) + body
    return bytes(section)
