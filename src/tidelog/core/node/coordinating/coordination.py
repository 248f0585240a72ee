"""The way to the group service, which is made when there are groups.

Its code takes a tenth of a broker's start to load, and a cluster without groups never needs it.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tidelog.core.controller.metadata.cluster_image import ClusterImage
from tidelog.core.groups.partitioning import OFFSETS_TOPIC
from tidelog.core.node.config import NodeConfig
from tidelog.core.node.events import Peer
from tidelog.core.node.replicas import HostedReplica, Replicas
from tidelog.core.node.serving.gate import Gate
from tidelog.core.node.turn import Turn

if TYPE_CHECKING:
    from tidelog.core.node.coordinating.group_service import GroupService
    from tidelog.core.node.coordinating.hosted_shard import HostedShard


class Coordination:
    """Hands everything on to the service, if there is one or has to be."""

    def __init__(
        self,
        config: NodeConfig,
        turn: Turn,
        image: ClusterImage,
        replicas: Replicas,
        gate: Gate,
        rouse: Callable[[HostedReplica], None],
    ) -> None:
        self._config = config
        self._turn = turn
        self._image = image
        self._replicas = replicas
        self._gate = gate
        self._rouse = rouse
        self._service: GroupService | None = None

    def _made(self) -> "GroupService":
        if self._service is None:
            from tidelog.core.node.coordinating.group_service import GroupService
            from tidelog.core.node.coordinating.shard_writer import ShardWriter

            self._service = GroupService(
                self._config,
                self._turn,
                self._image,
                self._replicas,
                self._gate,
                ShardWriter(self._config, self._turn, self._replicas, self._rouse),
            )
        return self._service

    @property
    def shards(self) -> "dict[int, HostedShard]":
        """The groups of each partition of `__consumer_offsets` that is led here."""
        return {} if self._service is None else self._service.shards

    def serve(self, peer: Peer, correlation: int, request: Any) -> None:
        """Any request about groups."""
        self._made().serve(peer, correlation, request)

    def image_advanced(self, deleted_topics: set[str]) -> None:
        if self._service is not None or OFFSETS_TOPIC in self._image.topics:
            self._made().image_advanced(deleted_topics)

    def reconsider(self) -> None:
        """This broker's standing is another."""
        if self._service is not None or OFFSETS_TOPIC in self._image.topics:
            self._made().reconsider()

    def pump(self) -> bool:
        """Go on as far as possible; whether there was anything to do."""
        service = self._service
        if service is None or not service.is_stirred:
            return False
        service.pump()
        return True

    def tick(self) -> None:
        if self._service is not None:
            self._service.tick()

    def next_ms(self) -> int | None:
        return None if self._service is None else self._service.next_ms()
