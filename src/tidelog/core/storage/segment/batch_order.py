"""Whether a batch can be the next one in the log.

A batch's checksum leaves out what the broker patches: its offset and its leader epoch. A
bit that flips there is seen only by what stands around it. Offsets go on without gaps,
unless compaction was at work; then a batch is out of place if the one after it could stand
where it is and not behind it. Epochs never go back, and `leader-epoch-checkpoint` knows
every epoch, for it is on disk before the first record of an epoch is written.

The file may know too much: Kafka writes it late after a truncation. Where records of the
epoch before go on past the start of an epoch in the file, the file is wrong.

It may also be damaged itself, or be an old copy. Where log and file disagree, the batches
around are asked: if no epoch goes back, it is the file that can't be believed. A batch at the
very end has no witness after it: a new epoch there is damage if the log was as filed so far,
or if the file has yet to hear of it.
"""

from collections.abc import Callable

from tidelog.core.lineage.leader_epochs import LeaderEpochs
from tidelog.core.record.record_batch import RecordBatch
from tidelog.core.storage.segment.batch_scan import BatchSpan
from tidelog.core.storage.segment.segment import RELATIVE_OFFSET_MAX
from tidelog.core.types import LeaderEpoch, Offset


class BatchOrder:
    """Follows a log batch by batch, and brings its leader epochs in line with it."""

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
        """Else the epochs come from the batches."""
        self._confirmed = False
        """Whether a batch was as the file says."""
        self.file_is_wrong = False
        """The log refuted it: its epochs count for nothing."""
        self._last_epoch: LeaderEpoch = -1
        self._base = self._expected = 0

    def begin_segment(self, base_offset: Offset) -> None:
        self._base = self._expected = base_offset

    def skip_to(self, offset: Offset) -> None:
        """Expect this offset next: the records before it are damaged."""
        self._expected = offset

    def problem(self, batch: RecordBatch, following: Callable[[], BatchSpan | None]) -> str | None:
        """Why the batch can't come next; None if it can, and then it did. `following` finds
        the batch after it, unchecked."""
        if not self._offset_follows(batch, following):
            return f"offset {batch.base_offset} where {self._expected} should be"
        if not self._epoch_follows(batch, following):
            return f"leader epoch {batch.leader_epoch} can't be at offset {batch.base_offset}"
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
        """Whether a batch of an epoch that the file has not there is right all the same."""
        if following is None:
            heard_of = not self._confirmed and epoch < self.epochs.entries[-1].epoch
            return epoch >= 0 and (epoch == self._last_epoch or heard_of)
        return self._last_epoch <= epoch <= following.leader_epoch

    def _epoch_grows(self, batch: RecordBatch) -> bool:
        if batch.leader_epoch > self._last_epoch:
            self.epochs.assign(batch.leader_epoch, batch.base_offset)
        return batch.leader_epoch >= self._last_epoch

    def _epoch_is_filed(self, batch: RecordBatch) -> bool:
        epoch, offset = batch.leader_epoch, batch.base_offset
        filed = self.epochs.epoch_for_offset(offset)
        if filed is None:
            # The log start, where the first entry was moved to, lies further on.
            return 0 <= epoch <= self.epochs.entries[0].epoch
        if epoch > filed or self.epochs.start_of(epoch) is None:
            return False
        if epoch < filed and self._start_after(epoch) < self._expected:
            # The log was in the next epoch already.
            return False
        if self.epochs.epoch_for_offset(batch.last_offset) != epoch:
            # Records of this epoch where the file begins the next: the file is behind.
            self.epochs.truncate_to(self._start_after(epoch))
        return True

    def _start_after(self, epoch: LeaderEpoch) -> Offset:
        """Where the file has the next epoch begin."""
        return next(entry.start_offset for entry in self.epochs.entries if entry.epoch > epoch)
