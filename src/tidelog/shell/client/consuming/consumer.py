"""Reading many partitions at once: one fetch under way at each leader, whoever leads by then.

It has no thread: fetches are sent to all leaders, and answers are taken as they come.

Always true: of each partition records come in the order of their offsets; never a record
below the offset that was asked for, nor one at or past the end that was asked for; what is
held in memory is one answer of each leader, and one batch of it opened.
"""

import selectors
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from tidelog.core.errors import ErrorCode
from tidelog.core.record.decoder import LogRecord, decode
from tidelog.core.record.isolation import read_committed
from tidelog.core.record.record_batch import CorruptRecord, RecordBatch, batches
from tidelog.core.types import BrokerId, LeaderEpoch, Offset, TopicPartition
from tidelog.shell.client.client_errors import (
    BrokerError,
    CannotConnect,
    ClientError,
    NoAnswer,
    NoSuchTopic,
    Unresolved,
)
from tidelog.shell.client.cluster import Cluster
from tidelog.shell.client.connection import KafkaConnection
from tidelog.shell.client.consuming.place import (
    UNKNOWN_EPOCH,
    Place,
    Tell,
    follow_leader,
    return_to_range,
)
from tidelog.shell.client.fetching import (
    READ_COMMITTED,
    READ_UNCOMMITTED,
    FetchedPartition,
    FetchFrom,
    PendingFetch,
    send_fetch,
)
from tidelog.shell.client.retry import Backoff

ANSWER_BYTES = 8 * 1024 * 1024
MAX_WAIT_MS = 500
PAUSE_S = 0.1
GONE_S = 3.0
"""A topic that nobody knows for so long was deleted."""
NAMES_SHOWN = 3


class Span(NamedTuple):
    """Where to begin in a partition, and where to end; without an end, never."""

    start: Offset
    end: Offset | None = None
    epoch: LeaderEpoch = UNKNOWN_EPOCH
    """Of the record before, if it is known: whether it is still there is then checked."""


class Chunk(NamedTuple):
    """Records of one partition that came together."""

    key: TopicPartition
    records: list[LogRecord]
    broker: BrokerId


