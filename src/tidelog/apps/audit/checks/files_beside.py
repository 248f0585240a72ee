"""Check the files beside a segment against the whole log."""

from collections import Counter

from tidelog.apps.audit.checks.replica_log import METADATA_TOPIC, ReplicaLog, SegmentSummary
from tidelog.apps.audit.scan.producers import follow_transactions
from tidelog.apps.audit.scan.summary import Aborted, Remark
from tidelog.core.lineage.transaction_index import ENTRY_SIZE
from tidelog.core.storage import layout

Aborts = dict[tuple[int, int], Aborted]
SPARSE = 3
"""An index is damaged if its largest gap exceeds that of other replicas by this factor.

A broker that restarts counts the bytes from zero, so somewhat larger gaps are normal.
"""
INTERVAL_BYTES = 4096
SPARSE_ALONE = 8
"""The same factor on Kafka's default interval, if no other replica shows the configured one."""


def check_files(log: ReplicaLog, others: list[ReplicaLog]) -> None:
    """Check snapshots, sparse indexes and transaction indexes of a log."""
    log.add(*log.place.remarked(log.folder.remarks))
    if log.folder.error:
        log.add(log.place.finding("unreadable", "", log.folder.error))
    _snapshots(log)
    _producers(log, others)
    newest = log.in_place[-1].file if log.in_place else ""
    open_from = max([s.base_offset for s in log.segments if s.file == newest], default=0)
    stretches = [stretch for segment in log.segments for stretch in segment.stretches]
    crowded = any(stretch.crowded for stretch in stretches)
    aborts = follow_transactions(stretches)
    for segment in log.segments:
        closed = log.clean or segment.base_offset < open_from
        _indexes(log, segment, closed)
        if closed:
            _sparse(log, segment, others)
        if not crowded:
            _transactions(log, segment, aborts)


def _snapshots(log: ReplicaLog) -> None:
    """Check the offsets of producer snapshots.

    No snapshot may be for an offset above the log end. After a clean shutdown, one for the log
    end must exist.
    """
    beyond = [offset for offset in log.folder.snapshots if offset > log.log_end]
    if beyond and log.clean and log.segments and not log.has_damage_in(log.log_end, beyond[0]):
        file = layout.file_name(beyond[0], layout.SNAPSHOT)
        text = f"the snapshot is for offset {beyond[0]}; the log ends at {log.log_end}"
        log.add(log.place.finding("producer-snapshot", file, text))
    file = layout.file_name(log.log_end, layout.SNAPSHOT)
    unsound = any(remark.file == file for remark in log.folder.remarks)
    if beyond or unsound or log.log_end in log.folder.snapshots or not log.in_place:
        return
    if log.clean and log.topic != METADATA_TOPIC and not log.damaged and not log.is_read_in_part:
        newest = f"newest {log.folder.snapshots[-1]}" if log.folder.snapshots else "none exists"
        text = f"the snapshot for the log end {log.log_end} is missing ({newest})"
        log.add(log.place.finding("producer-snapshot", file, text))


def _producers(log: ReplicaLog, others: list[ReplicaLog]) -> None:
    """Check that snapshots for the same offset agree on each producer that both contain."""
    newest = log.folder.snapshots[-1:]
    file = layout.file_name(newest[0], layout.SNAPSHOT) if newest else ""
    if not newest or log.damaged or any(each.file == file for each in log.folder.remarks):
        return
    same = [
        each
        for each in others
        if each.folder.snapshots[-1:] == newest and each.digest == log.digest
    ]
    for key, here in log.folder.producers.items():
        there = Counter(each.folder.producers.get(key, here) for each in same)
        if there[here] * 2 < len(same):
            other = there.most_common(1)[0][0]
            text = f"producer {key} has {_last(here)} here, {_last(other)} on other replicas"
            log.add(log.place.finding("producer-snapshot", file, text))
            return


def _last(batch: tuple[int, int, int, int]) -> str:
    epoch, sequence, offset, timestamp = batch
    return f"epoch {epoch}, sequence number {sequence} at offset {offset}, timestamp {timestamp}"


