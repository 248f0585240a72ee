"""The in-sync replicas (ISR), and a pending change of them.

Only the controller changes the ISR; the leader proposes a change (AlterPartition) and waits.
Until the response, a future leader may be elected from the old or from the proposed ISR, so the
leader must satisfy both: that is the *maximal* ISR.

    Committed        maximal = members
    PendingExpand    maximal = members + the joining replica   (stricter than needed is safe)
    PendingShrink    maximal = members                         (the shrink may still fail)

The high watermark and acks=all use `maximal`; the check before an append
(`min.insync.replicas`) uses `members`. Scenario: scenarios/isr/shrink-then-expand.txt
"""

from collections.abc import Mapping
from typing import Any, TypeAlias

from tidelog.core.slotted import slotted
from tidelog.core.types import BrokerEpoch, BrokerId


@slotted(frozen=True)
class Committed:
    """The ISR as the controller last confirmed it, without a pending change."""

    members: frozenset[BrokerId]

    @property
    def maximal(self) -> frozenset[BrokerId]:
        """Every replica that might be in the ISR as the controller sees it."""
        return self.members


@slotted(frozen=True)
class PendingExpand:
    """A follower has caught up, and the leader proposed to add it."""

    members: frozenset[BrokerId]
    joining: BrokerId
    proposed_at: int
    """The partition epoch on which the proposal is based."""

    @property
    def proposed(self) -> frozenset[BrokerId]:
        """The proposed ISR."""
        return self.members | {self.joining}

    @property
    def maximal(self) -> frozenset[BrokerId]:
        """Every replica that might be in the ISR as the controller sees it."""
        return self.members | {self.joining}


@slotted(frozen=True)
class PendingShrink:
    """Followers have fallen behind, and the leader proposed to remove them."""

    members: frozenset[BrokerId]
    leaving: frozenset[BrokerId]
    proposed_at: int
    """The partition epoch on which the proposal is based."""

    @property
    def proposed(self) -> frozenset[BrokerId]:
        """The proposed ISR."""
        return self.members - self.leaving

    @property
    def maximal(self) -> frozenset[BrokerId]:
        """Every replica that might be in the ISR as the controller sees it."""
        return self.members


Pending: TypeAlias = PendingExpand | PendingShrink
Isr: TypeAlias = Committed | PendingExpand | PendingShrink

NO_ISR = Committed(frozenset())
"""The ISR field of a follower: only the leader tracks the ISR."""


def may_join(
    broker: BrokerId,
    incarnation: BrokerEpoch | None,
    eligible: Mapping[BrokerId, BrokerEpoch | None],
) -> bool:
    """Whether the broker that fetched may join the ISR.

    It must not be fenced or shutting down (KIP-841), and its broker epoch must be the registered
    one: a fetch from before a restart does not count, because the restart may have lost the log
    (KIP-903). Old followers send no broker epoch.
    """
    return broker in eligible and incarnation in (None, eligible[broker])


def freeze_isr(isr: Isr) -> tuple[object, ...]:
    """Return the ISR as nested tuples of ints, which can be hashed and ordered."""
    members = tuple(sorted(isr.members))
    if isinstance(isr, Committed):
        return (members,)
    if isinstance(isr, PendingExpand):
        return (members, (isr.joining,), (), isr.proposed_at)
    return (members, (), tuple(sorted(isr.leaving)), isr.proposed_at)


def thaw_isr(frozen: tuple[Any, ...]) -> Isr:
    """Return the ISR that `freeze_isr` encoded."""
    members = frozenset(frozen[0])
    if len(frozen) == 1:
        return Committed(members)
    _, joining, leaving, proposed_at = frozen
    if joining:
        return PendingExpand(members, joining[0], proposed_at)
    return PendingShrink(members, frozenset(leaving), proposed_at)