class Consumer:
    """Reads the partitions it was given. `tell` hears what did not go straight. With
    `patience_s` a partition that can't be read for so long is an error; else it is tried for
    ever."""

    def __init__(
        self,
        cluster: Cluster,
        isolation: int = READ_UNCOMMITTED,
        tell: Tell = lambda _line: None,
        *,
        max_wait_ms: int = MAX_WAIT_MS,
        patience_s: float | None = None,
    ) -> None:
        self.cluster = cluster
        self.isolation = isolation
        self.tell = tell
        self.max_wait_ms = max_wait_ms
        self.patience_s = patience_s
        self._places: dict[TopicPartition, Place] = {}
        self._links: dict[BrokerId, KafkaConnection] = {}
        self._asked: dict[BrokerId, PendingFetch] = {}
        self._stale: set[str] = set()
        """Topics whose leaders must be looked up."""
        self._backoff = Backoff(PAUSE_S)
        self._not_before = 0.0

    def close(self) -> None:
        for link in self._links.values():
            link.close()
        self._links.clear()
        self._asked.clear()

    # -- what is read -------------------------------------------------------------------------

    def assign(self, spans: Mapping[TopicPartition, Span]) -> None:
        """Read these, and no others; one that was read before begins anew."""
        self._places = {}
        self.add(spans)

    def add(self, spans: Mapping[TopicPartition, Span]) -> None:
        """Read these too."""
        self._places.update({key: Place(*span) for key, span in spans.items()})

    @property
    def positions(self) -> dict[TopicPartition, tuple[Offset, LeaderEpoch]]:
        """The offset of the next record of each partition, and the epoch of the last one."""
        return {key: (place.offset, place.read_epoch) for key, place in self._places.items()}

    @property
    def done(self) -> bool:
        """Whether every partition was read to its end."""
        return all(place.done for place in self._places.values())

    # -- reading ------------------------------------------------------------------------------

    def poll(self, timeout_s: float) -> Iterator[Chunk]:
        """What comes in within the time; a position moves on when the chunk behind it is asked
        for. Raises ClientError."""
        deadline = time.monotonic() + timeout_s
        self._look_up()
        self._ask()
        self._drop_silent()
        waited = max(deadline - time.monotonic(), 0)
        if not self._asked:
            time.sleep(min(waited, self._backoff.pause_s))
            return
        for broker in self._await_responses(waited):
            yield from self._take(broker)

    def _await_responses(self, timeout_s: float) -> list[BrokerId]:
        """Wait until a response begins to arrive; return the brokers that have one.

        `select.select` fails in a process with more than 1,024 open files.
        """
        with selectors.PollSelector() as selector:
            for broker in self._asked:
                selector.register(self._links[broker], selectors.EVENT_READ, broker)
            return [ready.data for ready, _ in selector.select(timeout_s)]

    def _ask(self) -> None:
        """Send a fetch to each leader that has none under way."""
        wanted: dict[BrokerId, dict[TopicPartition, FetchFrom]] = {}
        for key, place in list(self._places.items()):
            held = place.failing_since is not None and key.topic in self._stale
            if held or place.done or place.leader in self._asked:
                continue
            if self._know_leader(key, place) and place.leader not in self._asked:
                wanted.setdefault(place.leader, {})[key] = place.fetch_from()
        for broker, partitions in wanted.items():
            topics = {key.topic: self.cluster.topic(key.topic) for key in partitions}
            try:
                self._asked[broker] = send_fetch(
                    self._link(broker),
                    topics,
                    partitions,
                    self.isolation,
                    self.max_wait_ms,
                    ANSWER_BYTES,
                )
            except (CannotConnect, Unresolved) as error:
                self._lost(broker, partitions, error)

    def _know_leader(self, key: TopicPartition, place: Place) -> bool:
        try:
            if follow_leader(self.cluster, key, place, self.tell):
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

    def _drop_silent(self) -> None:
        """A leader that hangs is not waited for without end."""
        for broker, under_way in list(self._asked.items()):
            if time.monotonic() > under_way.deadline:
                error = NoAnswer(self._links[broker].address, "Fetch", self.cluster.timeout_s)
                self._lost(broker, under_way.wanted, error)

    def _take(self, broker: BrokerId) -> Iterator[Chunk]:
        under_way = self._asked.pop(broker)
        try:
            found = under_way.receive()
        except (CannotConnect, Unresolved, BrokerError) as error:
            self._lost(broker, under_way.wanted, error)
            return
        for key, part in found.items():
            place = self._places.get(key)
            if place is None or place.offset != under_way.wanted[key].offset:
                continue  # it was assigned anew meanwhile
            if part.error:
                self._refused(key, place, part.error)
                continue
            place.failing_since = None
            self._backoff.reset()
            for records in self._open(key, place, part):
                yield Chunk(key, records, broker)
            if part.records and key in self._places:  # the next time others come first
                self._places[key] = self._places.pop(key)

    def _open(
        self, key: TopicPartition, place: Place, found: FetchedPartition
    ) -> Iterator[list[LogRecord]]:
        """The records batch by batch; the place moves on behind each."""
        seen = _Checked(found.records)
        wanted: Iterable[RecordBatch] = seen
        if self.isolation == READ_COMMITTED:
            wanted = read_committed(seen, found.aborted)
        start = place.offset
        try:
            for batch in wanted:
                if batch.is_control or batch.last_offset < start:
                    continue
                records = decode(batch)
                if batch.base_offset < start:
                    records = [record for record in records if record.offset >= start]
                if place.end is not None and batch.last_offset >= place.end:
                    records = [record for record in records if record.offset < place.end]
                if records:
                    yield records
                place.offset, place.read_epoch = batch.next_offset, batch.leader_epoch
                if place.done:
                    return
        except CorruptRecord as error:
            raise ClientError(
                f"{key} is damaged at offset {place.offset}: {error.reason};"
                f" to read what is behind it, begin at a later offset"
            ) from None
        if seen.next_offset > place.offset:
            place.offset, place.read_epoch = seen.next_offset, seen.leader_epoch

    # -- what goes wrong ----------------------------------------------------------------------

    def _look_up(self) -> None:
        """Ask who leads, where that is not known; not too often."""
        if not self._stale or time.monotonic() < self._not_before:
            return
        self._not_before = time.monotonic() + self._backoff.pause_s
        self._backoff.grow()
        topics = sorted({key.topic for key in self._places} & self._stale)
        try:
            self.cluster.refresh(topics)
        except (CannotConnect, Unresolved, BrokerError) as error:
            self._fail([key for key in self._places if key.topic in topics], error)
        else:
            self._stale.clear()

    def _refused(self, key: TopicPartition, place: Place, code: int) -> None:
        error: ClientError = BrokerError(f"fetch of {key} at offset {place.offset}", code)
        if code == ErrorCode.OFFSET_OUT_OF_RANGE:
            try:
                return_to_range(self.cluster, key, place, self.tell)
            except ClientError as failed:
                error = failed
            else:
                return
        self._fail([key], error)

    def _lost(
        self, broker: BrokerId, wanted: Mapping[TopicPartition, FetchFrom], error: ClientError
    ) -> None:
        """A leader is gone, or silent, and with it the answer to what it was asked."""
        self._asked.pop(broker, None)
        link = self._links.pop(broker, None)
        if link is not None:
            link.close()
        if not isinstance(error, BrokerError):
            error = CannotConnect(f"broker {broker}", _why(error))
        self._fail([key for key in wanted if key in self._places], error)

    def _fail(self, keys: list[TopicPartition], error: ClientError) -> None:
        """Tell of it once, and look the leaders up; raise it where trying has no use."""
        if not error.retriable and not isinstance(error, NoSuchTopic):
            raise error
        now = time.monotonic()
        fresh = []
        for key in keys:
            place = self._places[key]
            self._stale.add(key.topic)
            if place.failing_since is None:
                place.failing_since = now
                fresh.append(str(key))
                continue
            failing_s = now - place.failing_since
            if self.patience_s is not None and failing_s > self.patience_s:
                raise error
            if isinstance(error, NoSuchTopic) and failing_s > GONE_S:
                self._forget(key, error)
        if fresh and not _expected(error):
            names = ", ".join(fresh[:NAMES_SHOWN])
            more = f" and {len(fresh) - NAMES_SHOWN} more" if len(fresh) > NAMES_SHOWN else ""
            self.tell(f"{names}{more}: {_why(error)}; trying again")

    def _forget(self, key: TopicPartition, error: NoSuchTopic) -> None:
        """Deleted while it was read; the last one ends it all."""
        del self._places[key]
        if not self._places:
            raise error
        self.tell(f"there is no {key} any more; it is left out")


class _Checked:
    """The batches of an answer, each with a right checksum, and where the last one ended."""

    def __init__(self, records: bytes | bytearray | memoryview) -> None:
        self._records = records
        self.next_offset = 0
        self.leader_epoch = -1

    def __iter__(self) -> Iterator[RecordBatch]:
        for batch in batches(self._records):
            if not batch.crc_ok():
                raise CorruptRecord(f"checksum of the batch at offset {batch.base_offset} differs")
            yield batch
            self.next_offset, self.leader_epoch = batch.next_offset, batch.leader_epoch


def _expected(error: ClientError) -> bool:
    """What every change of leaders brings is not worth a line; the new leader is told."""
    return isinstance(error, BrokerError) and error.code in (
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.OFFSET_NOT_AVAILABLE,
    )


def _why(error: ClientError) -> str:
    """The error without what to do about it: here it is being done."""
    if isinstance(error, CannotConnect):
        return f"can't reach {error.address}: {error.why}"
    return str(error).partition(";")[0]
