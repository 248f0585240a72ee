"""Read one range of one partition, from the leader's socket to RecordBatches.

The next fetch is in flight while the last response is decoded. Every batch is checked: its
checksum, its offsets, and that its leader epoch is not newer than the plan.

Invariant: every readable record of the range is in a row, once, or an error of range_errors says
where reading stopped. Offsets without a record (compaction, control records, aborted transactions)
are not a loss.
"""

import gc
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from tidelog.apps.spark.decoding.batch_headers import (
    BatchHeaders,
    check_checksums,
    scan_headers,
    select,
)
from tidelog.apps.spark.decoding.decoder import DATA_BYTES, ROWS, Decoder
from tidelog.apps.spark.source.range_errors import (
    RangeCorrupt,
    RangeError,
    RangeOutOfRange,
    RangeOverwritten,
    RangeToRead,
    RangeUnreachable,
    TopicRecreated,
)
from tidelog.apps.spark.source.range_fetch import FETCH_BYTES_MAX, RangeFetch
from tidelog.core.record.record_batch import CorruptRecord
from tidelog.core.types import Offset, TopicId
from tidelog.shell.client.cluster import Cluster
from tidelog.shell.client.fetching import READ_COMMITTED, READ_UNCOMMITTED, FetchedPartition

__all__ = [
    "RangeCorrupt",
    "RangeError",
    "RangeOutOfRange",
    "RangeOverwritten",
    "RangeToRead",
    "RangeUnreachable",
    "ReadLimits",
    "TopicRecreated",
    "read_range",
    "settle_worker",
]

FETCH_BYTES = 4 * 1024 * 1024
FETCH_BYTES_MIN = 64 * 1024
TIMEOUT_S = 60.0
RECORD_BYTES_GUESS = 1024
EMPTY_ANSWERS = 3
"""Number of consecutive empty responses that prove that the range has no further records.

The end of the range must be readable, and the leader must have that part on its own disk.
"""

_settled = False
_sizes: dict[tuple[TopicId, int], tuple[float, int]] = {}
"""Average record size and largest batch at the last read, by partition.

Workers serve many tasks, so a small range needs only one fetch of about the right size.
"""


class ReadLimits(NamedTuple):
    """The limits of a read: rows and bytes of a RecordBatch, bytes of a fetch, time limit."""

    rows: int = ROWS
    bytes: int = DATA_BYTES
    fetch_bytes: int = FETCH_BYTES
    timeout_s: float = TIMEOUT_S


NO_LIMITS_OF_ITS_OWN = ReadLimits()


def settle_worker() -> None:
    """Exclude imported modules from garbage collection, once for each worker process.

    Spark runs a collection after each task.
    """
    global _settled
    if not _settled:
        _settled = True
        gc.collect()
        gc.freeze()


def read_range(
    cluster: Cluster,
    wanted: RangeToRead,
    schema: Any,
    *,
    isolation: int = READ_UNCOMMITTED,
    limits: ReadLimits = NO_LIMITS_OF_ITS_OWN,
    keep: bool = False,
) -> Iterator[Any]:
    """Yield the rows of the range as RecordBatches of `schema`. Raises RangeError.

    Unless `keep` is set, a RecordBatch is valid only until the next one is requested.
    """
    rows = max(min(limits.rows, wanted.end - wanted.start), 1)
    decoder = Decoder(
        schema, wanted.topic, wanted.partition, rows=rows, data_bytes=limits.bytes, keep=keep
    )
    reading = _Reading(cluster, wanted, isolation, limits)
    try:
        while reading.offset < wanted.end:
            yield from reading.next_rows(decoder)
        yield from decoder.flush()
    except RangeError:
        yield from decoder.flush()
        raise
    except CorruptRecord as error:
        raise RangeCorrupt(wanted, reading.began, error.reason) from error
    finally:
        reading.close()


