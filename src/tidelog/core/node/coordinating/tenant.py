"""What a broker gives to a coordinator, and what a coordinator declares before it is imported."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from tidelog.core.controller.metadata.cluster_image import ClusterImage
from tidelog.core.coordinator.lookup import CoordinatorType
from tidelog.core.node.config import NodeConfig
from tidelog.core.node.hosting.gate import Gate
from tidelog.core.node.hosting.hosted_replica import HostedReplica
from tidelog.core.node.hosting.replicas import Replicas
from tidelog.core.node.turn import Turn

if TYPE_CHECKING:
    from tidelog.core.node.coordinating.coordinator_runtime import CoordinatorRuntime


class CoordinatorHost(NamedTuple):
    """The parts of the broker that a coordinator uses."""

    config: NodeConfig
    turn: Turn
    image: ClusterImage
    replicas: Replicas
    gate: Gate
    wake_resting: Callable[[HostedReplica], None]
    """Wakes the fetch sessions that rest at a replica, before an append."""


class Tenant(NamedTuple):
    """One kind of coordinator."""

    type: CoordinatorType
    topic: str
    requests: str
    """The module that defines its request types."""
    make: "Callable[[CoordinatorHost], CoordinatorRuntime[Any]]"
    """Imports the coordinator and creates it."""
