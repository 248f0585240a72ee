"""Checks whether a batch can be the next one in the log.

A batch's checksum does not cover the fields that the broker sets: offset and leader epoch. A
flipped bit in them shows only by comparison with other batches. Offsets continue without gaps,
unless the log was compacted; then a batch is wrong if the next batch's offset fits in its place,
but not after it. Epochs never go back, and `leader-epoch-checkpoint` (the file) has every epoch,
because it is written before the first record of an epoch.

The file may have too many epochs: Kafka writes it late after a truncation. If records of one epoch
continue after the start of the next epoch in the file, the file is wrong.

The file may also be damaged, or an old copy. If a batch and the file disagree, the neighbouring
batches decide: if no epoch goes back, the file is wrong. The last batch has no later neighbour: a
new epoch there is damage if earlier batches matched the file, or if the file does not have it.

`file_is_right` and `epochs_of` compare the epochs of a whole log with the file, at startup. The
file is right if its epochs match the first and the last batch of the log and the batches on both
sides of each start offset: `file_is_right` reads only those headers. If one of them differs, either
that batch or the file is damaged. Then `epochs_of` reads all headers. A few batches that break the
order of the others are damaged; so is a single batch of an epoch that is not in the file.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress

from tidelog.core.lineage.leader_epochs import LeaderEpochs
from tidelog.core.record.record_batch import RecordBatch
from tidelog.core.slotted import slotted
from tidelog.core.storage.disk import DiskError
from tidelog.core.storage.segment.batch_scan import BatchSpan
from tidelog.core.storage.segment.segment import RELATIVE_OFFSET_MAX, Segment
from tidelog.core.storage.segment.segments import Segments
from tidelog.core.types import EpochEntry, LeaderEpoch, Offset


class BatchOrder:
    """Checks batches in the order of the log, and corrects the leader epochs to match."""

    __slots__ = (
        "_base",
        "_confirmed",
        "_expected",
        "_from_file",
        "_gaps_allowed",
        "_last_epoch",
        "epochs",
        "file_is_wrong",
    )

    def __init__(self, epochs: LeaderEpochs, gaps_allowed: bool) -> None:
        self.epochs = epochs
        self._gaps_allowed = gaps_allowed
        self._from_file = epochs.latest is not None
        """Whether the epochs are from the file; else they are taken from the batches."""
        self._confirmed = False
        """Whether a batch matched the file."""
        self.file_is_wrong = False
        """Whether the log contradicts the file, so that its epochs must not be used."""
        self._last_epoch: LeaderEpoch = -1
        self._base = self._expected = 0

    def begin_segment(self, base_offset: Offset) -> None:
        self._base = self._expected = base_offset

    def skip_to(self, offset: Offset) -> None:
        """Expect this offset next: the records before it are damaged."""
        self._expected = offset

    def problem(self, batch: RecordBatch, following: Callable[[], BatchSpan | None]) -> str | None:
        """Return why the batch can't be the next one; None if it can, and then it is recorded.
        `following` returns the header of the batch after it."""
        if not self._offset_follows(batch, following):
            return f"offset {batch.base_offset} instead of {self._expected}"
        if not self._epoch_follows(batch, following):
            return f"wrong leader epoch {batch.leader_epoch} at offset {batch.base_offset}"
        self._expected = batch.next_offset
        self._last_epoch = batch.leader_epoch
        return None

    def _offset_follows(
        self, batch: RecordBatch, following: Callable[[], BatchSpan | None]
    ) -> bool:
        if batch.last_offset - self._base > RELATIVE_OFFSET_MAX:
            return False
        if not self._gaps_allowed or batch.base_offset <= self._expected:
            return batch.base_offset == self._expected
        after = following()
        return after is None or not self._expected <= after.base_offset <= batch.last_offset

    def _epoch_follows(self, batch: RecordBatch, following: Callable[[], BatchSpan | None]) -> bool:
        if self._from_file:
            if self._epoch_is_filed(batch):
                self._confirmed = True
                return True
            if not self._refutes_file(batch.leader_epoch, following()):
                return False
            self._from_file = False
            self.file_is_wrong = True
        return self._epoch_grows(batch)

    def _refutes_file(self, epoch: LeaderEpoch, following: BatchSpan | None) -> bool:
        """Whether a batch is right although the file has another epoch for its offset."""
        if following is None:
            file_is_newer = not self._confirmed and epoch < self.epochs.entries[-1].epoch
            return epoch >= 0 and (epoch == self._last_epoch or file_is_newer)
        return self._last_epoch <= epoch <= following.leader_epoch

    def _epoch_grows(self, batch: RecordBatch) -> bool:
        if batch.leader_epoch > self._last_epoch:
            self.epochs.assign(batch.leader_epoch, batch.base_offset)
        return batch.leader_epoch >= self._last_epoch

    def _epoch_is_filed(self, batch: RecordBatch) -> bool:
        epoch, offset = batch.leader_epoch, batch.base_offset
        filed = self.epochs.epoch_for_offset(offset)
        if filed is None:
            # The first entry was moved to the log start, which is after this batch.
            return 0 <= epoch <= self.epochs.entries[0].epoch
        if epoch > filed or self.epochs.start_of(epoch) is None:
            return False
        if epoch < filed and self._start_after(epoch) < self._expected:
            # Earlier batches were of the next epoch already.
            return False
        if self.epochs.epoch_for_offset(batch.last_offset) != epoch:
            # The batch continues after the start of the next epoch in the file: the file is wrong.
            self.epochs.truncate_to(self._start_after(epoch))
        return True

    def _start_after(self, epoch: LeaderEpoch) -> Offset:
        """Return where the next epoch starts, according to the file."""
        return next(entry.start_offset for entry in self.epochs.entries if entry.epoch > epoch)


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
