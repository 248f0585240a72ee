"""Read records: one partition with `Reader`, many at once with `Consumer`.

A consumer has one fetch in flight at each leader. It has no thread: `poll` sends fetches to all
leaders and yields records as responses arrive.

Each partition of a consumer has a position. When its leader changes, the position is compared with
the new leader's epochs before reading continues (KIP-320). Truncated records and deleted offsets
are reported in one line, and reading continues.

Invariants: the records of a partition are yielded in the order of their offsets, none outside the
requested range, and the checksum of each batch was verified. A position moves back only with a
report. Memory holds one response of each leader, with one batch decoded.
"""

import selectors
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

from tidelog.core.errors import ErrorCode
from tidelog.core.record.decoder import LogRecord, decode, read_committed
from tidelog.core.record.record_batch import CorruptRecord, RecordBatch
from tidelog.core.slotted import slotted
from tidelog.core.types import BrokerId, LeaderEpoch, Offset, TopicId, TopicPartition
from tidelog.shell.client.client_errors import (
    BrokerError,
    CannotConnect,
    ClientError,
    NoAnswer,
    NoSuchTopic,
    NothingMore,
    NotReady,
    Unresolved,
)
from tidelog.shell.client.cluster import Cluster
from tidelog.shell.client.cluster_metadata import NO_LEADER, NO_TOPIC_ID
from tidelog.shell.client.connection import KafkaConnection
from tidelog.shell.client.fetching import (
    MAX_BYTES,
    MAX_WAIT_MS,
    READ_COMMITTED,
    READ_UNCOMMITTED,
    CheckedBatches,
    FetchedPartition,
    FetchFrom,
    PendingFetch,
    fetch_partition,
    send_fetch,
)
from tidelog.shell.client.offsets import EARLIEST, LATEST, epoch_end, list_offset
from tidelog.shell.client.retry import Backoff

ANSWER_BYTES = 8 * 1024 * 1024
PAUSE_S = 0.1
GONE_S = 3.0
"""A topic that no broker knows for this long was deleted."""
NAMES_SHOWN = 3
UNKNOWN_EPOCH = -1
PARTITION_BYTES = 1024 * 1024

Notify = Callable[[str], None]


@slotted(eq=False)
class ReadPosition:
    """How far a partition is read, and from which leader."""

    offset: Offset
    end: Offset | None
    read_epoch: LeaderEpoch = UNKNOWN_EPOCH
    """The leader epoch of the last batch that was read."""
    leader: BrokerId = NO_LEADER
    leader_epoch: LeaderEpoch = UNKNOWN_EPOCH
    """The epoch of the leader whose log the position was last compared with."""
    topic_id: TopicId = NO_TOPIC_ID
    failing_since: float | None = None

    @property
    def done(self) -> bool:
        return self.end is not None and self.offset >= self.end

    def fetch_from(self) -> FetchFrom:
        return FetchFrom(self.offset, self.leader_epoch, PARTITION_BYTES)


def follow_leader(
    cluster: Cluster, key: TopicPartition, position: ReadPosition, notify: Notify
) -> bool:
    """Update the leader of a position, and compare the position with a new leader's log.

    Returns False if the metadata is older than the leader epoch that the position has seen.
    Raises ClientError.
    """
    topic = cluster.topic(key.topic)
    if position.topic_id != topic.id and position.topic_id != NO_TOPIC_ID:
        notify(f"topic {key.topic} was deleted and recreated; reading {key} from its beginning")
        position.offset, position.read_epoch = 0, UNKNOWN_EPOCH
        position.leader, position.leader_epoch = NO_LEADER, UNKNOWN_EPOCH
    position.topic_id = topic.id
    known = cluster.partition(*key)
    if known.leader == NO_LEADER:
        raise NotReady(f"{key} has no leader", ErrorCode.LEADER_NOT_AVAILABLE)
    if known.leader_epoch < position.leader_epoch:
        return False
    if known.leader_epoch != position.leader_epoch and position.read_epoch >= 0:
        _compare(cluster, key, position, notify)
        known = cluster.partition(*key)  # the leader may have changed during the request
    if position.leader not in (NO_LEADER, known.leader):
        notify(f"{key} is now led by broker {known.leader}; continuing at offset {position.offset}")
    position.leader, position.leader_epoch = known.leader, known.leader_epoch
    return True


def _compare(cluster: Cluster, key: TopicPartition, position: ReadPosition, notify: Notify) -> None:
    """Move the position back to where the leader's log differs from the records that were read."""
    epoch, end = epoch_end(cluster, *key, position.read_epoch)
    if end < 0 or (epoch == position.read_epoch and end >= position.offset):
        return
    if end < position.offset:
        notify(
            f"{key} was truncated: offsets {end} to {position.offset - 1}, which were read, are"
            f" no longer in the log; continuing at offset {end}"
        )
        position.offset = end
        _shorten(cluster, key, position)
    position.read_epoch = epoch


