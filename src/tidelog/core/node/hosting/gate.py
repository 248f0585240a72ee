"""Whether this broker may serve, and which replica.

Nothing is served by a broker that does not know itself to be a live member of the cluster:
registered, unfenced in its own image under its own broker epoch, its session good for a
while yet. A leader that was replaced without hearing of it would otherwise go on
acknowledging (scenarios/fencing/cut-off-leader-fences-itself.txt).
"""

from tidelog.core.controller.metadata.cluster_image import ClusterImage
from tidelog.core.errors import ErrorCode
from tidelog.core.node.hosting.hosted_replica import HostedReplica
from tidelog.core.node.hosting.replicas import Replicas
from tidelog.core.types import TopicId, TopicPartition


class Gate:
    """Finds replicas for requests while `acting`."""

    __slots__ = ("_replicas", "acting", "image", "leaving")

    def __init__(self, replicas: Replicas, image: ClusterImage) -> None:
        self.acting = False
        self.leaving = False
        """This broker has asked to be let go: from now on others may lead what it leads, before
        it hears of it."""
        self._replicas = replicas
        self.image = image

    def find(
        self, topic_partition: TopicPartition, topic_id: TopicId | None = None
    ) -> HostedReplica | ErrorCode:
        """The replica asked for; or why it can't be had here."""
        replica = self._replicas.hosted.get(topic_partition)
        if replica is None or (topic_id is not None and topic_id != replica.topic_id):
            return self._missing(topic_partition, topic_id)
        return replica if self.acting else ErrorCode.NOT_LEADER_OR_FOLLOWER

    def _missing(self, topic_partition: TopicPartition, topic_id: TopicId | None) -> ErrorCode:
        known = self.image.partition(*topic_partition)
        if known is not None and topic_id in (None, known.topic_id):
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        if topic_id is not None:
            return ErrorCode.UNKNOWN_TOPIC_ID
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
