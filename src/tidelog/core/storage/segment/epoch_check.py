"""Comparison of the leader epochs in batch headers with those in `leader-epoch-checkpoint`.

No checksum covers either of them, but epochs never go back along a log. So the file is right if
its epochs match the first and the last batch of the log and the batches on both sides of each
start offset: `file_is_right` reads only those headers. If one of them differs, either that batch or
the file is damaged. Then `epochs_of` reads all headers. A few batches that break the order of the
others are damaged; so is a single batch of an epoch that is not in the file, because an epoch is
written to the file before its first record.
"""

from collections.abc import Iterable, Iterator
from contextlib import suppress

from tidelog.core.lineage.leader_epochs import LeaderEpochs
from tidelog.core.slotted import slotted
from tidelog.core.storage.disk import DiskError
from tidelog.core.storage.segment.segment import Segment
from tidelog.core.storage.segment.segments import Segments
from tidelog.core.types import EpochEntry, LeaderEpoch, Offset

NO_EPOCH: LeaderEpoch = -1
"""The epoch of a batch that was written before leader epochs existed."""


@slotted
class EpochRun:
    """Adjacent batches of one leader epoch."""

    epoch: LeaderEpoch
    first: Offset
    """Base offset of the first batch."""
    last: Offset
    """Last offset of the last batch."""
    batches: int


def contradicts(epochs: LeaderEpochs, offset: Offset, found: LeaderEpoch) -> bool:
    """Whether a batch at this offset has another leader epoch than it should."""
    filed = epochs.epoch_for_offset(offset)
    return filed is not None and found not in (filed, NO_EPOCH)


def file_is_right(epochs: LeaderEpochs, segments: Segments, start: Offset, end: Offset) -> bool:
    """Whether the batches at the start and end of each epoch match; reads few headers."""
    entries = epochs.entries
    if start >= end or not entries:
        return True
    offsets = [start]
    for _, first in entries:
        if start < first < end:
            offsets += (first - 1, first)
    offsets.append(end - 1)
    try:
        return not any(
            contradicts(epochs, base, epoch) or contradicts(epochs, last, epoch)
            for base, last, epoch in _found_at(segments, offsets)
        )
    except DiskError:
        return True  # readers will find the damage


def _found_at(
    segments: Segments, offsets: Iterable[Offset]
) -> Iterator[tuple[Offset, Offset, LeaderEpoch]]:
    """Yield base offset, last offset and epoch of the batches that contain these ascending
    offsets, or follow them. Headers are read forward once."""
    segment = segments.first
    headers = segment.walk_epochs(0)
    position, reached = 0, -1
    for offset in offsets:
        if offset <= reached:
            continue
        holder = next(segments.from_offset(offset))
        floor = holder.offset_index.floor_by_offset(offset)
        if holder is not segment or floor > position:
            segment, headers = holder, holder.walk_epochs(floor)
        for header in headers:
            position, base_offset, reached, epoch = header
            if reached >= offset:
                yield base_offset, reached, epoch
                break


def epochs_of(segments: Iterable[Segment], filed: LeaderEpochs) -> tuple[LeaderEpochs, bool]:
    """Return the leader epochs of the headers, and whether those in the file are the same."""
    known = {entry.epoch for entry in filed.entries}
    accepted: list[EpochRun] = []
    for run in _runs(segments):
        if known and run.batches == 1 and run.epoch not in known:
            continue
        while accepted and accepted[-1].epoch > run.epoch:
            if accepted[-1].batches > run.batches:
                break
            accepted.pop()
        else:
            _add(accepted, run)
    same = not any(
        contradicts(filed, offset, run.epoch)
        for run in accepted
        for offset in (run.first, run.last)
    )
    return LeaderEpochs([EpochEntry(run.epoch, run.first) for run in accepted]), same


def _add(accepted: list[EpochRun], run: EpochRun) -> None:
    if accepted and accepted[-1].epoch == run.epoch:
        accepted[-1].last = run.last
        accepted[-1].batches += run.batches
    else:
        accepted.append(run)


def _runs(segments: Iterable[Segment]) -> Iterator[EpochRun]:
    run: EpochRun | None = None
    for segment in segments:
        with suppress(DiskError):  # the rest of a segment after a damaged header can't be read
            for span in segment.spans():
                if span.leader_epoch < 0:
                    continue
                if run is not None and run.epoch == span.leader_epoch:
                    run.last = span.last_offset
                    run.batches += 1
                    continue
                if run is not None:
                    yield run
                run = EpochRun(span.leader_epoch, span.base_offset, span.last_offset, 1)
    if run is not None:
        yield run