def _shorten(
    cluster: Cluster, key: TopicPartition, position: ReadPosition, isolation: int = READ_UNCOMMITTED
) -> None:
    """Lower the requested end to the end of the log."""
    if position.end is not None:
        position.end = min(position.end, list_offset(cluster, *key, LATEST, isolation).offset)


def return_to_range(
    cluster: Cluster, key: TopicPartition, position: ReadPosition, notify: Notify
) -> None:
    """Move a position that is outside the leader's log to its nearest end, with a message.
    Raises ClientError."""
    first = list_offset(cluster, *key, EARLIEST).offset
    last = list_offset(cluster, *key, LATEST).offset
    if first <= position.offset <= last:
        what = f"fetch of {key} at offset {position.offset}"
        raise BrokerError(what, ErrorCode.OFFSET_NOT_AVAILABLE)
    if position.offset < first:
        why = f"the log of {key} begins at offset {first}, after offset {position.offset}"
        position.offset = first
    else:
        why = f"the log of {key} ends at offset {last}, before {position.offset}"
        position.offset = last
    position.read_epoch = UNKNOWN_EPOCH
    notify(f"{why}; continuing at offset {position.offset}")
    _shorten(cluster, key, position)


class Span(NamedTuple):
    """The offsets to read in a partition: [start, end); without `end`, all later records."""

    start: Offset
    end: Offset | None = None
    epoch: LeaderEpoch = UNKNOWN_EPOCH
    """The leader epoch of the record before `start`, to detect truncation; -1: unknown."""


class Chunk(NamedTuple):
    """Records of one partition, from one batch."""

    key: TopicPartition
    records: list[LogRecord]
    broker: BrokerId