class _Reading:
    """The progress of reading a range."""

    def __init__(
        self, cluster: Cluster, wanted: RangeToRead, isolation: int, limits: ReadLimits
    ) -> None:
        self._wanted = wanted
        self._isolation = isolation
        self._limits = limits
        self._fetch = RangeFetch(cluster, wanted, isolation, limits.timeout_s)
        self._place = wanted.topic_id, wanted.partition
        self._record_bytes, self._largest = _sizes.get(
            self._place, (RECORD_BYTES_GUESS, FETCH_BYTES_MIN)
        )
        self._empty = 0
        self.offset = self.began = wanted.start

    def close(self) -> None:
        self._fetch.close()

    def next_rows(self, decoder: Decoder) -> Iterator[Any]:
        """Decode one response of the leader; the next fetch is sent before the decoding."""
        offset = self.began = self.offset
        end = self._wanted.end
        answer = self._fetch.answer(offset, self._fetch_bytes(offset))
        records = answer.records
        headers = scan_headers(records)
        if not len(headers) or headers.last_offset[-1] < offset:
            self._wait(answer, headers)
            return
        self._empty = 0
        self._fetch.progress()
        self.offset = after = int(headers.last_offset[-1]) + 1
        self._measure(headers, offset, after)
        if after < end:
            self._fetch.send_ahead(after, self._fetch_bytes(after))
        check_checksums(records, headers)
        overwritten = self._overwritten(headers, offset)
        if overwritten is not None:
            end = overwritten.offset
        aborted = answer.aborted if self._isolation == READ_COMMITTED else ()
        yield from decoder.decode(select(records, headers, offset, end, aborted), offset, end)
        if overwritten is not None:
            raise overwritten

    def _fetch_bytes(self, offset: Offset) -> int:
        """Estimate the bytes of the rest of the range, which may begin and end inside a batch."""
        guess = int((self._wanted.end - offset) * self._record_bytes) + 2 * self._largest
        most = min(self._limits.fetch_bytes, FETCH_BYTES_MAX)
        return max(min(guess, most), self._largest)

    def _measure(self, headers: BatchHeaders, offset: Offset, after: Offset) -> None:
        size = int(headers.size.sum())
        self._record_bytes = max(size / (after - min(offset, int(headers.base_offset[0]))), 1.0)
        self._largest = max(self._largest, int(headers.size.max()))
        _sizes[self._place] = self._record_bytes, self._largest

    def _wait(self, answer: FetchedPartition, headers: BatchHeaders) -> None:
        """Handle a response without new records.

        The batch may be too large for the fetch, the log may not reach the offset yet, or the
        rest of the range may have no records.
        """
        if headers.tail and self._fetch_bytes(self.offset) < FETCH_BYTES_MAX:
            self._largest = min(2 * self._fetch_bytes(self.offset), FETCH_BYTES_MAX)
            return
        readable_end = answer.readable_end(self._isolation)
        is_empty = not len(answer.records) and not answer.throttled
        self._empty = self._empty + 1 if is_empty and readable_end >= self._wanted.end else 0
        if self._empty >= EMPTY_ANSWERS:
            if self._fetch.is_on_disk(self.offset):
                self.offset = self._wanted.end
                return
            self._empty = 0
        why = f"readers may see up to offset {readable_end}"
        self._fetch.pause(self.offset, why)

    def _overwritten(self, headers: BatchHeaders, offset: Offset) -> RangeOverwritten | None:
        """Return an error for the first batch with a leader epoch that contradicts the plan."""
        wanted = self._wanted
        if wanted.epoch_max < 0:
            return None
        inside = (headers.last_offset >= offset) & (headers.base_offset < wanted.end)
        other = headers.leader_epoch > wanted.epoch_max
        if wanted.epoch_since >= 0:
            from_then_on = headers.base_offset >= wanted.epoch_since
            other |= from_then_on & (headers.leader_epoch < wanted.epoch_max)
        others = np.flatnonzero(inside & other & (headers.leader_epoch >= 0))
        if not len(others):
            return None
        at = max(offset, int(headers.base_offset[others[0]]))
        return RangeOverwritten(wanted, at, int(headers.leader_epoch[others[0]]))
