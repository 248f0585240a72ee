"""Whether a batch can be the next one in the log.

A batch's checksum leaves out what the broker patches: its offset and its leader epoch. A
bit that flips there is seen only by what stands around it. Offsets go on without gaps,
unless compaction was at work. Epochs never go back, and `leader-epoch-checkpoint` knows
every epoch, for it is on disk before the first record of an epoch is written.

The file may know too much: Kafka writes it late after a truncation. Where records of the
epoch before go on past the start of an epoch in the file, the file is wrong.
"""

from tidelog.core.lineage.leader_epochs import LeaderEpochs
from tidelog.core.record.record_batch import RecordBatch
from tidelog.core.types import LeaderEpoch, Offset

RELATIVE_OFFSET_MAX = 2**31 - 1
"""An index entry keeps the distance from the segment's base in 32 bits."""


class Succession:
    """Follows a log batch by batch, and brings its leader epochs in line with it."""

    __slots__ = ("_base", "_expected", "_from_file", "_gaps_allowed", "_last_epoch", "epochs")

    def __init__(self, epochs: LeaderEpochs, gaps_allowed: bool) -> None:
        self.epochs = epochs
        self._gaps_allowed = gaps_allowed
        self._from_file = epochs.latest is not None
        """Else the epochs come from the batches."""
        self._last_epoch: LeaderEpoch = -1
        self._base = self._expected = 0

    def begin_segment(self, base_offset: Offset) -> None:
        self._base = self._expected = base_offset

    def problem(self, batch: RecordBatch) -> str | None:
        """Why the batch can't come next; None if it can, and then it did."""
        if not self._offset_follows(batch):
            return f"offset {batch.base_offset} where {self._expected} should be"
        if not (self._epoch_is_filed(batch) if self._from_file else self._epoch_grows(batch)):
            return f"leader epoch {batch.leader_epoch} can't be at offset {batch.base_offset}"
        self._expected = batch.next_offset
        return None

    def _offset_follows(self, batch: RecordBatch) -> bool:
        if batch.last_offset - self._base > RELATIVE_OFFSET_MAX:
            return False
        if self._gaps_allowed:
            return batch.base_offset >= self._expected
        return batch.base_offset == self._expected

    def _epoch_grows(self, batch: RecordBatch) -> bool:
        if batch.leader_epoch > self._last_epoch:
            self.epochs.assign(batch.leader_epoch, batch.base_offset)
        elif batch.leader_epoch < self._last_epoch:
            return False
        self._last_epoch = batch.leader_epoch
        return True

    def _epoch_is_filed(self, batch: RecordBatch) -> bool:
        epoch, offset = batch.leader_epoch, batch.base_offset
        filed = self.epochs.epoch_for_offset(offset)
        if filed is None:
            # The log start, where the first entry was moved to, lies further on.
            return 0 <= epoch <= self.epochs.entries[0].epoch
        if epoch != filed and self.epochs.start_of(filed) == offset:
            filed = self.epochs.epoch_for_offset(offset - 1)
        if epoch == filed and self.epochs.epoch_for_offset(batch.last_offset) != epoch:
            # Records of this epoch where the file begins the next: the file is behind.
            self.epochs.truncate_to(self._start_after(epoch))
        return epoch == filed

    def _start_after(self, epoch: LeaderEpoch) -> Offset:
        """Where the file has the next epoch begin."""
        return next(entry.start_offset for entry in self.epochs.entries if entry.epoch > epoch)
