"""What a reader of committed data gets out of fetched batches.

The broker hands over everything below the last stable offset, with the list of aborted
transactions that touch it; leaving their records out is the reader's work. A producer's
transactional batches are skipped from the first offset of its aborted transaction to the
abort marker that ends it.
"""

from collections.abc import Iterable, Iterator

from tidelog.core.record.decoder import decode_marker
from tidelog.core.record.record_batch import RecordBatch
from tidelog.core.types import Offset


def read_committed(
    batches: Iterable[RecordBatch], aborted: Iterable[tuple[int, Offset]]
) -> Iterator[RecordBatch]:
    """The data batches that were committed; `aborted` are (producer id, first offset)."""
    pending = sorted(aborted, key=lambda transaction: transaction[1], reverse=True)
    aborting: set[int] = set()
    for batch in batches:
        while pending and pending[-1][1] <= batch.last_offset:
            aborting.add(pending.pop()[0])
        if batch.is_control:
            marker = decode_marker(batch)
            if marker is not None and marker.is_abort:
                aborting.discard(batch.producer_id)
        elif not (batch.is_transactional and batch.producer_id in aborting):
            yield batch
