"""Who is fetched from: one LeaderFetcher for each broker that leads what we follow."""

from tidelog.core.node.calls import Calls
from tidelog.core.node.config import NodeConfig
from tidelog.core.node.following.leader_fetcher import LeaderFetcher
from tidelog.core.node.replicas import HostedReplica, Replicas
from tidelog.core.node.turn import Turn
from tidelog.core.types import BrokerEpoch, BrokerId, TopicPartition


class ReplicaFetchers:
    """All fetchers of this broker, and which partition is with which."""

    def __init__(self, config: NodeConfig, turn: Turn, calls: Calls, replicas: Replicas) -> None:
        self._config = config
        self._turn = turn
        self._calls = calls
        self._replicas = replicas
        self._fetchers: dict[BrokerId, LeaderFetcher] = {}
        self._placed: dict[TopicPartition, LeaderFetcher] = {}

    def follow(self, replica: HostedReplica, leader: BrokerId) -> None:
        self.stop(replica)
        fetcher = self._fetchers.get(leader)
        if fetcher is None:
            fetcher = LeaderFetcher(leader, self._config, self._turn, self._calls, self._replicas)
            self._fetchers[leader] = fetcher
        self._placed[replica.topic_partition] = fetcher
        fetcher.follow(replica)

    def stop(self, replica: HostedReplica) -> None:
        fetcher = self._placed.pop(replica.topic_partition, None)
        if fetcher is not None:
            fetcher.leave(replica)

    def stir(self, replica: HostedReplica) -> None:
        """Something happened to this replica's log."""
        fetcher = self._placed.get(replica.topic_partition)
        if fetcher is not None:
            fetcher.stir(replica.topic_partition)

    def leader_restarted(self, leader: BrokerId) -> None:
        """Another incarnation of this broker is there, or none."""
        fetcher = self._fetchers.get(leader)
        if fetcher is not None:
            fetcher.connection_lost()

    def pump(self, broker_epoch: BrokerEpoch | None) -> None:
        for fetcher in self._fetchers.values():
            fetcher.pump(broker_epoch)

    def next_ms(self) -> int | None:
        soonest: int | None = None
        for fetcher in self._fetchers.values():
            at = fetcher.next_ms()
            if at is not None and (soonest is None or at < soonest):
                soonest = at
        return soonest
