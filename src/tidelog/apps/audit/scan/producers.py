"""Follow producers in log order: their sequence numbers, and their aborted transactions.

Sequence numbers: only data batches count, because markers have none. Within an epoch, each batch
continues after the last sequence number of the previous one; 0 follows 2^31 - 1. A new epoch begins
with 0.

Transactions: one may begin before the stretch, and so may other transactions open at the same time.
Only all stretches in order show where it began, and the last stable offset at its marker.
"""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from tidelog.apps.audit.scan.summary import Aborted, SequenceBreak, StretchSummary
from tidelog.apps.audit.scan.walk import Flags, Framed, Headers, Longs
from tidelog.core.record.decoder import decode_marker
from tidelog.core.record.record_batch import (
    CONTROL,
    MAX_SEQUENCE,
    TRANSACTIONAL,
    CorruptRecord,
    parse,
)

# -- sequence numbers -----------------------------------------------------------------------------


class ProducerSpan(NamedTuple):
    """The first and last batch of a producer in a stretch."""

    producer_id: int
    first_epoch: int
    first_sequence: int
    first_offset: int
    first_last_offset: int
    first_position: int
    first_timestamp: int
    last_epoch: int
    last_sequence: int
    last_offset: int
    last_timestamp: int


def follows(epoch_before: int, sequence_before: int, epoch: int, sequence: int) -> bool:
    """Return whether a batch may follow another batch of the same producer."""
    if epoch == epoch_before:
        return sequence == (sequence_before + 1) & MAX_SEQUENCE
    return epoch > epoch_before and sequence == 0


class SequenceScan:
    """Tracks the sequence numbers of all producers in a stretch."""

    def __init__(self) -> None:
        self.spans: dict[int, ProducerSpan] = {}
        self.breaks: list[SequenceBreak] = []

    def add(self, headers: Headers, last: Longs, positions: Longs, sound: Flags) -> None:
        """Add batches in file order; batches with a wrong checksum are ignored."""
        numbered = sound & (headers["producer_id"] >= 0) & (headers["base_sequence"] >= 0)
        numbered &= (headers["attributes"] & CONTROL) == 0
        where = np.flatnonzero(numbered)
        if not len(where):
            return
        where = where[np.argsort(headers["producer_id"][where], kind="stable")]
        rows = headers[where]
        ids = rows["producer_id"].astype(np.int64)
        epochs = rows["producer_epoch"].astype(np.int64)
        first = rows["base_sequence"].astype(np.int64)
        ends = (first + rows["last_offset_delta"]) & MAX_SEQUENCE
        same = ids[1:] == ids[:-1]
        continues = (epochs[1:] == epochs[:-1]) & (first[1:] == ((ends[:-1] + 1) & MAX_SEQUENCE))
        continues |= (epochs[1:] > epochs[:-1]) & (first[1:] == 0)
        begins = np.flatnonzero(np.concatenate(([True], ~same)))
        stops = np.concatenate((begins[1:], [len(where)])) - 1

        def span(a: int, b: int) -> ProducerSpan:
            return ProducerSpan(
                int(ids[a]),
                int(epochs[a]),
                int(first[a]),
                int(rows["base_offset"][a]),
                int(last[where[a]]),
                int(positions[where[a]]),
                int(rows["max_timestamp"][a]),
                int(epochs[b]),
                int(ends[b]),
                int(last[where[b]]),
                int(rows["max_timestamp"][b]),
            )

        for at in np.flatnonzero(same & ~continues).tolist():
            self._compare(span(at, at), span(at + 1, at + 1))
        for a, b in zip(begins.tolist(), stops.tolist(), strict=True):
            found = span(a, b)
            before = self.spans.get(found.producer_id)
            if before is not None:
                self._compare(before, found)
                found = ProducerSpan(*before[:7], *found[7:])
            self.spans[found.producer_id] = found

    def _compare(self, before: ProducerSpan, after: ProducerSpan) -> None:
        if not follows(
            before.last_epoch, before.last_sequence, after.first_epoch, after.first_sequence
        ):
            self.breaks.append(sequence_break(before, after))


def sequence_break(before: ProducerSpan, after: ProducerSpan, file: str = "") -> SequenceBreak:
    """Return the break between the last batch of `before` and the first batch of `after`."""
    return SequenceBreak(
        after.producer_id,
        after.first_epoch,
        after.first_sequence,
        before.last_epoch,
        before.last_sequence,
        before.last_offset,
        after.first_offset,
        after.first_last_offset,
        after.first_position,
        after.first_timestamp - before.last_timestamp,
        file,
    )


# -- transactions ---------------------------------------------------------------------------------


UNSEEN = -1
"""The transaction began before the stretch."""


class TransactionScan:
    """Tracks open transactions and aborts in a stretch."""

    def __init__(self) -> None:
        self.open: dict[int, int] = {}
        """First offset of the open transaction, by producer id."""
        self.ended: dict[int, int] = {}
        """Offset of the first marker in the stretch, by producer id."""
        self.aborted: list[Aborted] = []

    def add(self, framed: Framed) -> None:
        """Add batches in file order."""
        attributes = framed.headers["attributes"]
        for at in np.flatnonzero((attributes & TRANSACTIONAL != 0) & framed.sound).tolist():
            header = framed.headers[at]
            producer_id, offset = int(header["producer_id"]), int(header["base_offset"])
            if not attributes[at] & CONTROL:
                self.open.setdefault(producer_id, offset)
                continue
            begin = self.open.pop(producer_id, None)
            earlier = producer_id not in self.ended
            self.ended.setdefault(producer_id, offset)
            if self._is_abort(framed, at) and (begin is not None or earlier):
                first = UNSEEN if begin is None else begin
                stable = min(self.open.values(), default=offset + 1)
                self.aborted.append(Aborted(producer_id, first, offset, stable, earlier))

    def _is_abort(self, framed: Framed, at: int) -> bool:
        try:
            marker = decode_marker(parse(framed.data, int(framed.places[at])))
        except CorruptRecord:
            return False
        return marker is not None and marker.is_abort


def follow_transactions(stretches: Iterable[StretchSummary]) -> dict[tuple[int, int], Aborted]:
    """Combine the aborts of all stretches, by producer id and marker offset.

    The stretches must be in log order: earlier ones show where a transaction began, and which
    others were open at its marker.
    """
    found: dict[tuple[int, int], Aborted] = {}
    begun: dict[int, int] = {}
    for stretch in stretches:
        ended = dict(stretch.ended)
        for each in stretch.aborted:
            first = begun.get(each.producer_id, each.first) if each.earlier else each.first
            beside = [
                offset
                for producer_id, offset in begun.items()
                if producer_id != each.producer_id
                and ended.get(producer_id, each.marker + 1) > each.marker
            ]
            stable = min([each.stable, *beside])
            found[each.producer_id, each.marker] = each._replace(first=first, stable=stable)
        begun = {key: offset for key, offset in begun.items() if key not in ended}
        for producer_id, offset in stretch.open:
            begun.setdefault(producer_id, offset)
    return found
