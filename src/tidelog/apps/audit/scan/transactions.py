"""Transactions that end in a stretch by an abort, as far as the stretch shows their begin."""

import numpy as np

from tidelog.apps.audit.scan.walk import Framed
from tidelog.core.record.decoder import decode_marker
from tidelog.core.record.record_batch import CONTROL, TRANSACTIONAL, CorruptRecord, parse

UNSEEN = -1
"""The transaction may have begun before the stretch."""


class TransactionScan:
    """Follows open transactions."""

    def __init__(self) -> None:
        self._open: dict[int, int] = {}
        self._ended: set[int] = set()
        self.aborted: list[tuple[int, int, int]] = []
        """Producer id, first offset, offset of the abort marker."""

    def add(self, framed: Framed) -> None:
        """Batches in the order of the file."""
        attributes = framed.headers["attributes"]
        for at in np.flatnonzero((attributes & TRANSACTIONAL != 0) & framed.sound).tolist():
            header = framed.headers[at]
            producer_id = int(header["producer_id"])
            if not attributes[at] & CONTROL:
                self._open.setdefault(producer_id, int(header["base_offset"]))
                continue
            begin = self._open.pop(producer_id, None)
            known = begin is not None or producer_id in self._ended
            self._ended.add(producer_id)
            if self._is_abort(framed, at) and (begin is not None or not known):
                marker = int(header["base_offset"])
                self.aborted.append((producer_id, UNSEEN if begin is None else begin, marker))

    def _is_abort(self, framed: Framed, at: int) -> bool:
        try:
            marker = decode_marker(parse(framed.data, int(framed.places[at])))
        except CorruptRecord:
            return False
        return marker is not None and marker.is_abort
