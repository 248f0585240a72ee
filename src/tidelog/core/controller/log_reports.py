"""How far the logs of leaderless partitions reach, as their brokers reported it.

When ISR and ELR are empty, the controller elects the replica with the most records
(election.py). It can compare logs only after the brokers have reported them. Brokers report
on their own (node/membership/log_reporter.py), each time a partition has no leader or another
controller claims the role, so this table is only in memory. It outlives a term: a controller
that took its session for lost may hold the same claim again, and gets no new reports then.

Invariant: only reports of registered incarnations count, made under the partition's present
leader epoch. A log does not change while its partition has no leader, so such a report stays
true until its broker restarts.
"""

from collections.abc import Hashable, Mapping

from tidelog.core.controller.events import LogState
from tidelog.core.controller.metadata.cluster_image import ClusterImage
from tidelog.core.controller.metadata.registrations import PartitionKey
from tidelog.core.types import BrokerEpoch, BrokerId


class LogReports:
    """The reports that one controller has received."""

    __slots__ = ("_due", "_expired", "_reports", "_since_ms", "image", "now_ms", "timeout_ms")

    def __init__(self, image: ClusterImage, timeout_ms: int) -> None:
        self.image = image
        self.timeout_ms = timeout_ms
        self.now_ms = 0
        self._reports: dict[PartitionKey, dict[BrokerId, tuple[BrokerEpoch, LogState]]] = {}
        self._since_ms: dict[PartitionKey, int] = {}
        """When this controller first saw that the partition has no leader, the oldest first."""
        self._due: set[PartitionKey] = set()
        """Partitions that an election may now decide."""
        self._expired: set[PartitionKey] = set()

    def receive(
        self, broker: BrokerId, epoch: BrokerEpoch, logs: Mapping[PartitionKey, LogState]
    ) -> None:
        for key, log in logs.items():
            partition = self.image.partitions.get(key)
            # The broker may have seen a later revision than this controller.
            if partition is not None and log.as_of >= partition.leader_epoch:
                self._reports.setdefault(key, {})[broker] = (epoch, log)
                self._due.add(key)

    def of(self, key: PartitionKey) -> dict[BrokerId, LogState]:
        """Return the reports of its replicas since they lost their leader."""
        brokers, partition = self.image.brokers, self.image.partitions[key]
        return {
            broker: log
            for broker, (epoch, log) in self._reports.get(key, {}).items()
            if broker in brokers
            and brokers[broker].epoch == epoch
            and log.as_of == partition.leader_epoch
        }

    def waited(self, key: PartitionKey) -> bool:
        """Whether `unclean.recovery.timeout.ms` has passed without a leader."""
        since_ms = self._since_ms.get(key)
        return since_ms is not None and self.now_ms - since_ms >= self.timeout_ms

    def due(self, now_ms: int) -> set[PartitionKey]:
        """Return partitions whose reports or time-outs may decide an election, each once."""
        self.now_ms = now_ms
        leaderless = self.image.leaderless
        for key in self._since_ms.keys() - leaderless:
            del self._since_ms[key]
            self._expired.discard(key)
            self._reports.pop(key, None)
        for key in leaderless - self._since_ms.keys():
            self._since_ms[key] = now_ms
        expired: set[PartitionKey] = set()
        oldest_ms = next(iter(self._since_ms.values()), now_ms)
        if now_ms - oldest_ms >= self.timeout_ms:
            expired = {key for key in leaderless - self._expired if self.waited(key)}
            self._expired |= expired
        due, self._due = self._due | expired, set()
        return due

    def freeze(self) -> Hashable:
        reports = (
            (key, broker, report)
            for key, by_broker in self._reports.items()
            for broker, report in by_broker.items()
        )
        return frozenset(reports), frozenset(self._since_ms.items())
