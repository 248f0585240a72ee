"""The invariants of the published models, and the goals that keep a check from being vacuous.

Every property is a conjunction over pairs of replicas, so a search can look it up pair by pair.
"""

from tidelog.lab.modelcheck.published.replication import NONE, Quorum, Replica, Size

TYPE_OK = "TypeOk"
LEADER_IN_ISR = "LeaderInIsr"
HIGH_WATERMARK_IN_LOG = "HighWatermarkInLog"
WEAK_ISR = "WeakIsr"
STRONG_ISR = "StrongIsr"
PUBLISHED = (TYPE_OK, LEADER_IN_ISR, HIGH_WATERMARK_IN_LOG, WEAK_ISR, STRONG_ISR)

FOLLOWER_AGREES = "FollowerOfSameEpochAgrees"
COMMITTED_AGREE = "CommittedPrefixesAgree"
EPOCH_NAMES_PREFIX = "SameEpochSamePrefix"
EXTRA = (FOLLOWER_AGREES, COMMITTED_AGREE, EPOCH_NAMES_PREFIX)

MEANING = {
    TYPE_OK: "every value is in its range",
    LEADER_IN_ISR: "the leader, if there is one, is in the ISR",
    HIGH_WATERMARK_IN_LOG: "no high watermark is above the end of its log",
    WEAK_ISR: "each ISR member of a leader has all records that this leader has committed",
    STRONG_ISR: "each replica that may be elected has all records that any leader has committed",
    FOLLOWER_AGREES: "a follower has no record that differs from its leader's in one epoch",
    COMMITTED_AGREE: "two logs are equal below the smaller of their high watermarks",
    EPOCH_NAMES_PREFIX: "logs with the same epoch at an offset are equal up to it",
}

COMMITTED = "a record is committed"
SUCCEEDED = "a second leader takes over"
DROPPED = "a record is truncated everywhere"
SHRUNK = "the leader shrinks the ISR"
EXPANDED = "the leader expands the ISR"
GOALS = (COMMITTED, SUCCEEDED, DROPPED, SHRUNK, EXPANDED)


def broken_by_replica(replica: Replica, size: Size) -> tuple[str, ...]:
    """Check that values are in range and the high watermark is at most the log end."""
    names = range(size.replicas)
    well_formed = (
        replica.log_end_offset <= size.log_size
        and all(record.id < size.max_records for record in replica.log)
        and all(0 <= record.epoch <= size.max_leader_epoch for record in replica.log)
        and 0 <= replica.high_watermark <= size.log_size
        and NONE <= replica.leader_epoch <= size.max_leader_epoch
        and (replica.leader == NONE or replica.leader in names)
        and replica.isr.issubset(names)
    )
    inside = replica.high_watermark <= replica.log_end_offset
    return (() if well_formed else (TYPE_OK,)) + (() if inside else (HIGH_WATERMARK_IN_LOG,))


def broken_by_quorum(quorum: Quorum, size: Size) -> tuple[str, ...]:
    """Check that the leader is in the ISR, or NONE: before the first election or between two."""
    names = range(size.replicas)
    well_formed = (
        quorum.leader_epoch <= size.max_leader_epoch
        and quorum.next_record_id <= size.max_records
        and quorum.isr.issubset(names)
        and all(r.leader == NONE or r.leader in names for r in quorum.requests)
    )
    led = quorum.leader == NONE or quorum.leader in quorum.isr
    return (() if well_formed else (TYPE_OK,)) + (() if led else (LEADER_IN_ISR,))


def holds_committed(leader: Replica, member: Replica) -> bool:
    """Return whether both logs are equal below the leader's high watermark.

    For every member of the leader's own ISR this is WeakIsr; of the quorum's ISR, StrongIsr.
    """
    end = leader.high_watermark
    return leader.log_end_offset >= end and leader.log[:end] == member.log[:end]


def broken_by_pair(one: Replica, other: Replica) -> tuple[str, ...]:
    """Return the extra invariants that this ordered pair of replicas breaks."""
    broken = []
    end = min(one.log_end_offset, other.log_end_offset)
    if (
        one.presumes_leadership
        and (other.leader, other.leader_epoch) == (one.name, one.leader_epoch)
        and one.log[:end] != other.log[:end]
    ):
        broken.append(FOLLOWER_AGREES)
    committed = min(one.high_watermark, other.high_watermark)
    if one.log[:committed] != other.log[:committed]:
        broken.append(COMMITTED_AGREE)
    if any(
        one.log[offset].epoch == other.log[offset].epoch
        and one.log[: offset + 1] != other.log[: offset + 1]
        for offset in range(end)
    ):
        broken.append(EPOCH_NAMES_PREFIX)
    return tuple(broken)


def goals_reached(quorum: Quorum, replicas: list[Replica]) -> set[str]:
    """Return the goals that this state meets."""
    reached = set()
    if any(r.presumes_leadership and r.high_watermark > 0 for r in replicas):
        reached.add(COMMITTED)
    if any(
        r.presumes_leadership and quorum.requests[0].leader not in (NONE, r.name) for r in replicas
    ):
        reached.add(SUCCEEDED)
    if len({record.id for r in replicas for record in r.log}) < quorum.next_record_id:
        reached.add(DROPPED)
    if quorum.requests and quorum.isr < quorum.requests[-1].isr:
        reached.add(SHRUNK)
    if quorum.requests and quorum.isr > quorum.requests[-1].isr:
        reached.add(EXPANDED)
    return reached
