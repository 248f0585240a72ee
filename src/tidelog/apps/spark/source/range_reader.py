"""Read one range of one partition, from the leader's socket to RecordBatches.

The next fetch is in flight while the last response is decoded. Every batch is checked: its
checksum, its offsets, and that its leader epoch is not newer than the plan.

Invariants: every readable record of the range is in a row, once, or a RangeError contains the
offset at which reading stopped. Offsets without a record (compaction, control records, aborted
transactions) are not a loss. If no record arrives for `timeout_s`, an error says why.
"""

import time
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from tidelog.apps.spark.decoding.batch_headers import (
    BatchHeaders,
    check_checksums,
    scan_headers,
    select,
)
from tidelog.apps.spark.decoding.decoder import DATA_BYTES, ROWS, Decoder, new_decoder
from tidelog.apps.spark.source.partition_lookup import is_retriable_or_no_topic, known_by_a_broker
from tidelog.core.errors import ErrorCode
from tidelog.core.record.record_batch import CorruptRecord
from tidelog.core.types import LeaderEpoch, Offset, TopicId, TopicPartition
from tidelog.shell.client.client_errors import (
    BrokerError,
    CannotConnect,
    ClientError,
    NoSuchTopic,
    NotOffered,
    Unresolved,
)
from tidelog.shell.client.cluster import Cluster
from tidelog.shell.client.cluster_metadata import NO_TOPIC_ID, TopicMetadata
from tidelog.shell.client.fetching import (
    READ_COMMITTED,
    READ_UNCOMMITTED,
    FetchedPartition,
    PartitionFetcher,
)
from tidelog.shell.client.offsets import EARLIEST, EARLIEST_LOCAL, LATEST, list_offset
from tidelog.shell.client.retry import Retry

TIERED_WAIT_MS = 5000
"""The wait for records in tiered storage: a leader that needs longer returns an empty response."""
RECREATED_S = 1.0
"""How long a topic must be missing: this broker may lag behind the broker of the plan."""
FETCH_BYTES_MAX = 256 * 1024 * 1024
_OTHER_TOPIC = (
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.INCONSISTENT_TOPIC_ID,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
)
FETCH_BYTES = 4 * 1024 * 1024
FETCH_BYTES_MIN = 64 * 1024
TIMEOUT_S = 60.0
RECORD_BYTES_GUESS = 1024
EMPTY_RESPONSES = 3
"""Number of consecutive empty responses that prove that the range has no further records.

The end of the range must be readable, and the leader must have that part on its own disk.
"""

_sizes: dict[tuple[TopicId, int], tuple[float, int]] = {}
"""Average record size and largest batch at the last read, by partition.

Workers serve many tasks, so a small range needs only one fetch of about the right size.
"""


class RangeToRead(NamedTuple):
    """The planned range of a task: [start, end) of one partition."""

    topic: str
    topic_id: TopicId
    """NO_TOPIC_ID if the broker has no topic ids."""
    partition: int
    start: Offset
    end: Offset
    epoch_max: LeaderEpoch = -1
    """The highest leader epoch of records in the range; -1 if unknown."""
    epoch_since: Offset = -1
    """The offset from which all records have epoch `epoch_max`; -1 if unknown."""

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition} [{self.start}, {self.end})"


class RangeError(ClientError):
    """The range could not be read to its end.

    Rows below `offset` were returned; in a damaged range maybe not all of them.
    """

    def __init__(self, wanted: RangeToRead, offset: Offset, why: str) -> None:
        super().__init__(f"cannot read {wanted} from offset {offset} on: {why}")
        self.offset = offset


class RangeOutOfRange(RangeError):
    """The log does not have the offset: it was deleted or truncated."""

    def __init__(
        self, wanted: RangeToRead, offset: Offset, log_start: Offset, log_end: Offset
    ) -> None:
        super().__init__(wanted, offset, f"the log now has offsets [{log_start}, {log_end})")
        self.log_start = log_start
        self.log_end = log_end


class RangeOverwritten(RangeError):
    """The log was truncated and has new records since the range was planned."""

    def __init__(self, wanted: RangeToRead, offset: Offset, batch_epoch: LeaderEpoch) -> None:
        why = (
            f"the batch there has leader epoch {batch_epoch}, but the latest epoch was"
            f" {wanted.epoch_max} when the range was planned: the log was overwritten"
        )
        super().__init__(wanted, offset, why)


