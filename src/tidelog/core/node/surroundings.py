"""What replicas ask for outside their logs, and which part of the broker does it.

See `replicas.Surroundings`.
"""

from tidelog.core.node.following.replica_fetchers import ReplicaFetchers
from tidelog.core.node.membership.isr_proposals import IsrProposals
from tidelog.core.node.replicas import HostedReplica
from tidelog.core.node.serving.fetch import FetchService
from tidelog.core.node.upkeep.flushing import Flushing
from tidelog.core.replication.effects import ProposeIsr
from tidelog.core.types import BrokerId


class NodeSurroundings:
    """A replica's surroundings in a whole broker."""

    def __init__(
        self,
        fetchers: ReplicaFetchers,
        proposals: IsrProposals,
        flushing: Flushing,
        fetches: FetchService,
    ) -> None:
        self._fetchers = fetchers
        self._proposals = proposals
        self._flushing = flushing
        self._fetches = fetches

    def follow(self, replica: HostedReplica, leader: BrokerId) -> None:
        self._fetchers.follow(replica, leader)

    def lead(self, replica: HostedReplica) -> None:
        self._fetchers.stop(replica)
        self._fetches.lead(replica)

    def stop_following(self, replica: HostedReplica) -> None:
        self._fetchers.stop(replica)

    def propose(self, replica: HostedReplica, proposal: ProposeIsr) -> None:
        self._proposals.propose(replica, proposal)

    def log_changed(self, replica: HostedReplica) -> None:
        self._flushing.log_changed(replica)
        if not replica.partition.is_leader:
            self._fetchers.stir(replica)

    def flushed(self, replica: HostedReplica) -> None:
        self._fetchers.stir(replica)
