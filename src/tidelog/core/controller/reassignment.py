"""Moving a partition to other replicas, and elections that an administrator asks for.

A move begins by joining the target to the replicas; it ends inside an ISR change, when all
that were added are in sync (`election`). Taking it back drops what was added.
"""

from tidelog.core.controller.election import ElectionRules, Target, next_registration
from tidelog.core.controller.events import ElectionType
from tidelog.core.controller.metadata.registrations import PartitionRegistration
from tidelog.core.errors import ErrorCode
from tidelog.core.types import BrokerId


def reassign(
    partition: PartitionRegistration, wanted: tuple[BrokerId, ...], rules: ElectionRules
) -> tuple[ErrorCode, PartitionRegistration]:
    """Begin a move, or redirect one: what an earlier target added and this one lacks goes."""
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
    """Go back to the replicas there were, unless none of them is in sync any more."""
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
    """ElectLeaders: back to the preferred replica, or at any price to some replica."""
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
