"""Send batches to the leaders of their partitions, with several requests in flight.

While nothing fails, requests leave one after another; responses are received when too much is
in flight, or at the end. After a failure all outstanding responses are received. Then the
unacknowledged batches are sent again, the first one of each partition at a time, to the leader
that the refreshed metadata names. Batches of idempotent producers carry sequence numbers, so a
batch that is sent twice is written once.

Invariants: the batches of a partition are sent in the order in which they were given; at most
five requests are in flight on a connection; `flush` returns only when every batch was
acknowledged.
"""

from collections import deque
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from tidelog.core.api_table import PRODUCE
from tidelog.core.errors import ErrorCode
from tidelog.core.record.crc32c import Buffer
from tidelog.core.slotted import field, slotted
from tidelog.core.types import BrokerId, Offset, TopicId, TopicPartition
from tidelog.core.wire.produce_request import TopicRecords, produce_pieces
from tidelog.shell.client.client_errors import (
    BrokerError,
    CannotConnect,
    ClientError,
    Unresolved,
)
from tidelog.shell.client.cluster import Cluster
from tidelog.shell.client.cluster_metadata import NO_TOPIC_ID, TopicMetadata
from tidelog.shell.client.connection import KafkaConnection, SentRequest
from tidelog.shell.client.retry import Retry

ALL = -1
"""acks: all in-sync replicas have the batch."""
NO_OFFSET = -1
ANSWER_S = 2.0
"""How long a response may take beyond the time that the broker waits for replicas."""
LAST_VERSION_WITH_NAMES = 12
LAST_VERSION_WITHOUT_ADDING = 11
"""The last version in which a transactional producer adds partitions to its transaction itself."""
IN_FLIGHT_MAX = 5
"""Batches that a broker remembers of a producer: with more it can't detect duplicates."""
IN_FLIGHT_BYTES_MAX = 16 * 1024 * 1024
REQUEST_BYTES_MAX = 4 * 1024 * 1024
REQUEST_BATCHES_MAX = 256
OUT_OF_ORDER = (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.DUPLICATE_SEQUENCE_NUMBER)
_NOTHING_WRITTEN = frozenset(
    {
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.UNKNOWN_TOPIC_ID,
    }
)
"""NOT_LEADER_OR_FOLLOWER is missing: a deposed leader also returns it for written batches."""


class Produced(NamedTuple):
    """A broker's response for one batch."""

    error: int
    base_offset: Offset
    log_append_time_ms: int
    log_start_offset: Offset
    message: str | None


WRITTEN_UNKNOWN_OFFSET = Produced(ErrorCode.NONE, NO_OFFSET, -1, -1, None)


class PendingProduce(NamedTuple):
    """A Produce request that was sent."""

    sent: SentRequest
    names: dict[TopicId, str]
    """Responses from version 13 on contain topic ids instead of names."""
    wait_s: float

    def receive(self, connection: KafkaConnection) -> dict[TopicPartition, Produced]:
        """Wait for the response. Raises ClientError."""
        answer = connection.answer(self.sent, self.wait_s)
        found = {}
        for topic in answer["responses"]:
            name = topic["name"] if "name" in topic else self.names[topic["topic_id"]]
            for each in topic["partition_responses"]:
                found[TopicPartition(name, each["index"])] = Produced(
                    each["error_code"],
                    each["base_offset"],
                    each.get("log_append_time_ms", -1),
                    each.get("log_start_offset", -1),
                    each.get("error_message"),
                )
        return found


