"""Find aborted transactions, first in each stretch, then in the whole log.

A transaction may begin before the stretch, and so may other transactions open at the same time.
Only all stretches in order show where it began, and the last stable offset at its marker.
"""

from collections.abc import Iterable

import numpy as np

from tidelog.apps.audit.scan.summary import Aborted, StretchSummary
from tidelog.apps.audit.scan.walk import Framed
from tidelog.core.record.decoder import decode_marker
from tidelog.core.record.record_batch import CONTROL, TRANSACTIONAL, CorruptRecord, parse

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
