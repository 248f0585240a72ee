"""Whether this broker may serve requests, and with which replica.

A broker serves only while it knows that it is a live member of the cluster: registered, unfenced in
its own image under its own broker epoch, with a session that is valid for some time. Otherwise a
leader that was replaced without learning of it would continue to acknowledge
(scenarios/fencing/cut-off-leader-fences-itself.txt).

A broker whose session ran out because the metadata store does not respond is *detached*. It serves
only partitions whose in-sync followers keep fetching from it (core/replication/follower_lease.py).
"""

from collections.abc import Callable

from tidelog.core.controller.metadata.cluster_image import ClusterImage
from tidelog.core.errors import ErrorCode
from tidelog.core.node.hosting.hosted_replica import HostedReplica
from tidelog.core.node.hosting.replicas import Replicas
from tidelog.core.node.turn import Turn
from tidelog.core.replication.follower_lease import holds_lease
from tidelog.core.types import BrokerId, TopicId, TopicPartition


class Gate:
    """Finds the replica for a request, while this broker is active (`acting`) or detached."""

    __slots__ = (
        "_broker_id",
        "_confirmed_ms",
        "_lease_ms",
        "_replicas",
        "_turn",
        "acting",
        "detached",
        "image",
        "leaving",
    )

    def __init__(
        self,
        turn: Turn,
        replicas: Replicas,
        image: ClusterImage,
        broker_id: BrokerId,
        confirmed_ms: Callable[[BrokerId, HostedReplica], int],
        lease_ms: int,
    ) -> None:
        self.acting = False
        self.detached = False
        """Whether this broker was active until its session ran out, and does not know that the
        session ended. Never true while `acting` is."""
        self.leaving = False
        """Whether this broker shuts down: other brokers may lead its partitions before it learns of
        that."""
        self._broker_id = broker_id
        self._turn = turn
        self._replicas = replicas
        self._confirmed_ms = confirmed_ms
        """When a follower was surely following this leader last (serving/fetch_sessions.py)."""
        self._lease_ms = lease_ms
        self.image = image

    @property
    def serving(self) -> bool:
        """Whether this broker serves all or some of its partitions."""
        return self.acting or self.detached

    def serves(self, replica: HostedReplica) -> bool:
        """Whether clients may use this replica now."""
        return self.acting or (self.detached and self.holds_lease(replica))

    def find(
        self,
        topic_partition: TopicPartition,
        topic_id: TopicId | None = None,
        *,
        by_follower: bool = False,
    ) -> HostedReplica | ErrorCode:
        """Return the replica of a partition, or the error. A detached broker serves followers
        without a lease too, because their fetches renew the lease."""
        replica = self._replicas.hosted.get(topic_partition)
        if replica is None or (topic_id is not None and topic_id != replica.topic_id):
            return self._missing(topic_partition, topic_id)
        if self.acting or (self.detached and (by_follower or self.holds_lease(replica))):
            return replica
        return ErrorCode.NOT_LEADER_OR_FOLLOWER

    def holds_lease(self, replica: HostedReplica) -> bool:
        """Whether all in-sync followers fetch, so that this broker may serve without the store."""
        return self._confirmed_since(replica, self._turn.now_ms - self._lease_ms)

    def led_at(self, replica: HostedReplica, time_ms: int) -> bool:
        """Whether it is certain that no other broker led this partition at a time in the past.
        Without a session, that needs responses sent later which all in-sync followers confirmed."""
        return self.acting or (self.detached and self._confirmed_since(replica, time_ms + 1))

    def _confirmed_since(self, replica: HostedReplica, since_ms: int) -> bool:
        return holds_lease(
            replica.partition, lambda follower: self._confirmed_ms(follower, replica) >= since_ms
        )

    def _missing(self, topic_partition: TopicPartition, topic_id: TopicId | None) -> ErrorCode:
        known = self.image.partition(*topic_partition)
        if known is not None and topic_id in (None, known.topic_id):
            if self._broker_id in known.offline:
                return ErrorCode.KAFKA_STORAGE_ERROR
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        if topic_id is not None:
            return ErrorCode.UNKNOWN_TOPIC_ID
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
