"""The isolation level `read_committed`: remove aborted transactions from fetched batches.

The broker returns all records below the last stable offset, with the list of aborted transactions
in that range; the client must remove their records. A producer's transactional batches are skipped
from the first offset of its aborted transaction to the abort marker that ends it.
"""

from collections.abc import Iterable, Iterator

from tidelog.core.record.decoder import decode_marker
from tidelog.core.record.record_batch import RecordBatch
from tidelog.core.types import Offset


def read_committed(
    batches: Iterable[RecordBatch], aborted: Iterable[tuple[int, Offset]]
) -> Iterator[RecordBatch]:
    """Yield the committed data batches; `aborted` are pairs of producer id and first offset."""
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
