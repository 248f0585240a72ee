"""The invariants of replicas.

Each rule is a small function over one replica, a pair of replicas, or the cluster. Rules over
replicas return None if they hold, or else a description of the violation. Rules over the cluster
yield violations; stories call them by name (`check acked-records-survive`).

The rules do not claim that

- replicas are equal at every moment: they rarely are;
- a record survives that was acknowledged with acks=0 or acks=1;
- a record survives that no disk has.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import combinations, pairwise
from typing import NamedTuple, TypeAlias

from tidelog.core.types import BrokerId, Offset
from tidelog.lab.spec.snapshot import ClusterSnapshot, LogEntry, ReplicaSnapshot

Broken: TypeAlias = str | None
"""None if a rule holds, or else a description of the violation."""


def offsets_in_order(replica: ReplicaSnapshot) -> Broken:
    """Check log start <= HW <= LEO (M02)."""
    start, mark, end = replica.log_start_offset, replica.high_watermark, replica.log_end_offset
    if start <= mark <= end:
        return None
    return f"log start {start}, HW {mark} and LEO {end} are out of order"


def stable_in_order(replica: ReplicaSnapshot) -> Broken:
    """Check log start <= LSO <= HW, and that no open transaction begins below the LSO (M03)."""
    stable, opened = replica.last_stable_offset, replica.open_transactions
    if stable is None:
        return None
    if not replica.log_start_offset <= stable <= replica.high_watermark:
        start, mark = replica.log_start_offset, replica.high_watermark
        return f"log start {start}, LSO {stable} and HW {mark} are out of order"
    below = [each for each, first in opened if first < stable]
    return f"LSO {stable} is past the open transaction of producer {below[0]}" if below else None


def log_in_order(replica: ReplicaSnapshot) -> Broken:
    """Check that offsets rise and epochs never fall along a log."""
    for before, after in pairwise(replica.log):
        if after.offset <= before.offset or after.epoch < before.epoch:
            return f"{after} (epoch {after.epoch}) follows {before} (epoch {before.epoch})"
    return None


def epochs_in_order(replica: ReplicaSnapshot) -> Broken:
    """Check that epochs and offsets rise in the epoch cache, and that it matches the log (M20)."""
    for before, after in pairwise(replica.epochs):
        if after.epoch <= before.epoch or after.start_offset <= before.start_offset:
            return f"epoch entry {tuple(after)} follows {tuple(before)}"
    entries = list(replica.epochs)
    index = -1
    for entry in replica.log:
        while index + 1 < len(entries) and entries[index + 1].start_offset <= entry.offset:
            index += 1
        if index < 0 or entries[index].epoch != entry.epoch:
            known = "none" if index < 0 else str(entries[index].epoch)
            return f"{entry} has epoch {entry.epoch}, the cache says {known}"
    return None


def first_difference(
    one: Sequence[LogEntry], other: Sequence[LogEntry], below: Offset
) -> tuple[LogEntry, LogEntry] | None:
    """Return the two records at the first offset before `below` at which the logs differ.

    Offsets at which only one log has a record do not count.
    """
    records = {entry.offset: entry for entry in other}
    for entry in one:
        if entry.offset >= below:
            return None
        facing = records.get(entry.offset)
        if facing is not None and facing != entry:
            return entry, facing
    return None


def logs_match(one: ReplicaSnapshot, other: ReplicaSnapshot) -> Broken:
    """Check that records with equal offset and epoch are equal, with equal logs before them."""
    records = {entry.offset: entry for entry in other.log}
    differed: LogEntry | None = None
    for entry in one.log:
        facing = records.get(entry.offset)
        if facing is None:
            continue
        if facing.epoch == entry.epoch and (facing.id != entry.id or differed is not None):
            return f"same epoch {entry.epoch} at {entry.offset}, other records: " + _two(
                differed or entry, records[(differed or entry).offset]
            )
        if facing != entry and differed is None:
            differed = entry
    return None


def committed_prefixes_agree(one: ReplicaSnapshot, other: ReplicaSnapshot) -> Broken:
    """Check that two logs agree below the smaller of their high watermarks."""
    difference = first_difference(one.log, other.log, min(one.high_watermark, other.high_watermark))
    return difference and _two(*difference)


def holds_all(replica: ReplicaSnapshot, records: Iterable[LogEntry]) -> list[LogEntry]:
    """Return those of `records` that the replica lacks, from its log start on."""
    present = set(replica.log)
    return [r for r in records if r not in present and r.offset >= replica.log_start_offset]


def _two(one: LogEntry, other: LogEntry) -> str:
    return f"{one.id} (epoch {one.epoch}) and {other.id} (epoch {other.epoch}) at {one.offset}"


class Violation(NamedTuple):
    """A violation of a rule: the brokers that it concerns, if any, and a description."""

    brokers: tuple[BrokerId, ...]
    what: str


def _each(
    cluster: ClusterSnapshot, rule: Callable[[ReplicaSnapshot], Broken]
) -> Iterator[Violation]:
    for replica in cluster.replicas.values():
        broken = rule(replica)
        if broken is not None:
            yield Violation((replica.broker,), broken)


def _each_pair(
    cluster: ClusterSnapshot, rule: Callable[[ReplicaSnapshot, ReplicaSnapshot], Broken]
) -> Iterator[Violation]:
    for one, other in combinations(cluster.replicas.values(), 2):
        broken = rule(one, other)
        if broken is not None:
            yield Violation((one.broker, other.broker), broken)


def hw_below_leo(cluster: ClusterSnapshot) -> Iterator[Violation]:
    """Invariant: on every replica, log start <= HW <= LEO."""
    yield from _each(cluster, offsets_in_order)


def lso_below_hw(cluster: ClusterSnapshot) -> Iterator[Violation]:
    """Invariant: on every replica, log start <= LSO <= HW, and open transactions begin above it."""
    yield from _each(cluster, stable_in_order)


def no_transaction_hangs(cluster: ClusterSnapshot) -> Iterator[Violation]:
    """Invariant: the coordinator knows each open transaction of the leader, so it will end it."""
    leader, unfinished = cluster.leader, cluster.unfinished
    if leader is None or unfinished is None:
        return
    for producer, first in leader.open_transactions:
        if producer not in unfinished:
            what = f"producer {producer} has an open transaction from offset {first} on"
            yield Violation((leader.broker,), f"{what}, and no marker will end it")


def aborted_records_unread(cluster: ClusterSnapshot) -> Iterator[Violation]:
    """Invariant: no read-committed consumer gets a record of a transaction that was aborted."""
    history = cluster.history
    read = [entry for entry in history.read_committed if entry.id in history.aborted]
    if read:
        yield Violation((), f"aborted, but read as committed: {_named(dict.fromkeys(read))}")


def epochs_monotonic(cluster: ClusterSnapshot) -> Iterator[Violation]:
    """Invariant: on every replica, epochs never fall along the log, and match the epoch cache."""
    yield from _each(cluster, log_in_order)
    yield from _each(cluster, epochs_in_order)


def log_matching(cluster: ClusterSnapshot) -> Iterator[Violation]:
    """Invariant: equal offset and epoch mean the same record, and the same log before it."""
    yield from _each_pair(cluster, logs_match)


def committed_agree(cluster: ClusterSnapshot) -> Iterator[Violation]:
    """Invariant: any two replicas agree below the smaller of their high watermarks."""
    yield from _each_pair(cluster, committed_prefixes_agree)


def logs_agree(cluster: ClusterSnapshot) -> Iterator[Violation]:
    """Once the cluster has settled, live replicas have the same record at each offset.

    Before that, the end of a log may differ until it is truncated.
    """
    alive = [replica for replica in cluster.replicas.values() if replica.alive]
    for one, other in combinations(alive, 2):
        end = min(one.log_end_offset, other.log_end_offset)
        difference = first_difference(one.log, other.log, end)
        if difference is not None:
            yield Violation((one.broker, other.broker), _two(*difference))


def isr_holds_committed(cluster: ClusterSnapshot) -> Iterator[Violation]:
    """Invariant: each ISR member has all records below the leader's high watermark (StrongIsr)."""
    leader = cluster.leader
    if leader is None:
        return
    shown = [entry for entry in leader.log if entry.offset < leader.high_watermark]
    for broker in sorted(cluster.controller.isr):
        missing = holds_all(cluster.replicas[broker], shown)
        if missing:
            yield Violation((broker,), f"in the ISR without {_named(missing)}")


