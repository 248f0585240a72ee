"""The log of one partition after all writes have ended: the checker's reference.

It uses flat arrays (12 bytes for a record, 24 for a batch). So ten minutes at 20,000 records a
second fit in memory: one partition of six needs 24 MB. Offsets that no batch covers are ABSENT.

Invariant: batches are in offset order and do not overlap.
"""

from array import array
from bisect import bisect_left
from collections.abc import Sequence

from tidelog.apps.verify.journals import ReadBatch
from tidelog.apps.verify.record_value import ABSENT


class FinalLog:
    """Value ids and leader epochs by offset, and the batches that contain them."""

    def __init__(self, partition: int, start: int = 0) -> None:
        self.partition = partition
        self.start = start
        self.values = array("Q")
        self.leader_epochs = array("i")
        self._bases = array("q")
        self._lasts = array("q")
        self._epochs = array("i")
        self._crcs = array("I")

    @property
    def end(self) -> int:
        """The offset after the last record."""
        return self.start + len(self.values)

    @property
    def batches(self) -> int:
        return len(self._bases)

    def add_batch(self, batch: ReadBatch, values: Sequence[int]) -> None:
        """Append the next batch; `values` has one id for each of its offsets."""
        assert batch.base_offset >= self.end, "batches must be in offset order"
        assert len(values) == batch.last_offset - batch.base_offset + 1
        for _ in range(batch.base_offset - self.end):
            self.values.append(ABSENT)
            self.leader_epochs.append(-1)
        self.values.extend(values)
        self.leader_epochs.extend([batch.leader_epoch] * len(values))
        self._bases.append(batch.base_offset)
        self._lasts.append(batch.last_offset)
        self._epochs.append(batch.leader_epoch)
        self._crcs.append(batch.crc)

    def value(self, offset: int) -> int:
        """Return the value id at an offset; ABSENT outside the log."""
        at = offset - self.start
        return self.values[at] if 0 <= at < len(self.values) else ABSENT

    def batch(self, number: int) -> ReadBatch:
        """Return the batch with this number, counted from 0 in log order."""
        return ReadBatch(
            self._bases[number], self._lasts[number], self._epochs[number], self._crcs[number]
        )

    def batch_at(self, base_offset: int) -> ReadBatch | None:
        """Return the batch that begins exactly at this offset; None if no batch does."""
        number = bisect_left(self._bases, base_offset)
        if number < len(self._bases) and self._bases[number] == base_offset:
            return self.batch(number)
        return None
