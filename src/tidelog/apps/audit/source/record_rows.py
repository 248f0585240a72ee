"""Level `record`: one row for each record, decoded by the decoder of `format("tidelog")`.

Records below the log start are omitted, unless `includeDeleted` is set. A broker does not serve
them any more; it deletes whole segments later. `isolationLevel` limits the rows to the records
that a consumer gets from this replica: no control records, no records at or above its high
watermark, and with `read_committed` no records of aborted transactions.
"""

import os
from collections.abc import Iterator
from contextlib import suppress
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa

from tidelog.apps.audit.scan.record_check import batch_headers
from tidelog.apps.audit.scan.walk import Flags, Framed, Longs
from tidelog.apps.audit.source.batch_rows import Damaged, codec_name, framed_pieces
from tidelog.apps.audit.source.planning import READ_COMMITTED, RecordView, Unit
from tidelog.apps.log_files.read_only_file import CannotRead, Vanished, read_whole
from tidelog.apps.spark.columns import ARROW_TYPES, OFFSET
from tidelog.apps.spark.decoding.batch_headers import Selected
from tidelog.apps.spark.decoding.decoder import Decoder, new_decoder
from tidelog.core.lineage.transaction_index import (
    AbortedTransaction,
    CorruptTransactionIndex,
    decode_transactions,
)
from tidelog.core.record.record_batch import (
    CODEC_MASK,
    CONTROL,
    HEADER_SIZE,
    MAX_SEQUENCE,
    TRANSACTIONAL,
    CorruptRecord,
)
from tidelog.core.storage import layout

DECODED = ("key", "value", "offset", "timestamp", "timestampType", "leader_epoch", "headers")


def record_rows(units: list[Unit], schema: pa.Schema, view: RecordView) -> Iterator[pa.RecordBatch]:
    """Yield the records of the units as Arrow rows."""
    fields = decoded_fields(schema)
    for unit in units:
        if unit.stretch is None or unit.partition is None:
            continue
        aborted = _aborted(unit, view.skip_damage)
        decoder = new_decoder(fields, unit.partition.topic, unit.partition.partition)
        for framed in framed_pieces(unit, view.skip_damage):
            piece = _Piece(unit, framed, aborted, view)
            yield from piece.rows(decoder, schema)


def decoded_fields(schema: pa.Schema) -> pa.Schema:
    """Return the columns to decode. They always include the offset, to find a row's batch."""
    decoded = [name for name in schema.names if name in DECODED and name != OFFSET]
    return pa.schema([(name, ARROW_TYPES[name]) for name in (OFFSET, *decoded)])


