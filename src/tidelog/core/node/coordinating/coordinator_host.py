"""The parts of a broker that its coordinators use."""

from collections.abc import Callable
from typing import NamedTuple

from tidelog.core.controller.metadata.cluster_image import ClusterImage
from tidelog.core.node.config import NodeConfig
from tidelog.core.node.hosting.gate import Gate
from tidelog.core.node.hosting.hosted_replica import HostedReplica
from tidelog.core.node.hosting.replicas import Replicas
from tidelog.core.node.turn import Turn


class CoordinatorHost(NamedTuple):
    """Given to each coordinator when it is created."""

    config: NodeConfig
    turn: Turn
    image: ClusterImage
    replicas: Replicas
    gate: Gate
    wake_resting: Callable[[HostedReplica], None]
    """Wakes the fetch sessions that rest at a replica, before an append."""
