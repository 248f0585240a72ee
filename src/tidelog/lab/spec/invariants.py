"""What must be true of replicas, said once.

Each rule is a small function over one replica, a pair, or the cluster; it returns None
where the rule holds and otherwise says what is wrong. The simulator calls the small ones
on what an event touched; stories call the whole by name (`check acked-records-survive`).

What no rule here claims: that replicas are equal at every moment (they never are), that a
record acknowledged with acks=0 or 1 survives, or that one survives which no disk kept.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import combinations, pairwise
from typing import NamedTuple, TypeAlias

from tidelog.core.types import BrokerId, Offset
from tidelog.lab.spec.snapshot import ClusterSnapshot, LogEntry, ReplicaSnapshot

Broken: TypeAlias = str | None
"""None where a rule holds, else what is wrong."""


def offsets_in_order(replica: ReplicaSnapshot) -> Broken:
    """log start <= HW <= LEO (M02)."""
    start, mark, end = replica.log_start_offset, replica.high_watermark, replica.log_end_offset
    if start <= mark <= end:
        return None
    return f"log start {start}, HW {mark} and LEO {end} are out of order"


def log_in_order(replica: ReplicaSnapshot) -> Broken:
    """Offsets rise and epochs never fall along a log."""
    for before, after in pairwise(replica.log):
        if after.offset <= before.offset or after.epoch < before.epoch:
            return f"{after} (epoch {after.epoch}) follows {before} (epoch {before.epoch})"
    return None


def epochs_in_order(replica: ReplicaSnapshot) -> Broken:
    """The epoch cache rises in both columns, and covers every record with its epoch (M20)."""
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
    """The first offset before `below` at which both logs have a record, not the same one."""
    records = {entry.offset: entry for entry in other}
    for entry in one:
        if entry.offset >= below:
            return None
        facing = records.get(entry.offset)
        if facing is not None and facing != entry:
            return entry, facing
    return None


def logs_match(one: ReplicaSnapshot, other: ReplicaSnapshot) -> Broken:
    """Records with the same offset and epoch are the same, and so is all before them."""
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
    """Two logs agree below the smaller of their high watermarks."""
    parted = first_difference(one.log, other.log, min(one.high_watermark, other.high_watermark))
    return parted and _two(*parted)


def holds_all(replica: ReplicaSnapshot, records: Iterable[LogEntry]) -> list[LogEntry]:
    """Those of `records` that the replica lacks though its log starts before them."""
    present = set(replica.log)
    return [r for r in records if r not in present and r.offset >= replica.log_start_offset]


def _two(one: LogEntry, other: LogEntry) -> str:
    return f"{one.id} (epoch {one.epoch}) and {other.id} (epoch {other.epoch}) at {one.offset}"


class Violation(NamedTuple):
    """A rule that does not hold: between which brokers, if any, and how."""

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
    """On every replica: log start <= HW <= LEO."""
    yield from _each(cluster, offsets_in_order)


def epochs_monotonic(cluster: ClusterSnapshot) -> Iterator[Violation]:
    """On every replica: epochs never fall along the log, and the cache says the same."""
    yield from _each(cluster, log_in_order)
    yield from _each(cluster, epochs_in_order)


def log_matching(cluster: ClusterSnapshot) -> Iterator[Violation]:
    """Same offset and same epoch mean the same record, and the same before it."""
    yield from _each_pair(cluster, logs_match)


def committed_agree(cluster: ClusterSnapshot) -> Iterator[Violation]:
    """Any two replicas agree below the smaller of their high watermarks."""
    yield from _each_pair(cluster, committed_prefixes_agree)


def logs_agree(cluster: ClusterSnapshot) -> Iterator[Violation]:
    """No two live replicas hold different records at one offset.

    Not always true: in flight, a tail that will be cut may differ. It is what must be true
    once the cluster has settled.
    """
    alive = [replica for replica in cluster.replicas.values() if replica.alive]
    for one, other in combinations(alive, 2):
        end = min(one.log_end_offset, other.log_end_offset)
        parted = first_difference(one.log, other.log, end)
        if parted is not None:
            yield Violation((one.broker, other.broker), _two(*parted))


def isr_holds_committed(cluster: ClusterSnapshot) -> Iterator[Violation]:
    """Whoever the controller may elect cleanly has all that the leader shows (StrongIsr)."""
    leader = cluster.leader
    if leader is None:
        return
    shown = [entry for entry in leader.log if entry.offset < leader.high_watermark]
    for broker in sorted(cluster.controller.isr):
        missing = holds_all(cluster.replicas[broker], shown)
        if missing:
            yield Violation((broker,), f"in the ISR without {_named(missing)}")


def leader_complete(cluster: ClusterSnapshot) -> Iterator[Violation]:
    """The leader has every record that was ever committed."""
    if cluster.leader is not None:
        missing = holds_all(cluster.leader, cluster.history.committed.values())
        if missing:
            leader = (cluster.leader.broker,)
            yield Violation(leader, f"leads without the committed {_named(missing)}")


def acked_survive(cluster: ClusterSnapshot) -> Iterator[Violation]:
    """What acks=all acknowledged is in the leader's log, or can still be led from."""
    lost = _lost(cluster, cluster.history.acked)
    if lost:
        yield Violation((), f"acked, then lost: {_named(lost)}")


def consumers_see_no_change(cluster: ClusterSnapshot) -> Iterator[Violation]:
    """What a consumer has read is still there, at the same offset."""
    lost = _lost(cluster, cluster.history.consumed)
    if lost:
        yield Violation((), f"read, then gone: {_named(lost)}")


def one_leader_per_epoch(cluster: ClusterSnapshot) -> Iterator[Violation]:
    """Two replicas may take themselves for the leader, but never in the same epoch."""
    leaders = [r for r in cluster.replicas.values() if r.alive and r.leads]
    for one, other in combinations(leaders, 2):
        if one.leader_epoch == other.leader_epoch:
            both = (one.broker, other.broker)
            yield Violation(both, f"both lead epoch {one.leader_epoch}")


def _lost(cluster: ClusterSnapshot, records: Iterable[LogEntry]) -> list[LogEntry]:
    """Records the leader lacks; with no leader, those that nobody who may lead has."""
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
"""Every rule by the name that stories use."""

ALWAYS = tuple(name for name in INVARIANTS if name != "logs-agree")
"""Those that hold at every moment; the last only once all is quiet."""