class Consumer:
    """Reads the assigned partitions.

    `notify` gets a line for each leader change, truncation and failure. With `patience_s`, a
    partition that can't be read for that long is an error; without it, reads are retried for ever.
    """

    def __init__(
        self,
        cluster: Cluster,
        isolation: int = READ_UNCOMMITTED,
        notify: Notify = lambda _line: None,
        *,
        max_wait_ms: int = MAX_WAIT_MS,
        patience_s: float | None = None,
    ) -> None:
        self.cluster = cluster
        self.isolation = isolation
        self.notify = notify
        self.max_wait_ms = max_wait_ms
        self.patience_s = patience_s
        self._positions: dict[TopicPartition, ReadPosition] = {}
        self._links: dict[BrokerId, KafkaConnection] = {}
        self._pending: dict[BrokerId, PendingFetch] = {}
        self._stale: set[str] = set()
        """Topics whose metadata must be refreshed."""
        self._backoff = Backoff(PAUSE_S)
        self._not_before = 0.0

    def close(self) -> None:
        for link in self._links.values():
            link.close()
        self._links.clear()
        self._pending.clear()

    # -- assignment ---------------------------------------------------------------------------

    def assign(self, spans: Mapping[TopicPartition, Span]) -> None:
        """Replace the assignment; every partition begins at the start of its span."""
        self._positions = {}
        self.add(spans)

    def add(self, spans: Mapping[TopicPartition, Span]) -> None:
        """Add partitions to the assignment."""
        self._positions.update({key: ReadPosition(*span) for key, span in spans.items()})

    @property
    def positions(self) -> dict[TopicPartition, tuple[Offset, LeaderEpoch]]:
        """The offset of the next record of each partition, and the epoch of the last one."""
        return {
            key: (position.offset, position.read_epoch) for key, position in self._positions.items()
        }

    @property
    def done(self) -> bool:
        """Whether every partition was read to its end."""
        return all(position.done for position in self._positions.values())

    # -- reading ------------------------------------------------------------------------------

    def poll(self, timeout_s: float) -> Iterator[Chunk]:
        """Yield the records that arrive within the time. Raises ClientError.

        A position advances past a chunk when the next chunk is requested.
        """
        deadline = time.monotonic() + timeout_s
        self._refresh()
        self._send_fetches()
        self._drop_overdue()
        waited = max(deadline - time.monotonic(), 0)
        if not self._pending:
            time.sleep(min(waited, self._backoff.pause_s))
            return
        for broker in self._await_responses(waited):
            yield from self._receive(broker)

    def _await_responses(self, timeout_s: float) -> list[BrokerId]:
        """Wait until a response begins to arrive; return the brokers that have one.

        `select.select` fails in a process with more than 1,024 open files.
        """
        with selectors.PollSelector() as selector:
            for broker in self._pending:
                selector.register(self._links[broker], selectors.EVENT_READ, broker)
            return [ready.data for ready, _ in selector.select(timeout_s)]

    def _send_fetches(self) -> None:
        """Send a fetch to each leader that has none in flight."""
        wanted: dict[BrokerId, dict[TopicPartition, FetchFrom]] = {}
        for key, position in list(self._positions.items()):
            held = position.failing_since is not None and key.topic in self._stale
            if held or position.done or position.leader in self._pending:
                continue
            if self._update_leader(key, position) and position.leader not in self._pending:
                wanted.setdefault(position.leader, {})[key] = position.fetch_from()
        for broker, partitions in wanted.items():
            topics = {key.topic: self.cluster.topic(key.topic) for key in partitions}
            try:
                self._pending[broker] = send_fetch(
                    self._link(broker),
                    topics,
                    partitions,
                    self.isolation,
                    self.max_wait_ms,
                    ANSWER_BYTES,
                )
            except (CannotConnect, Unresolved) as error:
                self._lost(broker, partitions, error)

    def _update_leader(self, key: TopicPartition, position: ReadPosition) -> bool:
        try:
            if follow_leader(self.cluster, key, position, self.notify):
                return True
            self._stale.add(key.topic)
        except (CannotConnect, Unresolved, BrokerError, NoSuchTopic) as error:
            self._fail([key], error)
        return False

    def _link(self, broker: BrokerId) -> KafkaConnection:
        link = self._links.get(broker)
        if link is None or link.closed:
            link = self._links[broker] = self.cluster.own_connection(broker)
        return link

    def _drop_overdue(self) -> None:
        """Drop fetches whose response is overdue."""
        for broker, pending in list(self._pending.items()):
            if time.monotonic() > pending.deadline:
                error = NoAnswer(self._links[broker].address, "Fetch", self.cluster.timeout_s)
                self._lost(broker, pending.wanted, error)

    def _receive(self, broker: BrokerId) -> Iterator[Chunk]:
        pending = self._pending.pop(broker)
        try:
            found = pending.receive()
        except (CannotConnect, Unresolved, BrokerError) as error:
            self._lost(broker, pending.wanted, error)
            return
        for key, part in found.items():
            position = self._positions.get(key)
            if position is None or position.offset != pending.wanted[key].offset:
                continue  # the assignment changed meanwhile
            if part.error:
                self._refused(key, position, part.error)
                continue
            position.failing_since = None
            self._backoff.reset()
            for records in self._open(key, position, part):
                yield Chunk(key, records, broker)
            if part.records and key in self._positions:  # the next fetch lists others first
                self._positions[key] = self._positions.pop(key)

    def _open(
        self, key: TopicPartition, position: ReadPosition, found: FetchedPartition
    ) -> Iterator[list[LogRecord]]:
        """Yield the records batch by batch and advance the position after each."""
        seen = CheckedBatches(found.records)
        wanted: Iterable[RecordBatch] = seen
        if self.isolation == READ_COMMITTED:
            wanted = read_committed(seen, found.aborted)
        start = position.offset
        try:
            for batch in wanted:
                if batch.is_control or batch.last_offset < start:
                    continue
                records = decode(batch)
                if batch.base_offset < start:
                    records = [record for record in records if record.offset >= start]
                if position.end is not None and batch.last_offset >= position.end:
                    records = [record for record in records if record.offset < position.end]
                if records:
                    yield records
                position.offset, position.read_epoch = batch.next_offset, batch.leader_epoch
                if position.done:
                    return
        except CorruptRecord as error:
            raise ClientError(
                f"{key} is damaged at offset {position.offset}: {error.reason};"
                " to skip the damage, start at a later offset"
            ) from None
        if seen.next_offset > position.offset:
            position.offset, position.read_epoch = seen.next_offset, seen.leader_epoch

    # -- failures -----------------------------------------------------------------------------

    def _refresh(self) -> None:
        """Refresh the metadata of stale topics, with a backoff."""
        if not self._stale or time.monotonic() < self._not_before:
            return
        self._not_before = time.monotonic() + self._backoff.pause_s
        self._backoff.grow()
        topics = sorted({key.topic for key in self._positions} & self._stale)
        try:
            self.cluster.refresh(topics)
        except (CannotConnect, Unresolved, BrokerError) as error:
            self._fail([key for key in self._positions if key.topic in topics], error)
        else:
            self._stale.clear()

    def _refused(self, key: TopicPartition, position: ReadPosition, code: int) -> None:
        error: ClientError = BrokerError(f"fetch of {key} at offset {position.offset}", code)
        if code == ErrorCode.OFFSET_OUT_OF_RANGE:
            try:
                return_to_range(self.cluster, key, position, self.notify)
            except ClientError as failed:
                error = failed
            else:
                return
        self._fail([key], error)

    def _lost(
        self, broker: BrokerId, wanted: Mapping[TopicPartition, FetchFrom], error: ClientError
    ) -> None:
        """Close a failed connection and drop the fetch in flight on it."""
        self._pending.pop(broker, None)
        link = self._links.pop(broker, None)
        if link is not None:
            link.close()
        if not isinstance(error, BrokerError):
            error = CannotConnect(f"broker {broker}", _why(error))
        self._fail([key for key in wanted if key in self._positions], error)

    def _fail(self, keys: list[TopicPartition], error: ClientError) -> None:
        """Report the first failure of each partition, and mark its topic stale. Raises permanent
        errors, and any error after `patience_s`."""
        if not error.retriable and not isinstance(error, NoSuchTopic):
            raise error
        now = time.monotonic()
        fresh = []
        for key in keys:
            position = self._positions[key]
            self._stale.add(key.topic)
            if position.failing_since is None:
                position.failing_since = now
                fresh.append(str(key))
                continue
            failing_s = now - position.failing_since
            if self.patience_s is not None and failing_s > self.patience_s:
                raise error
            if isinstance(error, NoSuchTopic) and failing_s > GONE_S:
                self._forget(key, error)
        if fresh and not _expected(error):
            names = ", ".join(fresh[:NAMES_SHOWN])
            more = f" and {len(fresh) - NAMES_SHOWN} more" if len(fresh) > NAMES_SHOWN else ""
            self.notify(f"{names}{more}: {_why(error)}; retrying")

    def _forget(self, key: TopicPartition, error: NoSuchTopic) -> None:
        """Drop a partition of a deleted topic; raise the error if it was the last one."""
        del self._positions[key]
        if not self._positions:
            raise error
        self.notify(f"{key} was deleted; it is no longer read")