class _Piece:
    """The batches of one piece of a file, converted to rows."""

    def __init__(
        self, unit: Unit, framed: Framed, aborted: list[AbortedTransaction], view: RecordView
    ) -> None:
        self.unit = unit
        self.framed = framed
        self.view = view
        attributes = framed.headers["attributes"]
        self.is_control: Flags = (attributes & CONTROL) != 0
        self.is_transactional: Flags = (attributes & TRANSACTIONAL) != 0
        self.is_aborted = self._find_aborted(aborted)

    def _find_aborted(self, aborted: list[AbortedTransaction]) -> Flags:
        headers = self.framed.headers
        found = np.zeros(len(headers), bool)
        data = self.is_transactional & ~self.is_control
        if data.any():
            for each in aborted:
                inside = (headers["base_offset"] >= each.first_offset) & (
                    self.framed.last <= each.last_offset
                )
                found |= data & inside & (headers["producer_id"] == each.producer_id)
        return found

    def _chosen(self) -> Longs:
        framed = self.framed
        seen = framed.sound & ((framed.headers["count"] > 0) | (framed.sizes > HEADER_SIZE))
        if self.view.isolation:
            seen &= ~self.is_control
        if self.view.isolation == READ_COMMITTED:
            seen &= ~self.is_aborted
        if not self.view.skip_damage and not framed.sound.all():
            at = int(np.flatnonzero(~framed.sound)[0])
            raise self._damaged(int(framed.positions[at]), "its checksum is wrong")
        return np.flatnonzero(seen).astype(np.int64)

    def _damaged(self, position: int, why: str) -> Damaged:
        assert self.unit.stretch is not None
        return Damaged(
            f"{self.unit.stretch.path}: batch at byte {position}: {why};"
            " run tidelog audit, or set onDamage to skip"
        )

    def rows(self, decoder: Decoder, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        """Decode all batches at once; with `skip_damage`, decode batch by batch after an error."""
        chosen = self._chosen()
        if self.view.skip_damage:
            yield from self._sound_rows(chosen, schema)
            return
        try:
            yield from self._decoded(decoder, chosen, schema)
        except CorruptRecord as error:
            raise self._damaged(int(self.framed.positions[0]), error.reason) from None

    def _sound_rows(self, chosen: Longs, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        partition = self.unit.partition
        assert partition is not None
        groups = [chosen]
        while groups:
            group = groups.pop(0)
            decoder = new_decoder(decoded_fields(schema), *partition, keep=True)
            try:
                yield from list(self._decoded(decoder, group, schema))
            except CorruptRecord:
                if len(group) > 1:
                    groups = [group[at : at + 1] for at in range(len(group))]

    def _decoded(
        self, decoder: Decoder, chosen: Longs, schema: pa.Schema
    ) -> Iterator[pa.RecordBatch]:
        start, end = self.view.bounds(self.unit)
        selected = Selected(self.framed.data, batch_headers(self.framed), chosen)
        for rows in chain(decoder.decode(selected, start, end), decoder.flush()):
            yield self._complete(rows, chosen, schema)

    def _complete(self, rows: pa.RecordBatch, chosen: Longs, schema: pa.Schema) -> pa.RecordBatch:
        """Add the columns that come from the batch header."""
        offsets = rows.column(OFFSET).to_numpy()
        base = self.framed.headers["base_offset"].astype(np.int64)[chosen]
        place = np.searchsorted(base, offsets, "right") - 1
        columns = {name: rows.column(name) for name in rows.schema.names}
        arrays = [
            columns[field.name]
            if field.name in columns
            else self._column(field.name, offsets - base[place], chosen[place], field.type)
            for field in schema
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=schema)

    def _column(self, name: str, deltas: Longs, owner: Longs, kind: pa.DataType) -> pa.Array:
        unit, headers = self.unit, self.framed.headers
        assert unit.partition is not None
        assert unit.stretch is not None
        same = {
            "replica": unit.replica,
            "log_dir": unit.log_dir,
            "topic": unit.partition.topic,
            "partition": unit.partition.partition,
            "segment": os.path.basename(unit.stretch.path),
        }
        if name in same:
            return pa.repeat(pa.scalar(same[name], kind), len(owner))
        if name == "codec":
            codecs = (headers["attributes"] & CODEC_MASK)[owner]
            return pa.array([codec_name(int(each)) for each in codecs], kind)
        if name == "sequence":
            first = headers["base_sequence"].astype(np.int64)[owner]
            values: Any = np.where(first < 0, -1, (first + deltas) & MAX_SEQUENCE)
        elif name in ("producer_id", "producer_epoch"):
            values = headers[name].astype(np.int64)[owner]
        else:
            flags = {
                "position": self.framed.positions,
                "is_control": self.is_control,
                "is_transactional": self.is_transactional,
                "is_aborted": self.is_aborted,
            }
            values = flags[name][owner]
        return pa.array(values, kind)


def _aborted(unit: Unit, skip_damage: bool) -> list[AbortedTransaction]:
    """Return all aborted transactions of the partition.

    A marker may be several segments after the records that it aborts.
    """
    found: list[AbortedTransaction] = []
    with suppress(OSError):
        for name in sorted(os.listdir(unit.folder)):
            if not name.endswith(layout.TXN_INDEX):
                continue
            path = os.path.join(unit.folder, name)
            try:
                found += decode_transactions(read_whole(path))
            except Vanished:
                continue
            except (CorruptTransactionIndex, CannotRead) as error:
                if not skip_damage:
                    raise Damaged(f"{path}: {error}; set onDamage to skip") from None
    return found
