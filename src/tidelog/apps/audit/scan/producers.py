"""Check the sequence numbers of producers in log order.

Only data batches count: markers have no sequence number. Within an epoch, each batch continues
after the last sequence number of the previous one; 0 follows 2^31 - 1. A new epoch begins with 0.
"""

from typing import NamedTuple

import numpy as np

from tidelog.apps.audit.scan.headers import Flags, Headers, Longs
from tidelog.apps.audit.scan.summary import SequenceBreak
from tidelog.core.record.record_batch import CONTROL, MAX_SEQUENCE


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
        goes_on = (epochs[1:] == epochs[:-1]) & (first[1:] == ((ends[:-1] + 1) & MAX_SEQUENCE))
        goes_on |= (epochs[1:] > epochs[:-1]) & (first[1:] == 0)
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

        for at in np.flatnonzero(same & ~goes_on).tolist():
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
