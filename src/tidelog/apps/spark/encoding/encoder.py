"""Rows in, whole record batches out, for each target partition on its own.

Always true: what a target's batches are depends on its rows in their order, on the producer
and on the options, not on how the rows came in pieces; so the same rows give the same bytes
when a task runs again, and a broker knows them for duplicates.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from tidelog.apps.spark.decoding.engines import NUMBA, chosen_engine
from tidelog.apps.spark.encoding.open_batch import OpenBatch
from tidelog.apps.spark.encoding.row_columns import Int64s, Rows, WrongRows, timestamps_ms
from tidelog.core.record.compression import Codec
from tidelog.core.record.encoder import Producer
from tidelog.core.record.record_batch import MAX_SEQUENCE, TRANSACTIONAL

__all__ = ["BatchEncoder", "EncodedBatch", "Rows", "WrongRows", "timestamps_ms"]

BATCH_BYTES = 512 * 1024
BATCH_RECORDS = 100_000
NO_PRODUCER_ID = -1
_INT16_MAX = 2**15 - 1


@dataclass(frozen=True, slots=True)
class EncodedBatch:
    """One whole batch, ready to be sent."""

    target: int
    base_sequence: int
    """-1 without a producer id."""
    count: int
    data: bytes


class RowEncoder(Protocol):
    """Appends rows to a batch."""

    def append(self, batch: OpenBatch, rows: Int64s, first: int) -> int: ...


class BatchEncoder:
    """Batches for any number of targets, which are small numbers of the caller's choice."""

    def __init__(
        self,
        producer_id: int,
        producer_epoch: int,
        sequences: Mapping[int, int],
        *,
        codec: Codec = Codec.NONE,
        level: int | None = None,
        batch_bytes: int = BATCH_BYTES,
        batch_records: int = BATCH_RECORDS,
        transactional: bool = False,
        engine: str | None = None,
    ) -> None:
        """`sequences` are the next sequence numbers by target, 0 where none is given. A batch
        has at most `batch_bytes` before it is packed, unless one record alone has more."""
        self.sequences = dict(sequences)
        self._producer = (producer_id, producer_epoch)
        self._codec = codec
        self._level = level
        self._limits = (batch_bytes, batch_records)
        self._attributes = TRANSACTIONAL if transactional else 0
        self._engine = chosen_engine(engine)
        self._open: dict[int, OpenBatch] = {}

    def append(self, rows: Rows, targets: Any) -> Iterator[EncodedBatch]:
        """The batches that became full. Raises WrongRows. Take them all: the rows that are
        left are encoded as one goes on."""
        encoder = _row_encoder(rows, self._engine)
        for target, chosen in _by_target(np.asarray(targets)):
            batch = self._open.get(target)
            if batch is None:
                batch = self._open[target] = OpenBatch(*self._limits)
            first = encoder.append(batch, chosen, 0)
            while first < len(chosen):
                yield self._close(target, batch)
                first = encoder.append(batch, chosen, first)

    def finish(self) -> Iterator[EncodedBatch]:
        """The batches that are not full, by target."""
        for target, batch in sorted(self._open.items()):
            if batch.count:
                yield self._close(target, batch)

    def _close(self, target: int, batch: OpenBatch) -> EncodedBatch:
        count = batch.count
        sequence = self.sequences.get(target, 0)
        self.sequences[target] = (sequence + count) & MAX_SEQUENCE
        if self._producer[0] == NO_PRODUCER_ID:
            sequence = -1
        stamp = Producer(*self._producer, sequence)
        data = batch.close(self._attributes, self._codec, self._level, stamp)
        return EncodedBatch(target, sequence, count, data)


def _row_encoder(rows: Rows, engine: str) -> RowEncoder:
    if engine == NUMBA:
        from tidelog.apps.spark.encoding.kernel_records import KernelRecords

        return KernelRecords(rows)
    from tidelog.apps.spark.encoding.joined_records import JoinedRecords

    return JoinedRecords(rows)


def _by_target(targets: Any) -> Iterator[tuple[int, Int64s]]:
    """Each target and its rows in their order, the smallest target first."""
    if not len(targets):
        return
    low, high = int(targets.min()), int(targets.max())
    if low == high:
        yield low, np.arange(len(targets), dtype=np.int64)
        return
    small = targets
    if low >= 0 and high <= _INT16_MAX:
        small = targets.astype(np.int16)  # which numpy sorts by its digits
    order = np.argsort(small, kind="stable").astype(np.int64)
    edges = np.flatnonzero(np.diff(small[order])) + 1
    for rows in np.split(order, edges):
        yield int(targets[rows[0]]), np.ascontiguousarray(rows)
