"""Whether this broker may serve requests, and with which replica.

A broker serves only while it knows that it is a live member of the cluster: registered, unfenced in
its own image under its own broker epoch, with a session that is valid for some time. Otherwise a
leader that was replaced without learning of it would continue to acknowledge
(scenarios/fencing/cut-off-leader-fences-itself.txt).
"""

from tidelog.core.controller.metadata.cluster_image import ClusterImage
from tidelog.core.errors import ErrorCode
from tidelog.core.node.hosting.hosted_replica import HostedReplica
from tidelog.core.node.hosting.replicas import Replicas
from tidelog.core.types import TopicId, TopicPartition


class Gate:
    """Finds the replica for a request, while this broker is active (`acting`)."""

    __slots__ = ("_replicas", "acting", "image", "leaving")

    def __init__(self, replicas: Replicas, image: ClusterImage) -> None:
        self.acting = False
        self.leaving = False
        """Whether this broker shuts down: other brokers may lead its partitions before it learns of
        that."""
        self._replicas = replicas
        self.image = image

    def find(
        self, topic_partition: TopicPartition, topic_id: TopicId | None = None
    ) -> HostedReplica | ErrorCode:
        """Return the replica of a partition, or the error."""
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