def send_produce(
    connection: KafkaConnection,
    topics: Mapping[str, TopicMetadata],
    batches: Mapping[TopicPartition, Buffer],
    acks: int,
    timeout_ms: int,
    answer_s: float,
    transactional_id: str | None = None,
) -> PendingProduce:
    """Send one request with a batch for each partition. Raises ClientError."""
    by_topic: dict[str, list[tuple[int, Buffer]]] = {}
    for key, data in batches.items():
        by_topic.setdefault(key.topic, []).append((key.partition, data))
    records = [TopicRecords(name, topics[name].id, listed) for name, listed in by_topic.items()]
    nameless = any(topic.id == NO_TOPIC_ID for topic in records)
    newest = LAST_VERSION_WITH_NAMES if nameless else None
    if transactional_id is not None:
        newest = LAST_VERSION_WITHOUT_ADDING
    version = connection.version(PRODUCE, newest)

    def encode(correlation: int, client: str) -> list[Buffer]:
        return produce_pieces(
            version, correlation, client, acks, timeout_ms, records, transactional_id
        )

    sent = connection.ask_in_pieces(PRODUCE, version, encode)
    names = {topic.id: topic.name for topic in records}
    return PendingProduce(sent, names, timeout_ms / 1000 + answer_s)


@slotted
class Outgoing:
    """A batch that is not acknowledged yet."""

    data: Buffer
    sequence: int
    count: int
    maybe_written: bool = False


class Acknowledged(NamedTuple):
    """The last acknowledged batch of a partition."""

    base_offset: Offset
    """-1: the broker does not return it (acks=0, or a duplicate that it no longer remembers)."""
    records: int

    @property
    def end(self) -> Offset:
        return self.base_offset + self.records


@slotted
class InFlight:
    """A request in flight and its batches."""

    pending: PendingProduce
    batches: dict[TopicPartition, Outgoing]
    size: int


@slotted
class LeaderLink:
    """The connection to one leader, the requests in flight on it, and the next request."""

    connection: KafkaConnection
    in_flight: deque[InFlight] = field(default_factory=deque)
    next: dict[TopicPartition, Outgoing] = field(default_factory=dict)
    next_bytes: int = 0

    @property
    def is_full(self) -> bool:
        return (
            len(self.in_flight) >= IN_FLIGHT_MAX
            or sum(request.size for request in self.in_flight) >= IN_FLIGHT_BYTES_MAX
        )