class TopicRecreated(RangeError):
    """The topic was deleted, and maybe recreated, since the range was planned."""

    def __init__(self, wanted: RangeToRead, offset: Offset, found_id: TopicId | None) -> None:
        now = "does not exist now" if found_id is None else f"has id {found_id.hex()} now"
        planned = f"had id {wanted.topic_id.hex()} when the range was planned"
        why = f"topic {wanted.topic!r} {planned}, and {now}"
        super().__init__(wanted, offset, why)
        self.found_id = found_id


class RangeUnreachable(RangeError):
    """No record arrived within the time limit."""

    def __init__(
        self, wanted: RangeToRead, offset: Offset, log_end: Offset, timeout_s: float, why: str
    ) -> None:
        super().__init__(wanted, offset, f"no records arrived within {timeout_s:g} s; {why}")
        self.log_end = log_end
        """The end of the readable records in the leader's last response; -1 if none arrived."""


class RangeCorrupt(RangeError):
    """The received bytes are damaged."""

    def __init__(self, wanted: RangeToRead, offset: Offset, reason: str) -> None:
        super().__init__(
            wanted, offset, f"{reason}; run `tidelog audit` to find the damaged replicas"
        )


class ReadLimits(NamedTuple):
    """The limits of a read: rows and bytes of a RecordBatch, bytes of a fetch, time limit."""

    rows: int = ROWS
    bytes: int = DATA_BYTES
    fetch_bytes: int = FETCH_BYTES
    timeout_s: float = TIMEOUT_S


DEFAULT_LIMITS = ReadLimits()