def _expected(error: ClientError) -> bool:
    """Whether every leader change causes this error; the new leader is reported instead."""
    return isinstance(error, BrokerError) and error.code in (
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.OFFSET_NOT_AVAILABLE,
    )


def _why(error: ClientError) -> str:
    """The error without its hint: the consumer retries by itself."""
    if isinstance(error, CannotConnect):
        return f"can't reach {error.address}: {error.why}"
    return str(error).partition(";")[0]


class Fetched(NamedTuple):
    """Decoded records of one partition, and the state of the leader's log."""

    records: list[LogRecord]
    next_offset: Offset
    """The offset of the next fetch."""
    high_watermark: Offset
    last_stable_offset: Offset
    log_start_offset: Offset


class Reader:
    """Reads partitions from their current leaders."""

    def __init__(
        self,
        cluster: Cluster,
        isolation: int = READ_UNCOMMITTED,
        max_wait_ms: int = MAX_WAIT_MS,
        max_bytes: int = MAX_BYTES,
    ) -> None:
        self.cluster = cluster
        self.isolation = isolation
        self.max_wait_ms = max_wait_ms
        self.max_bytes = max_bytes

    def fetch(self, topic: str, partition: int, offset: Offset) -> Fetched:
        """Return the records at `offset`; wait up to `max_wait_ms` for the first one."""
        found = fetch_partition(
            self.cluster,
            TopicPartition(topic, partition),
            offset,
            self.max_bytes,
            self.isolation,
            self.max_wait_ms,
        )
        records, next_offset = open_batches(found, offset, self.isolation)
        return Fetched(records, next_offset, *found[1:4])

    def read(
        self, topic: str, partition: int, start: Offset, end: Offset | None = None
    ) -> Iterator[LogRecord]:
        """Yield the records in [start, end); without `end`, up to the last readable record now.

        Raises NothingMore if the log does not reach `end` within the cluster's timeout.
        """
        offset = start
        waited_from = time.monotonic()
        while end is None or offset < end:
            found = self.fetch(topic, partition, offset)
            if found.next_offset > offset:
                waited_from = time.monotonic()
            elif end is not None and time.monotonic() - waited_from > self.cluster.timeout_s:
                key = TopicPartition(topic, partition)
                raise NothingMore(str(key), offset, end, self.cluster.timeout_s)
            for record in found.records:
                if end is not None and record.offset >= end:
                    return
                yield record
            if end is None:
                committed = self.isolation == READ_COMMITTED
                end = found.last_stable_offset if committed else found.high_watermark
            offset = found.next_offset


def open_batches(
    found: FetchedPartition, offset: Offset, isolation: int = READ_UNCOMMITTED
) -> tuple[list[LogRecord], Offset]:
    """Return the records from `offset` on, and the offset after them. Raises CorruptRecord."""
    seen = CheckedBatches(found.records)
    wanted: Iterable[RecordBatch] = seen
    if isolation == READ_COMMITTED:
        wanted = read_committed(seen, found.aborted)
    records = [
        record
        for batch in wanted
        if not batch.is_control
        for record in decode(batch)
        if record.offset >= offset
    ]
    return records, max(offset, seen.next_offset)