class BatchSender:
    """Sends encoded batches and retries them.

    `timeout_s` bounds how long unacknowledged batches are retried without progress. The
    sender uses the connections in `connections` (by address) and adds to them; without it, those
    of `cluster`. With a `transactional_id` all batches belong to its transaction, to which the
    caller has added their partitions. After an error call `abandon`. Subclasses override `accept`,
    `refusal` and `gave_up` to judge responses by rules of their own.
    """

    def __init__(
        self,
        cluster: Cluster,
        *,
        timeout_s: float,
        request_timeout_ms: int,
        answer_s: float = ANSWER_S,
        acks: int = ALL,
        idempotent: bool = True,
        connections: dict[str, KafkaConnection] | None = None,
        transactional_id: str | None = None,
    ) -> None:
        self.cluster = cluster
        self.timeout_s = timeout_s
        self.acknowledged: dict[TopicPartition, Acknowledged] = {}
        self.retry: Retry | None = None
        """The deadline of all batches; None: `timeout_s` from a failure or the last progress."""
        self._request_timeout_ms = request_timeout_ms
        self._answer_s = answer_s
        self._acks = acks
        self._idempotent = idempotent
        self._connections = connections
        self._transactional_id = transactional_id
        self._links: dict[BrokerId, LeaderLink] = {}
        self._unacked: dict[TopicPartition, deque[Outgoing]] = {}
        self._last_link: dict[TopicPartition, LeaderLink] = {}
        """Where the last batch of a partition was sent."""
        self._failure: ClientError | None = None

    def send(self, key: TopicPartition, data: Buffer, sequence: int, count: int) -> None:
        """Add a batch to the next request; send that request if it is full. Raises ClientError."""
        batch = Outgoing(data, sequence, count)
        self._unacked.setdefault(key, deque()).append(batch)
        try:
            link = self._link(key)
            if len(self._unacked[key]) > 1 and self._last_link.get(key) is not link:
                # Earlier batches went to the previous leader: they must be written first.
                raise BrokerError(f"append to {key}", ErrorCode.NOT_LEADER_OR_FOLLOWER)
            self._last_link[key] = link
            if key not in self.acknowledged:
                # A broker accepts any sequence number from a producer that it does not know.
                # Until it knows this one, the second batch must not overtake the first.
                self._await_first(link, key)
            full = link.next_bytes + len(data) > REQUEST_BYTES_MAX
            if full or key in link.next or len(link.next) == REQUEST_BATCHES_MAX:
                self._post(link)
            if self._failure is None:
                link.next[key] = batch
                link.next_bytes += len(data)
        except ClientError as error:
            if not error.retriable:
                raise
            self._failure = error
        if self._failure is not None:
            self._repair()

    def post(self) -> None:
        """Send all batches; wait only if too much is in flight. Raises ClientError."""
        for link in list(self._links.values()):
            self._post(link)
        if self._failure is not None:
            self._repair()

    def flush(self) -> None:
        """Wait until all batches are acknowledged. Raises ClientError."""
        self.post()
        self._receive_all()
        if self._failure is not None:
            self._repair()

    def abandon(self) -> bool:
        """Drop the unacknowledged batches; return whether one of them may be written."""
        maybe_written = self._maybe_written()
        for link in self._links.values():
            if link.in_flight:
                link.connection.close()  # a response of this request must not reach another
        self._links.clear()
        self._unacked.clear()
        self._failure = None
        return maybe_written

    # -- rules that subclasses may replace -----------------------------------------------------

    def accept(self, key: TopicPartition, batch: Outgoing, produced: Produced) -> None:
        """Check an acknowledgement. Raises an error if the batch must not count as written."""

    def refusal(
        self,
        key: TopicPartition,
        batch: Outgoing,  # noqa: ARG002 - for subclasses
        produced: Produced,
    ) -> Exception:
        """Return the error for a batch that was refused, or acknowledged before an earlier one."""
        code = produced.error or ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        return BrokerError(f"append to {key}", code, produced.message)

    def gave_up(
        self,
        failure: ClientError,
        waiting: Iterable[Outgoing],  # noqa: ARG002 - for subclasses
    ) -> Exception:
        """Return the error to raise when the time is up."""
        return failure

    # -- without failures ----------------------------------------------------------------------

    def _link(self, key: TopicPartition) -> LeaderLink:
        leader = self.cluster.leader(*key, self.retry).leader
        link = self._links.get(leader)
        if link is None or (link.connection.closed and not link.in_flight):
            link = self._links[leader] = LeaderLink(self._connect(leader))
        return link

    def _connect(self, leader: BrokerId) -> KafkaConnection:
        if self._connections is None:
            return self.cluster.broker(leader)
        found = self.cluster.metadata.brokers.get(leader)
        if found is None:
            raise CannotConnect(
                f"broker {leader}", "the cluster's metadata does not list this broker"
            )
        kept = self._connections.get(str(found))
        if kept is None or kept.closed:
            kept = self.cluster.open_connection(found.host, found.port, self.cluster.timeout_s)
            self._connections[str(found)] = kept
        return kept

    def _await_first(self, link: LeaderLink, key: TopicPartition) -> None:
        while len(self._unacked[key]) > 1 and self._failure is None:
            self._post(link)
            if link.in_flight:
                self._receive(link)

    def _post(self, link: LeaderLink) -> None:
        """Send the next request of a link, once there is room for it."""
        if not link.next:
            return
        while link.in_flight and self._failure is None and link.is_full:
            self._receive(link)
        batches, link.next, link.next_bytes = link.next, {}, 0
        if self._failure is not None:
            return
        try:
            pending = self._send(link.connection, batches)
        except (CannotConnect, Unresolved) as error:
            if isinstance(error, Unresolved):
                _mark_maybe_written(batches)
            self._lost(link, error)
            return
        if self._acks == 0:
            for key, batch in batches.items():
                self._judge(key, batch, WRITTEN_UNKNOWN_OFFSET)
            return
        size = sum(len(batch.data) for batch in batches.values())
        link.in_flight.append(InFlight(pending, batches, size))

    def _send(
        self, connection: KafkaConnection, batches: dict[TopicPartition, Outgoing]
    ) -> PendingProduce:
        timeout_ms = self._request_timeout_ms
        if self.retry is not None:
            timeout_ms = min(timeout_ms, max(int(self.retry.remaining_s * 1000), 1))
        topics = {key.topic: self.cluster.topic(key.topic) for key in batches}
        data = {key: batch.data for key, batch in batches.items()}
        return send_produce(
            connection,
            topics,
            data,
            self._acks,
            timeout_ms,
            self._answer_s,
            self._transactional_id,
        )

    def _receive(self, link: LeaderLink) -> None:
        """Receive the oldest response of a link."""
        request = link.in_flight.popleft()
        try:
            produced = request.pending.receive(link.connection)
        except (CannotConnect, Unresolved) as error:
            _mark_maybe_written(request.batches)
            self._lost(link, error)
            return
        for key, each in produced.items():
            self._judge(key, request.batches[key], each)
        if missing := [key for key in request.batches if key not in produced]:
            _mark_maybe_written({key: request.batches[key] for key in missing})
            omitted = BrokerError(f"append to {missing[0]}", ErrorCode.UNKNOWN_SERVER_ERROR)
            self._failure = self._failure or omitted

    def _judge(self, key: TopicPartition, batch: Outgoing, produced: Produced) -> None:
        waiting = self._unacked[key]
        in_order = waiting[0] is batch
        code = produced.error
        if in_order and code == ErrorCode.NONE:
            self.accept(key, batch, produced)
            waiting.popleft()
            self.acknowledged[key] = Acknowledged(produced.base_offset, batch.count)
            return
        if code in OUT_OF_ORDER and not (in_order and self._failure is None):
            # This error follows from the failure of an earlier batch: both are sent again.
            self._failure = self._failure or BrokerError(f"append to {key}", code, produced.message)
            return
        error = self.refusal(key, batch if code else waiting[0], produced)
        if not isinstance(error, ClientError) or not error.retriable:
            raise error
        batch.maybe_written |= code not in _NOTHING_WRITTEN
        self._failure = self._failure or error

    # -- after a failure -----------------------------------------------------------------------

    def _lost(self, link: LeaderLink, error: ClientError) -> None:
        """Close a failed connection and drop the requests in flight on it."""
        link.connection.close()
        for request in link.in_flight:
            _mark_maybe_written(request.batches)
        link.in_flight.clear()
        self._links = {leader: each for leader, each in self._links.items() if each is not link}
        self._failure = self._failure or error

    def _receive_all(self) -> None:
        for link in list(self._links.values()):
            while link.in_flight:
                self._receive(link)

    def _repair(self) -> None:
        """Receive outstanding responses, then resend batches until all are acknowledged."""
        self._receive_all()
        retry = self.retry or Retry(self.timeout_s)
        while waiting := [key for key, batches in self._unacked.items() if batches]:
            failure, self._failure = self._failure, None
            if failure is not None and not self._idempotent and self._maybe_written():
                raise failure
            try:
                if failure is not None:
                    self.cluster.refresh(sorted({key.topic for key in waiting}))
                self._send_first_of(waiting)
            except ClientError as error:
                if not error.retriable:
                    raise
                self._failure = error
            if self._failure is not None:
                unacked = [batch for key in waiting for batch in self._unacked[key]]
                retry.wait(self.gave_up(self._failure, unacked))
            elif self.retry is None:
                retry = Retry(self.timeout_s)
        self._failure = None

    def _send_first_of(self, waiting: Iterable[TopicPartition]) -> None:
        """Send the first batch of each partition and receive the responses."""
        for link in self._links.values():  # left from an attempt that failed
            link.next, link.next_bytes = {}, 0
        for key in waiting:
            self._link(key).next[key] = self._unacked[key][0]
        for link in list(self._links.values()):
            self._post(link)
        self._receive_all()

    def _maybe_written(self) -> bool:
        return any(batch.maybe_written for batches in self._unacked.values() for batch in batches)


def _mark_maybe_written(batches: Mapping[TopicPartition, Outgoing]) -> None:
    for batch in batches.values():
        batch.maybe_written = True