def read_range(
    cluster: Cluster,
    wanted: RangeToRead,
    schema: Any,
    *,
    isolation: int = READ_UNCOMMITTED,
    limits: ReadLimits = DEFAULT_LIMITS,
    keep: bool = False,
) -> Iterator[Any]:
    """Yield the rows of the range as RecordBatches of `schema`. Raises RangeError.

    Unless `keep` is set, a RecordBatch is valid only until the next one is requested.
    """
    rows = max(min(limits.rows, wanted.end - wanted.start), 1)
    decoder = new_decoder(
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
        response = self._fetch.fetch(offset, self._fetch_bytes(offset))
        records = response.records
        headers = scan_headers(records)
        if not len(headers) or headers.last_offset[-1] < offset:
            self._wait(response, headers)
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
        aborted = response.aborted if self._isolation == READ_COMMITTED else ()
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

    def _wait(self, response: FetchedPartition, headers: BatchHeaders) -> None:
        """Handle a response without new records: fetch more, wait, or end the range.

        The batch may be too large for the fetch, the log may not reach the offset yet, or the
        rest of the range may have no records.
        """
        if headers.tail and self._fetch_bytes(self.offset) < FETCH_BYTES_MAX:
            self._largest = min(2 * self._fetch_bytes(self.offset), FETCH_BYTES_MAX)
            return
        readable_end = response.readable_end(self._isolation)
        is_empty = not len(response.records) and not response.throttled
        self._empty = self._empty + 1 if is_empty and readable_end >= self._wanted.end else 0
        if self._empty >= EMPTY_RESPONSES:
            if self._fetch.is_on_disk(self.offset):
                self.offset = self._wanted.end
                return
            self._empty = 0
        why = f"the readable records end at offset {readable_end}"
        self._fetch.pause(self.offset, why)

    def _overwritten(self, headers: BatchHeaders, offset: Offset) -> RangeOverwritten | None:
        """Return an error for the first batch whose leader epoch contradicts the plan, or None."""
        wanted = self._wanted
        if wanted.epoch_max < 0:
            return None
        inside = (headers.last_offset >= offset) & (headers.base_offset < wanted.end)
        other = headers.leader_epoch > wanted.epoch_max
        if wanted.epoch_since >= 0:
            after_change = headers.base_offset >= wanted.epoch_since
            other |= after_change & (headers.leader_epoch < wanted.epoch_max)
        others = np.flatnonzero(inside & other & (headers.leader_epoch >= 0))
        if not len(others):
            return None
        at = max(offset, int(headers.base_offset[others[0]]))
        return RangeOverwritten(wanted, at, int(headers.leader_epoch[others[0]]))


class RangeFetch(PartitionFetcher):
    """Fetches the records of one range, and checks that the log is still the planned one."""

    def __init__(
        self, cluster: Cluster, wanted: RangeToRead, isolation: int, timeout_s: float
    ) -> None:
        super().__init__(cluster, TopicPartition(wanted.topic, wanted.partition), isolation)
        self._wanted = wanted
        self._timeout_s = timeout_s
        self._retry: Retry | None = None
        """Exists while a response is awaited; removed when records arrive."""
        self._missing_since: float | None = None
        self._log_end = -1

    def progress(self) -> None:
        """Reset the time limit because records arrived.

        The time limit starts again with the next request, because Spark may use the rows slowly.
        """
        self._retry = None
        self._missing_since = None

    def fetch(self, offset: Offset, size: int) -> FetchedPartition:
        """Return the leader's records at `offset`; valid until the next call.

        Raises RangeError, and BrokerError for permanent errors.
        """
        self._retry = self._retry or Retry(self._timeout_s)
        while True:
            try:
                found = self.attempt(offset, size)
            except ClientError as error:
                if not is_retriable_or_no_topic(error):
                    raise
                self.pause(offset, str(error))
            else:
                self._missing_since = None
                self._log_end = found.readable_end(self.isolation)
                return found

    def pause(self, offset: Offset, why: str) -> None:
        """Wait before the next attempt. Raises RangeUnreachable when the time is up."""
        self._retry = self._retry or Retry(self._timeout_s)
        unreachable = RangeUnreachable(self._wanted, offset, self._log_end, self._timeout_s, why)
        self._retry.wait(unreachable)

    # -- checks against the plan ----------------------------------------------------------------

    def refused(self, offset: Offset, code: int) -> None:
        if code in _OTHER_TOPIC:
            self.cluster.refresh([self._wanted.topic])
            self.planned_topic(offset)
        if code == ErrorCode.OFFSET_OUT_OF_RANGE:
            self._check_log(offset)
            code = ErrorCode.OFFSET_NOT_AVAILABLE  # the log has the offset now: retry
        super().refused(offset, code)

    def planned_topic(self, offset: Offset) -> TopicMetadata:
        """Return the topic, if it is the one that the range was planned for."""
        wanted = self._wanted
        found_id = None
        try:
            found = self.cluster.topic(wanted.topic)
            if found.id == wanted.topic_id or NO_TOPIC_ID in (found.id, wanted.topic_id):
                return found._replace(id=wanted.topic_id)
            found_id = found.id
        except NoSuchTopic:
            pass
        now = time.monotonic()
        self._missing_since = self._missing_since or now
        missing_s = now - self._missing_since
        planned = {wanted.topic: wanted.topic_id}
        if (
            missing_s > min(RECREATED_S, self._timeout_s / 2)
            and known_by_a_broker(self.cluster, planned) is None
        ):
            raise TopicRecreated(wanted, offset, found_id)
        raise BrokerError(f"fetch of topic {wanted.topic!r}", ErrorCode.UNKNOWN_TOPIC_ID)

    def is_on_disk(self, offset: Offset) -> bool:
        """Return whether the leader has the offset on its own disk.

        Then an empty response means that no record is left. With tiered storage (KIP-405) it may
        also mean that the remote storage is slow.
        """
        wanted = self._wanted
        try:
            first = list_offset(self.cluster, wanted.topic, wanted.partition, EARLIEST_LOCAL)
        except NotOffered:
            return True  # older than tiered storage
        except (BrokerError, CannotConnect, Unresolved, NoSuchTopic):
            return False
        if offset < first.offset:
            self.max_wait_ms = TIERED_WAIT_MS
        return offset >= first.offset

    def _check_log(self, offset: Offset) -> None:
        """Raise RangeOutOfRange if the leader's log does not have the offset."""
        wanted = self._wanted
        log_start = list_offset(self.cluster, wanted.topic, wanted.partition, EARLIEST).offset
        log_end = list_offset(self.cluster, wanted.topic, wanted.partition, LATEST).offset
        if not log_start <= offset <= log_end:
            raise RangeOutOfRange(wanted, offset, log_start, log_end)