def _sparse(log: ReplicaLog, segment: SegmentSummary, others: list[ReplicaLog]) -> None:
    """Report an offset index that lacks entries.

    Brokers add one for each `index.interval.bytes`.
    """
    file = segment.file[: -len(layout.LOG)] + layout.OFFSET_INDEX
    head = segment.stretches[0]
    damaged = {each.file.rpartition("/")[2] for each in log.findings if each.is_damage}
    if damaged & {file, segment.file} or segment.file in log.reshaped:
        return
    bare = max(each.index_bare for each in segment.stretches)
    same = (segment.file, segment.size)
    peers = [s for other in others for s in other.segments if (s.file, s.size) == same]
    usual = [_usual(peer) for peer in peers if peer.stretches[0].index_gap >= 0]
    limit = SPARSE * min(usual) if usual else SPARSE_ALONE * max(INTERVAL_BYTES, head.index_gap)
    empty = head.index_gap < 0
    if bare > limit:
        kind = "offset-index"
    elif usual and empty and bare >= min(usual):
        kind = "index-sparse"
    else:
        return
    what = "the index is empty" if empty else f"no entry for {bare} bytes"
    why = f"every {min(usual)} on other replicas" if usual else f"segment size {segment.size}"
    log.add(log.place.finding(kind, file, f"{what}: {why}", position=0 if empty else -1))


def _usual(peer: SegmentSummary) -> int:
    bare = max(each.index_bare for each in peer.stretches)
    return max(bare, peer.stretches[0].index_gap)


def _indexes(log: ReplicaLog, segment: SegmentSummary, closed: bool) -> None:
    head = segment.stretches[0]
    if segment.file in log.reshaped:
        return  # batches moved, so the entries can't match
    remarks = [each for stretch in segment.stretches for each in stretch.remarks if each.file]
    first: dict[str, Remark] = {}
    for each in sorted(remarks, key=lambda remark: remark.position):
        if log.has_damage_in(each.first, each.last):
            continue
        if not segment.base_offset <= each.first < log.log_end:  # not an offset of this log
            each = each._replace(first=-1, last=-1)
        first.setdefault(each.file, each)
    for name, position in head.indexes_reserved if closed else ():
        kind = "time-index" if name.endswith(layout.TIME_INDEX) else "offset-index"
        text = "zeros after its entries; the index of a closed segment must not have any"
        first.setdefault(name, Remark(kind, name, position, -1, -1, text))
    log.add(*log.place.remarked(first.values()))
    for name in head.indexes_missing:
        if segment.batches and not segment.vanished:
            log.add(
                log.place.finding("index-missing", name, f"the index of {segment.file} is missing")
            )
    file = segment.file[: -len(layout.LOG)] + layout.TIME_INDEX
    youngest = segment.max_timestamp
    if not closed or file in first or file in head.indexes_missing or youngest < 0:
        return
    if log.has_damage_in(segment.base_offset, max(run.last for run in segment.runs)):
        return
    found = head.time_last
    if found is None or found[0] != youngest:
        what = "the index is empty" if found is None else f"its last entry has timestamp {found[0]}"
        text = f"{what}; the newest batch of the segment has {youngest}"
        log.add(log.place.finding("time-index", file, text))


def _transactions(log: ReplicaLog, segment: SegmentSummary, aborts: Aborts) -> None:
    """Check that each entry has an abort marker, and each abort marker has an entry."""
    file = segment.file[: -len(layout.LOG)] + layout.TXN_INDEX
    if any(remark.file == file for remark in log.folder.remarks) or segment.vanished:
        return
    markers = {each[0:3:2] for stretch in segment.stretches for each in stretch.aborted}
    rows = log.folder.aborted.get(file, [])
    for number, row in enumerate(rows):
        producer_id, first, marker, stable = row
        known = aborts.get((producer_id, marker)) if (producer_id, marker) in markers else None
        begun = known.first if known else -1
        if log.has_damage_in(min(first, begun) if begun >= 0 else first, marker):
            continue
        unseen = known is None or (known.earlier and first < log.segments[0].base_offset)
        if known is None and not log.cleaning.compacted:
            text = f"producer {producer_id} has no abort marker at offset {marker}"
        elif begun != first and begun >= 0 and not unseen:
            text = f"producer {producer_id}'s transaction began at {begun}, the entry has {first}"
        elif known and stable != known.stable and _is_stable_known(log, stable):
            text = f"the last stable offset was {known.stable}, the entry has {stable}"
        else:
            continue
        offsets, position = (first, marker), number * ENTRY_SIZE
        found = log.place.finding("transaction-index", file, text, position=position)
        log.add(found._replace(first_offset=offsets[0], last_offset=offsets[1]))
        return
    entries = {(row[0], row[2]) for row in rows}
    for producer_id, marker in sorted(markers - entries, key=lambda each: each[1]):
        first = aborts[producer_id, marker].first
        if first < 0 or marker >= log.log_end or log.has_damage_in(first, marker):
            continue
        text = f"the abort of producer {producer_id} at offset {marker} has no entry"
        log.add(log.place.finding("transaction-index", file, text, offsets=(first, marker)))
        return


def _is_stable_known(log: ReplicaLog, stable: int) -> bool:
    """Return whether the audit saw all transactions that could be open."""
    return not log.damaged and not log.cleaning.compacted and stable >= log.segments[0].base_offset
