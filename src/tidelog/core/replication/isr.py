"""The in-sync replicas (ISR), and a change of it that is under way.

Only the controller changes the ISR; the leader proposes (AlterPartition) and waits.
While it waits it can't know which of the two sets a future leader will be chosen from,
so it must satisfy both: that is the *maximal* ISR.

    Committed        maximal = members
    PendingExpand    maximal = members + the one that joins   (being stricter is safe)
    PendingShrink    maximal = members                        (the shrink may yet fail)

The high watermark and acks=all use `maximal`; the check before an append
(`min.insync.replicas`) uses `members`. Scenario: scenarios/isr/shrink-then-expand.txt
"""

from collections.abc import Mapping
from typing import Any, TypeAlias

from tidelog.core.slotted import slotted
from tidelog.core.types import BrokerEpoch, BrokerId


@slotted(frozen=True)
class Committed:
    """The ISR as the controller last confirmed it; nothing is under way."""

    members: frozenset[BrokerId]

    @property
    def maximal(self) -> frozenset[BrokerId]:
        """Every replica that might be in the ISR as the controller sees it."""
        return self.members


@slotted(frozen=True)
class PendingExpand:
    """A follower has caught up and the controller was asked to let it in."""

    members: frozenset[BrokerId]
    joining: BrokerId
    proposed_at: int
    """The partition epoch on which the proposal stands."""

    @property
    def proposed(self) -> frozenset[BrokerId]:
        """The ISR that was asked for."""
        return self.members | {self.joining}

    @property
    def maximal(self) -> frozenset[BrokerId]:
        """Every replica that might be in the ISR as the controller sees it."""
        return self.members | {self.joining}


@slotted(frozen=True)
class PendingShrink:
    """Followers have fallen behind and the controller was asked to let them go."""

    members: frozenset[BrokerId]
    leaving: frozenset[BrokerId]
    proposed_at: int
    """The partition epoch on which the proposal stands."""

    @property
    def proposed(self) -> frozenset[BrokerId]:
        """The ISR that was asked for."""
        return self.members - self.leaving

    @property
    def maximal(self) -> frozenset[BrokerId]:
        """Every replica that might be in the ISR as the controller sees it."""
        return self.members


Pending: TypeAlias = PendingExpand | PendingShrink
Isr: TypeAlias = Committed | PendingExpand | PendingShrink

NO_ISR = Committed(frozenset())
"""What a follower keeps: the ISR is its leader's business."""


def may_join(
    broker: BrokerId,
    incarnation: BrokerEpoch | None,
    eligible: Mapping[BrokerId, BrokerEpoch | None],
) -> bool:
    """Whether the broker that fetched may enter the ISR.

    It must not be fenced or shutting down (KIP-841), and must be the incarnation that is
    registered, not one from before a restart that may have lost its log (KIP-903). Old
    followers don't name their incarnation.
    """
    return broker in eligible and incarnation in (None, eligible[broker])


def freeze_isr(isr: Isr) -> tuple[object, ...]:
    """The ISR as nested tuples of ints: hashable, and ordered."""
    members = tuple(sorted(isr.members))
    if isinstance(isr, Committed):
        return (members,)
    if isinstance(isr, PendingExpand):
        return (members, (isr.joining,), (), isr.proposed_at)
    return (members, (), tuple(sorted(isr.leaving)), isr.proposed_at)


def thaw_isr(picture: tuple[Any, ...]) -> Isr:
    """What `freeze_isr` pictured."""
    members = frozenset(picture[0])
    if len(picture) == 1:
        return Committed(members)
    _, joining, leaving, proposed_at = picture
    if joining:
        return PendingExpand(members, joining[0], proposed_at)
    return PendingShrink(members, frozenset(leaving), proposed_at)
