"""How a request changes one partition: AlterPartition, log reports, reassignments, elections.

An ISR proposal of a leader is accepted, or refused with Kafka's errors in Kafka's order. The
order matters: the error tells the leader whether to roll back, to wait for metadata or to retry.
A refused proposal changes nothing; an accepted one uses the same `next_registration` as
every other change, so it may also complete a reassignment.

A reassignment begins by adding the target brokers to the replicas; it ends inside an ISR change,
when all of them are in sync (election.py). Cancelling it removes the added replicas.
"""

from collections.abc import Callable, Mapping
from typing import TypeAlias

from tidelog.core.controller.election import ElectionRules, Target, next_registration
from tidelog.core.controller.events import ElectionType, IsrMember, IsrProposal
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
    """The error for the leader, and the changed partition (None: unchanged).

    NEW_LEADER_ELECTED is an error and a change: the proposal completed a reassignment that
    removes the sender.
    """

    error: ErrorCode
    changed: PartitionRegistration | None = None


def check_sender(
    broker: BrokerId, epoch: BrokerEpoch, brokers: Mapping[BrokerId, BrokerRegistration]
) -> ErrorCode:
    """Return an error for the whole request unless it is from the broker's current incarnation."""
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
    """Check an ISR proposal against the current partition, and return the outcome."""
    if partition is None:
        return Alteration(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    error = _check_epochs(partition, proposal, sender) or _check_isr(partition, proposal)
    if error:
        return Alteration(error)
    if any(
        not _eligible(member, brokers) or member.broker in partition.offline
        for member in proposal.isr
    ):
        return Alteration(ErrorCode.INELIGIBLE_REPLICA)
    isr = tuple(member.broker for member in proposal.isr)
    changed = next_registration(partition, Target(isr=isr, recovery=proposal.recovery), rules)
    if changed.leader != sender:
        return Alteration(ErrorCode.NEW_LEADER_ELECTED, changed)
    return Alteration(ErrorCode.NONE, None if changed is partition else changed)


def lose_log(
    partition: PartitionRegistration, broker: BrokerId, rules: ElectionRules
) -> PartitionRegistration:
    """Remove a broker that lost its log from the ISR and the ELR."""
    if broker not in partition.replicas:
        return partition
    return next_registration(partition, Target(lost=frozenset({broker})), rules)


def take_offline(
    partition: PartitionRegistration, broker: BrokerId, rules: ElectionRules
) -> PartitionRegistration:
    """Remove a broker whose log directory failed from the ISR and the ELR.

    The log is not lost: without another replica in sync, the partition has no leader until the
    directory is back. The leader epoch rises, so that the leader discards what it knows of this
    replica's log. Otherwise the high watermark would wait for a replica that was caught up
    recently.
    """
    if broker not in partition.replicas or broker in partition.offline:
        return partition
    target = Target(offline=frozenset({broker}), damaged=True)
    return next_registration(partition, target, rules)


def find_log(
    partition: PartitionRegistration, broker: BrokerId, rules: ElectionRules
) -> PartitionRegistration:
    """Count a log whose directory is back; or one that was lost and is back, if the partition has
    had no leader since the loss.

    With a leader to follow, the broker creates a new log, which may hold less than was lost.
    """
    if broker in partition.offline:
        return next_registration(partition, Target(found=frozenset({broker})), rules)
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
    reported = partition.leader
    if reported is None or partition.leader_epoch != leader_epoch:
        return partition
    if reporter == reported or reporter not in partition.replicas:
        return partition
    isr = tuple(member for member in partition.isr if member != reported)
    if not any(broker in rules.active for broker in isr or partition.elr):
        return partition
    target = Target(
        isr=isr, unclean_shutdown=frozenset({reported}), damaged=True, candidate=reporter
    )
    return next_registration(partition, target, rules)


def _check_epochs(
    partition: PartitionRegistration, proposal: IsrProposal, sender: BrokerId
) -> ErrorCode:
    newer_leader = proposal.leader_epoch > partition.leader_epoch
    if newer_leader or proposal.partition_epoch > partition.partition_epoch:
        # The sender has seen newer metadata, so this broker is no longer the controller.
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


def reassign(
    partition: PartitionRegistration, wanted: tuple[BrokerId, ...], rules: ElectionRules
) -> tuple[ErrorCode, PartitionRegistration]:
    """Begin a reassignment, or redirect one: remove brokers that only the earlier target added."""
    original = [broker for broker in partition.replicas if broker not in partition.adding]
    removing = tuple(broker for broker in original if broker not in wanted)
    replicas = (*wanted, *removing)
    if partition.isr and not set(partition.isr) & set(replicas):
        return ErrorCode.INVALID_REPLICA_ASSIGNMENT, partition
    target = Target(
        replicas=replicas,
        adding=tuple(broker for broker in wanted if broker not in original),
        removing=removing,
    )
    return ErrorCode.NONE, next_registration(partition, target, rules)


def cancel(
    partition: PartitionRegistration, rules: ElectionRules
) -> tuple[ErrorCode, PartitionRegistration]:
    """Return to the original replicas, unless none of them is in sync any more."""
    if not partition.reassigning:
        return ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, partition
    replicas = tuple(broker for broker in partition.replicas if broker not in partition.adding)
    if partition.isr and not set(partition.isr) & set(replicas):
        return ErrorCode.INVALID_REPLICA_ASSIGNMENT, partition
    target = Target(replicas=replicas, adding=(), removing=())
    return ErrorCode.NONE, next_registration(partition, target, rules)


def elect_on_request(
    partition: PartitionRegistration, election: ElectionType, rules: ElectionRules
) -> tuple[ErrorCode, PartitionRegistration]:
    """Elect the preferred replica, or any live replica (unclean), as an administrator asks."""
    preferred = election is ElectionType.PREFERRED
    if preferred and partition.leader == partition.replicas[0]:
        return ErrorCode.ELECTION_NOT_NEEDED, partition
    if not preferred and partition.leader is not None:
        return ErrorCode.ELECTION_NOT_NEEDED, partition
    new = next_registration(partition, Target(election=election), rules)
    if new.leader == partition.leader:
        failed = (
            ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
            if preferred
            else ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE
        )
        return failed, partition
    return ErrorCode.NONE, new
