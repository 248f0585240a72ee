"""The final log of a partition with the fate of each record, as its transaction markers say."""

from collections.abc import Sequence
from enum import IntEnum

from tidelog.apps.verify.checker.final_log import FinalLog
from tidelog.apps.verify.journals import ReadBatch
from tidelog.apps.verify.record_value import ABSENT

NO_PRODUCER = -1


class Ends(IntEnum):
    """The fate of a record at an offset, according to the log."""

    NO_RECORD = 0
    COMMITTED = 1
    ABORTED = 2
    OPEN = 3
    """Its transaction has no marker in this partition."""


class TxnLog(FinalLog):
    """A final log that also has the end of each record's transaction."""

    def __init__(self, partition: int, start: int = 0) -> None:
        super().__init__(partition, start)
        self.ends = bytearray()
        """One of Ends by offset."""
        self._open: dict[int, list[int]] = {}
        """Offsets of records without a marker so far, by producer id."""

    def add(
        self, batch: ReadBatch, values: Sequence[int], producer_id: int, *, transactional: bool
    ) -> None:
        """Append the next batch of records."""
        self.add_batch(batch, values)
        self.ends.extend(bytes(len(self.values) - len(self.ends)))
        for offset in range(batch.base_offset, batch.last_offset + 1):
            if self.value(offset) != ABSENT:
                self.ends[offset - self.start] = Ends.OPEN if transactional else Ends.COMMITTED
                if transactional:
                    self._open.setdefault(producer_id, []).append(offset)

    def add_marker(self, batch: ReadBatch, producer_id: int, *, committed: bool) -> None:
        """Append the marker that ends the producer's transaction in this partition."""
        self.add(batch, [ABSENT], NO_PRODUCER, transactional=False)
        for offset in self._open.pop(producer_id, ()):
            self.ends[offset - self.start] = Ends.COMMITTED if committed else Ends.ABORTED

    def end_of(self, offset: int) -> Ends:
        """Return the fate of the record at an offset."""
        at = offset - self.start
        return Ends(self.ends[at]) if 0 <= at < len(self.ends) else Ends.NO_RECORD

    def visible(self) -> list[int]:
        """Return the offsets of all committed records."""
        start = self.start
        return [start + at for at, end in enumerate(self.ends) if end == Ends.COMMITTED]
