"""The parts of a broker that its coordinators use."""

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

from tidelog.core.controller.metadata.cluster_image import ClusterImage
from tidelog.core.errors import ErrorCode
from tidelog.core.node.calls import Calls
from tidelog.core.node.config import NodeConfig
from tidelog.core.node.hosting.gate import Gate
from tidelog.core.node.hosting.hosted_replica import HostedReplica
from tidelog.core.node.hosting.replicas import Replicas
from tidelog.core.node.messages import WriteTxnMarkers, WriteTxnMarkersResponse
from tidelog.core.node.turn import Turn
from tidelog.core.types import TopicPartition

VerifyTransaction: TypeAlias = Callable[
    [TopicPartition, str, int, int, bool, Callable[[ErrorCode], None]], None
]
"""Checks with a transaction's coordinator that the partition is part of a producer's open
transaction, and calls back with NONE if it is. The arguments are partition, transactional id,
producer id, producer epoch, whether to add the partition first, and the callback."""

OnProducerId: TypeAlias = Callable[[ErrorCode, int], None]
"""Called with a producer id, or with an error."""
WriteMarkers: TypeAlias = Callable[
    [WriteTxnMarkers, Callable[[WriteTxnMarkersResponse], None]], None
]
"""Writes markers to partitions that this broker leads, and calls back when they are committed."""


class CoordinatorHost(NamedTuple):
    """Given to each coordinator when it is created."""

    config: NodeConfig
    turn: Turn
    image: ClusterImage
    replicas: Replicas
    gate: Gate
    wake_resting: Callable[[HostedReplica], None]
    """Wakes the fetch sessions that rest at a replica, before an append."""
    calls: Calls
    allocate_producer_id: Callable[[OnProducerId], None]
    write_markers: WriteMarkers
    verify_transaction: VerifyTransaction


def unverified(
    _topic_partition: TopicPartition,
    _transactional_id: str,
    _producer_id: int,
    _producer_epoch: int,
    _add: bool,
    then: Callable[[ErrorCode], None],
) -> None:
    """Trust the client, as Kafka does with `transaction.partition.verification.enable=false`."""
    then(ErrorCode.NONE)
