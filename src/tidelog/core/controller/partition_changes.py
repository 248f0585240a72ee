"""AlterPartition: a leader's proposal is accepted, or refused with Kafka's errors in Kafka's order;
and what becomes of a partition when a broker has lost its log, found it, or reports its leader.

The order matters: a leader reads from the error whether to roll back, to wait for metadata
or to try again. A refused proposal changes nothing; an accepted one goes through the same
`next_registration` as every other change, so it may also complete a reassignment.
"""

from collections.abc import Callable, Mapping
from typing import TypeAlias

from tidelog.core.controller.election import ElectionRules, Target, next_registration
from tidelog.core.controller.events import IsrMember, IsrProposal
from tidelog.core.controller.metadata.registrations import (
    NO_EPOCH,
    BrokerRegistration,
    LeaderRecovery,
    PartitionRegistration,
)
from tidelog.core.errors import ErrorCode
from tidelog.core.slotted import slotted
from tidelog.core.types import BrokerEpoch, BrokerId, LeaderEpoch

LogChange: TypeAlias = Callable[
    [PartitionRegistration, BrokerId, ElectionRules], PartitionRegistration
]
"""How a broker's report changes a partition."""


@slotted(frozen=True)
class Alteration:
    """The error for the leader, and the partition as it will be (None: it stays).

    NEW_LEADER_ELECTED is an error and a change: the proposal completed a reassignment in
    which the sender has no place.
    """

    error: ErrorCode
    changed: PartitionRegistration | None = None


def check_sender(
    broker: BrokerId, epoch: BrokerEpoch, brokers: Mapping[BrokerId, BrokerRegistration]
) -> ErrorCode:
    """The whole request is void if its sender is not the current incarnation."""
    known = brokers.get(broker)
    if known is None or known.epoch != epoch:
        return ErrorCode.STALE_BROKER_EPOCH
    return ErrorCode.NONE


def alter_partition(
    partition: PartitionRegistration | None,
    proposal: IsrProposal,
    sender: BrokerId,
    brokers: Mapping[BrokerId, BrokerRegistration],
    rules: ElectionRules,
) -> Alteration:
    """Check one proposal against the partition as it is, and work out what it becomes."""
    if partition is None:
        return Alteration(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    error = _check_epochs(partition, proposal, sender) or _check_isr(partition, proposal)
    if error:
        return Alteration(error)
    if any(not _eligible(member, brokers) for member in proposal.isr):
        return Alteration(ErrorCode.INELIGIBLE_REPLICA)
    isr = tuple(member.broker for member in proposal.isr)
    changed = next_registration(partition, Target(isr=isr, recovery=proposal.recovery), rules)
    if changed.leader != sender:
        return Alteration(ErrorCode.NEW_LEADER_ELECTED, changed)
    return Alteration(ErrorCode.NONE, None if changed is partition else changed)


def lose_log(
    partition: PartitionRegistration, broker: BrokerId, rules: ElectionRules
) -> PartitionRegistration:
    """Its log is gone: whatever ISR and ELR said of it, it has nothing."""
    if broker not in partition.replicas:
        return partition
    return next_registration(partition, Target(lost=frozenset({broker})), rules)


def find_log(
    partition: PartitionRegistration, broker: BrokerId, rules: ElectionRules
) -> PartitionRegistration:
    """Its log is back. That counts only while the partition has had no leader since the loss: a
    broker makes a new log once it has a leader to follow, and that may hold less than was lost."""
    waits = partition.leader is None and broker in partition.last_known_elr
    if not waits or broker not in partition.lost:
        return partition
    return next_registration(partition, Target(found=frozenset({broker})), rules)


def damage_log(
    partition: PartitionRegistration, broker: BrokerId, rules: ElectionRules
) -> PartitionRegistration:
    """Take a replica whose log lacks records it once held out of the ISR and the ELR.

    Nothing else is stored: as a follower it gets the records again, and joins the ISR then. The
    leader epoch rises, even if it is in neither, so that no leader adds it to the ISR because of
    a fetch that it sent before the damage was found. A leader that is alone in the ISR stays:
    no other replica is known to have the records that it lacks.
    """
    alone = partition.leader == broker and partition.isr == (broker,)
    if broker not in partition.replicas or alone:
        return partition
    isr = tuple(member for member in partition.isr if member != broker)
    target = Target(isr=isr, unclean_shutdown=frozenset({broker}), damaged=True)
    return next_registration(partition, target, rules)


def replace_leader(
    partition: PartitionRegistration,
    reporter: BrokerId,
    rules: ElectionRules,
    leader_epoch: LeaderEpoch,
) -> PartitionRegistration:
    """Elect another leader: a replica reports that this one lacks committed records.

    The election is clean whether or not the report is right: every other member of the ISR, or
    else of the ELR, has all committed records. If none of them is active, nothing changes. The
    reported leader leaves ISR and ELR, as if it had reported damage itself.
    """
    accused = partition.leader
    if accused is None or partition.leader_epoch != leader_epoch:
        return partition
    if reporter == accused or reporter not in partition.replicas:
        return partition
    isr = tuple(member for member in partition.isr if member != accused)
    if not any(broker in rules.active for broker in isr or partition.elr):
        return partition
    target = Target(
        isr=isr, unclean_shutdown=frozenset({accused}), damaged=True, candidate=reporter
    )
    return next_registration(partition, target, rules)


def _check_epochs(
    partition: PartitionRegistration, proposal: IsrProposal, sender: BrokerId
) -> ErrorCode:
    newer_leader = proposal.leader_epoch > partition.leader_epoch
    if newer_leader or proposal.partition_epoch > partition.partition_epoch:
        # It knows more than this controller, which therefore is not the controller.
        return ErrorCode.NOT_CONTROLLER
    if proposal.leader_epoch < partition.leader_epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    if sender != partition.leader:
        return ErrorCode.INVALID_REQUEST
    if proposal.partition_epoch < partition.partition_epoch:
        return ErrorCode.INVALID_UPDATE_VERSION
    return ErrorCode.NONE


def _check_isr(partition: PartitionRegistration, proposal: IsrProposal) -> ErrorCode:
    members = [member.broker for member in proposal.isr]
    distinct = set(members)
    if len(distinct) < len(members) or not distinct <= set(partition.replicas):
        return ErrorCode.INVALID_REQUEST
    if partition.leader not in distinct:
        return ErrorCode.INVALID_REQUEST
    if proposal.recovery is LeaderRecovery.RECOVERING:
        already = partition.recovery is LeaderRecovery.RECOVERING
        if len(members) > 1 or not already:
            return ErrorCode.INVALID_REQUEST
    return ErrorCode.NONE


def _eligible(member: IsrMember, brokers: Mapping[BrokerId, BrokerRegistration]) -> bool:
    """Registered, not fenced, not stopping (KIP-841), and the incarnation meant (KIP-903)."""
    known = brokers.get(member.broker)
    if known is None or not known.active:
        return False
    return member.broker_epoch in (NO_EPOCH, known.epoch)