def leader_complete(cluster: ClusterSnapshot) -> Iterator[Violation]:
    """Invariant: the leader has every record that was ever committed."""
    if cluster.leader is not None:
        missing = holds_all(cluster.leader, cluster.history.committed.values())
        if missing:
            leader = (cluster.leader.broker,)
            yield Violation(leader, f"leads without the committed {_named(missing)}")


def acked_survive(cluster: ClusterSnapshot) -> Iterator[Violation]:
    """Invariant: the leader has each record that acks=all acknowledged.

    Without a leader, a replica that may be elected has the record.
    """
    lost = _lost(cluster, cluster.history.acked)
    if lost:
        yield Violation((), f"acked, then lost: {_named(lost)}")


def consumers_see_no_change(cluster: ClusterSnapshot) -> Iterator[Violation]:
    """Invariant: each record that a consumer has read stays in the log, at the same offset."""
    lost = _lost(cluster, cluster.history.consumed)
    if lost:
        yield Violation((), f"read, then gone: {_named(lost)}")


def one_leader_per_epoch(cluster: ClusterSnapshot) -> Iterator[Violation]:
    """Invariant: two replicas never act as leader in the same epoch."""
    leaders = [r for r in cluster.replicas.values() if r.alive and r.leads]
    for one, other in combinations(leaders, 2):
        if one.leader_epoch == other.leader_epoch:
            both = (one.broker, other.broker)
            yield Violation(both, f"both lead epoch {one.leader_epoch}")


