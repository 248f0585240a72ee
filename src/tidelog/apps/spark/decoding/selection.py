"""Which batches of a chunk a reader gets rows from.

Control batches are not for applications. A reader of committed data does not see aborted
transactions: the rule is that of core/record/isolation, here for a whole chunk at once.
"""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from tidelog.apps.spark.decoding.batch_headers import BatchHeaders, Int64s
from tidelog.core.record.crc32c import Buffer
from tidelog.core.record.decoder import decode_marker
from tidelog.core.record.record_batch import HEADER_SIZE, parse
from tidelog.core.types import Offset


class Selected(NamedTuple):
    """A chunk, and the batches of it to take rows from."""

    records: Buffer
    headers: BatchHeaders
    chosen: Int64s
    """Their places in `headers`, rising."""


def select(
    records: Buffer,
    headers: BatchHeaders,
    start: Offset,
    end: Offset,
    aborted: Iterable[tuple[int, Offset]] = (),
) -> Selected:
    """The data batches that touch [start, end); `aborted` are (producer id, first offset), for
    readers of committed data. Raises CorruptRecord."""
    seen = (headers.last_offset >= start) & (headers.base_offset < end) & ~headers.is_control
    # Compaction may leave a batch empty, without even what its records were packed with.
    seen &= (headers.count > 0) | (headers.size > HEADER_SIZE)
    pending = sorted(aborted, key=lambda transaction: transaction[1], reverse=True)
    if pending:
        _leave_out_aborted(records, headers, pending, seen)
    return Selected(records, headers, np.flatnonzero(seen).astype(np.int64))


def _leave_out_aborted(
    records: Buffer,
    headers: BatchHeaders,
    pending: list[tuple[int, Offset]],
    seen: np.ndarray[tuple[int], np.dtype[np.bool_]],
) -> None:
    aborting: set[int] = set()
    is_control = headers.is_control
    for number in np.flatnonzero(headers.is_transactional | is_control).tolist():
        while pending and pending[-1][1] <= headers.last_offset[number]:
            aborting.add(pending.pop()[0])
        producer = int(headers.producer_id[number])
        if is_control[number]:
            marker = decode_marker(parse(records, int(headers.position[number])))
            if marker is not None and marker.is_abort:
                aborting.discard(producer)
        elif producer in aborting:
            seen[number] = False
