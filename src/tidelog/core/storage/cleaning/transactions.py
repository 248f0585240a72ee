"""Which transactional records count, while a log is read from its beginning.

Records of an aborted transaction are as if they had never been. A marker may go once all
records of its transaction are gone; until then it stays, and with an aborted one its entry
in the index of aborted transactions.
"""

from collections.abc import Iterable

from tidelog.core.lineage.transaction_index import AbortedTransaction
from tidelog.core.record.control import TransactionMarker
from tidelog.core.record.decoder import decode
from tidelog.core.record.record_batch import RecordBatch


class _Aborting:
    """An aborted transaction whose marker is still to come."""

    __slots__ = ("seen", "transaction")

    def __init__(self, transaction: AbortedTransaction) -> None:
        self.transaction = transaction
        self.seen = False
        """Whether a batch of it is still in the log."""


class TransactionsSeen:
    """Follows a log batch by batch."""

    __slots__ = ("_aborting", "_ahead", "_committing", "kept")

    def __init__(self, aborted: Iterable[AbortedTransaction]) -> None:
        self._ahead = sorted(aborted, key=lambda entry: entry.first_offset, reverse=True)
        self._aborting: dict[int, _Aborting] = {}
        self._committing: set[int] = set()
        self.kept: list[AbortedTransaction] = []
        """Aborted transactions whose markers came by and must stay findable; whoever writes
        the index takes them out."""

    def superfluous(self, batch: RecordBatch) -> bool:
        """Take in the next batch. Whether it is of an aborted transaction, or a marker of a
        transaction of which nothing is left."""
        if not (batch.is_transactional or batch.is_control):
            return False
        while self._ahead and self._ahead[-1].first_offset <= batch.last_offset:
            entry = self._ahead.pop()
            self._aborting.setdefault(entry.producer_id, _Aborting(entry))
        if batch.is_control:
            return self._marker_is_superfluous(batch)
        aborting = self._aborting.get(batch.producer_id)
        if aborting is None:
            self._committing.add(batch.producer_id)
            return False
        aborting.seen = True
        return True

    def _marker_is_superfluous(self, batch: RecordBatch) -> bool:
        controls = [record.control for record in decode(batch)]
        if not controls:
            return True  # its record went in an earlier cleaning
        marker = controls[0]
        if not isinstance(marker, TransactionMarker):
            return False
        if marker.is_abort:
            aborting = self._aborting.pop(batch.producer_id, None)
            if aborting is None or not aborting.seen:
                return True
            self.kept.append(aborting.transaction)
            return False
        if batch.producer_id not in self._committing:
            return True
        self._committing.remove(batch.producer_id)
        return False