def _lost(cluster: ClusterSnapshot, records: Iterable[LogEntry]) -> list[LogEntry]:
    """Return the records that the leader lacks.

    Without a leader, return those that no member of the ISR or ELR has.
    """
    if cluster.leader is not None:
        return holds_all(cluster.leader, records)
    may_lead = cluster.controller.isr | cluster.controller.elr
    held = {entry for broker in may_lead for entry in cluster.replicas[broker].log}
    start = min((cluster.replicas[b].log_start_offset for b in may_lead), default=0)
    return [r for r in records if r not in held and r.offset >= start]


def _named(entries: Iterable[LogEntry]) -> str:
    return ", ".join(map(str, sorted(entries, key=lambda entry: entry.offset)))


INVARIANTS: dict[str, Callable[[ClusterSnapshot], Iterator[Violation]]] = {
    "hw-below-leo": hw_below_leo,
    "lso-below-hw": lso_below_hw,
    "no-transaction-hangs": no_transaction_hangs,
    "aborted-records-unread": aborted_records_unread,
    "epochs-monotonic": epochs_monotonic,
    "log-matching": log_matching,
    "committed-agree": committed_agree,
    "isr-holds-committed": isr_holds_committed,
    "leader-complete": leader_complete,
    "acked-records-survive": acked_survive,
    "consumers-see-no-change": consumers_see_no_change,
    "one-leader-per-epoch": one_leader_per_epoch,
    "logs-agree": logs_agree,
}
"""The rules by the names that stories use."""

ALWAYS = tuple(name for name in INVARIANTS if name != "logs-agree")
"""The rules that hold at every moment. `logs-agree` holds only once the cluster has settled."""
