"""The fetchers of this broker: one LeaderFetcher for each leader that it follows."""

from tidelog.core.node.calls import Calls
from tidelog.core.node.config import NodeConfig
from tidelog.core.node.following.leader_fetcher import LeaderFetcher
from tidelog.core.node.hosting.followed_partitions import FollowedPartitions
from tidelog.core.node.hosting.replicas import Replicas
from tidelog.core.node.turn import Turn
from tidelog.core.types import BrokerEpoch, BrokerId


class ReplicaFetchers:
    """All fetchers of this broker."""

    def __init__(
        self,
        config: NodeConfig,
        turn: Turn,
        calls: Calls,
        replicas: Replicas,
        followed: FollowedPartitions,
    ) -> None:
        self._config = config
        self._turn = turn
        self._calls = calls
        self._replicas = replicas
        self._followed = followed
        self._fetchers: dict[BrokerId, LeaderFetcher] = {}

    def leader_restarted(self, leader: BrokerId) -> None:
        """Forget requests and session: the broker has another incarnation, or none."""
        fetcher = self._fetchers.get(leader)
        if fetcher is not None:
            fetcher.connection_lost()

    def pump(self, broker_epoch: BrokerEpoch | None) -> None:
        """Send the next request to each leader that has none in flight."""
        if len(self._fetchers) < len(self._followed.by_leader):
            self._add_fetchers()
        for fetcher in self._fetchers.values():
            fetcher.pump(broker_epoch)

    def _add_fetchers(self) -> None:
        for leader, partitions in self._followed.by_leader.items():
            if leader not in self._fetchers:
                self._fetchers[leader] = LeaderFetcher(
                    leader, partitions, self._config, self._turn, self._calls, self._replicas
                )

    def next_ms(self) -> int | None:
        """When the next request that waits now may be sent."""
        soonest: int | None = None
        for fetcher in self._fetchers.values():
            at = fetcher.next_ms()
            if at is not None and (soonest is None or at < soonest):
                soonest = at
        return soonest
