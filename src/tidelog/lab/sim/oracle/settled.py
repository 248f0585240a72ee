"""Checks of a cluster that has recovered from all faults."""

from collections.abc import Collection, Mapping

from tidelog.core.record.record_batch import batches
from tidelog.core.types import TopicPartition
from tidelog.lab.sim.machine.process import Site
from tidelog.lab.sim.oracle.truth import Truth
from tidelog.lab.sim.text import describe_ends


def why_not_settled(
    site: Site, truths: Mapping[TopicPartition, Truth], excused: Collection[TopicPartition] = ()
) -> str | None:
    """Return the first reason why the cluster has not settled yet; None if it has."""
    down = [broker for broker, process in site.brokers.items() if process.node is None]
    if down:
        return f"brokers {down} are down"
    for name, truth in truths.items():
        if name in excused:
            continue
        why = _why_partition(site, name, truth)
        if why is not None:
            return f"{name}: {why}"
    return None


def given_up(site: Site, truths: Mapping[TopicPartition, Truth]) -> set[TopicPartition]:
    """Return the partitions that only an operator can repair.

    Several of their replicas lack records. They are offline, or a replica reports damage.
    """
    found = set()
    for name, truth in truths.items():
        strict = truth.loss_reports is None and truth.promise.is_intact()
        if strict or truth.registration is None:
            continue
        nodes = [process.node for process in site.brokers.values() if process.node is not None]
        if truth.registration.leader is None or any(name in n.directory.damaged for n in nodes):
            found.add(name)
    return found


def _why_partition(site: Site, name: TopicPartition, truth: Truth) -> str | None:
    known = truth.registration
    if known is None:
        return "the partition was never created"
    if known.reassigning:
        return f"the reassignment from {known.removing} to {known.adding} is not complete"
    if known.leader is None:
        return f"no leader; ISR {known.isr}, ELR {known.elr}"
    if set(known.isr) != set(known.replicas):
        return f"not all replicas are in sync: ISR {known.isr}, replicas {known.replicas}"
    ends = {}
    for broker in known.replicas:
        node = site.brokers[broker].node
        replica = None if node is None else node.replicas.get(name)
        if replica is None:
            return f"broker {broker} has no replica"
        partition = replica.partition
        if partition.leader_epoch != known.leader_epoch:
            return f"broker {broker} is still in epoch {partition.leader_epoch}"
        ends[broker] = (partition.log_end_offset, partition.high_watermark)
        if broker in truth.promise.damaged and not truth.shadows[broker].is_sound(
            site.brokers[broker].disk
        ):
            return f"broker {broker} holds damaged records"
    leader_end = ends[known.leader][0]
    if any(end != (leader_end, leader_end) for end in ends.values()):
        return describe_ends(ends)
    return None


def check_equal_logs(site: Site, name: TopicPartition, truth: Truth) -> None:
    """Check that all replicas have all committed records, at the same offsets."""
    known = truth.registration
    if known is None or known.leader is None:
        return
    leader = truth.shadows[known.leader]
    for broker in known.replicas:
        shadow = truth.shadows[broker]
        truth.check_log_start(shadow, "after the cluster has settled")
        first = max(leader.start, shadow.start)
        ends = min(leader.end, shadow.end)
        for offset in range(first, ends):
            if leader.entry(offset) != shadow.entry(offset):
                what = (
                    f"the settled logs differ at offset {offset}: broker {known.leader} has "
                    f"{leader.entry(offset)}, broker {broker} has {shadow.entry(offset)}"
                )
                truth.report("logs-agree", what)
                break
    missing = leader.first_difference(truth.committed)
    if missing is not None:
        what = f"the settled leader lacks the committed record at offset {missing}"
        truth.report("acked-records-survive", what)
    _check_duplicates(site, name, truth)


def check_repaired(truth: Truth) -> None:
    """Check that every damaged replica is in sync, with the same records as the leader."""
    assert truth.registration is not None
    left = truth.promise.damaged.intersection(truth.registration.replicas)
    if left:
        truth.report("settles", f"brokers {sorted(left)} are damaged and not repaired")


def _check_duplicates(site: Site, name: TopicPartition, truth: Truth) -> None:
    """Check that the log has each sequence number of a producer's epoch only once.

    Markers, and the offsets that a group coordinator writes, have no sequence number.
    """
    assert truth.registration is not None
    assert truth.registration.leader is not None
    node = site.brokers[truth.registration.leader].node
    replica = None if node is None else node.replicas.get(name)
    if replica is None:
        return
    log = replica.log
    offset = log.log_start_offset
    seen: dict[tuple[int, int, int], int] = {}
    while offset < log.log_end_offset:
        for batch in batches(log.read_bytes(log.read(offset, 1 << 20))):
            offset = batch.next_offset
            if batch.has_producer and batch.base_sequence >= 0:
                key = batch.producer_id, batch.producer_epoch, batch.base_sequence
                if key in seen:
                    twice = f"at offsets {seen[key]} and {batch.base_offset}"
                    truth.report(
                        "no-duplicates",
                        f"producer id {key[0]}, epoch {key[1]}, sequence {key[2]} {twice}",
                    )
                seen[key] = batch.base_offset
