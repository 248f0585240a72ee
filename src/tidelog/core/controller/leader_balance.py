"""Automatic preferred elections: at intervals, and when the whole cluster starts.

Every `leader.imbalance.check.interval.seconds` the preferred replica of each partition, the first
of its assignment, is elected, as in Kafka. In addition, when the whole cluster starts, a
preferred replica is elected as soon as it is in the ISR. Without that the broker that
starts first would lead nearly all partitions until the next check: it is the only one that can be
elected when it joins, and a partition keeps its leader. The controller recognises a start of the
cluster by its own broker: if that has just registered and is not active yet, no active broker was
there to become controller.

A broker that returns to a running cluster waits for the check. One that fails again and again
then costs its partitions one change of leader per interval, not one per return.

Invariant: only a member of the ISR is elected, so no committed record is lost.
"""

from collections.abc import Hashable, Iterable
from collections.abc import Set as AbstractSet
from heapq import nsmallest

from tidelog.core.controller.election import Target, next_registration
from tidelog.core.controller.events import ElectionType
from tidelog.core.controller.metadata.cluster_image import ClusterImage
from tidelog.core.controller.metadata.registrations import PartitionKey
from tidelog.core.controller.store_transactions import Write
from tidelog.core.controller.upkeep import ControllerTerm
from tidelog.core.types import BrokerEpoch, BrokerId


class LeaderBalance:
    """The partitions that are due for a preferred election, in one term as controller."""

    __slots__ = ("_due", "_interval_ms", "_next_check_ms", "_starting", "_were_active")

    def __init__(self, interval_ms: int | None) -> None:
        self._interval_ms = interval_ms
        """None: `auto.leader.rebalance.enable` is off."""
        self._next_check_ms = 0
        self._starting = False
        """Whether the cluster started in this term, and has not been balanced since."""
        self._were_active: dict[BrokerId, BrokerEpoch] = {}
        """Incarnations still marked active when the cluster started: they ended unnoticed."""
        self._due: set[PartitionKey] = set()

    def begin(self, image: ClusterImage, now_ms: int, *, starting: bool) -> None:
        """Begin a term as controller; `starting`: the whole cluster starts."""
        self._next_check_ms = now_ms + (self._interval_ms or 0)
        self._starting = starting and self._interval_ms is not None
        self._were_active = {broker: image.brokers[broker].epoch for broker in image.active}
        self._due = set()

    def changed(self, image: ClusterImage, partitions: Iterable[PartitionKey]) -> None:
        """Apply the changes of these partitions in the image."""
        if self._starting:
            self._add(image, partitions)
            self._starting = bool(image.imbalanced) or any(
                broker in image.active and image.brokers[broker].epoch == epoch
                for broker, epoch in self._were_active.items()
            )

    def refused(self, image: ClusterImage) -> None:
        """A transaction failed: one of its elections may still be due."""
        if self._starting:
            self._add(image, image.imbalanced)

    def tick(self, image: ClusterImage, now_ms: int) -> None:
        """Check all partitions, if it is time to."""
        if self._interval_ms is not None and now_ms >= self._next_check_ms:
            self._next_check_ms = now_ms + self._interval_ms
            self._starting = False
            self._add(image, image.imbalanced)

    def _add(self, image: ClusterImage, partitions: Iterable[PartitionKey]) -> None:
        """Add partitions whose preferred replica is on an active broker; the election checks the
        ISR."""
        for key in partitions:
            if key in image.imbalanced and image.partitions[key].replicas[0] in image.active:
                self._due.add(key)

    def writes(
        self, term: ControllerTerm, busy: AbstractSet[PartitionKey], most: int
    ) -> list[list[Write]]:
        """Hold up to `most` elections. Busy partitions, and those beyond `most`, remain due."""
        image, writes = term.image, []
        for key in nsmallest(most, self._due - busy):
            self._due.discard(key)
            partition = image.partitions.get(key)
            if partition is None or partition.leader is None or not image.committed(key):
                continue
            rules = term.rules(key, image.active)
            new = next_registration(partition, Target(election=ElectionType.PREFERRED), rules)
            if new is not partition:
                writes.append([term.write(partition, new)])
        return writes

    def has_due(self, busy: AbstractSet[PartitionKey]) -> bool:
        """Whether an election is due that could be held now."""
        return not self._due <= busy

    def freeze(self) -> Hashable:
        return self._starting, frozenset(self._due)
