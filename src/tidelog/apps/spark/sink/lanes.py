"""Batches to the leaders of their partitions, several requests under way on each connection.

Nothing is waited for while all goes well: requests leave one after another, and answers are
taken when a lane is full or at the end. When one fails, everything under way is taken in, and
what is not acknowledged is sent again, batch by batch in the order of its numbers, to whoever
leads by then. Batches bear sequence numbers, so sending twice writes once.

Always true: the batches of a partition are sent in the order in which they were given, at most
five are under way, and `flush` returns only when every batch is in the log of all in-sync
replicas. A batch that was there before, from somebody else, is a Conflict.
"""

from collections import deque
from collections.abc import Iterable

from tidelog.apps.spark.sink.sink_errors import Conflict, SinkError, TooLarge, TooLate
from tidelog.core.errors import ErrorCode
from tidelog.core.record.crc32c import Buffer
from tidelog.core.record.decoder import decode
from tidelog.core.record.record_batch import RecordBatch, batches, parse
from tidelog.core.slotted import field, slotted
from tidelog.core.types import BrokerId, Offset, TopicId, TopicPartition
from tidelog.core.wire.codec import Struct
from tidelog.core.wire.produce_request import TopicRecords, produce_pieces
from tidelog.shell.client.api_keys import PRODUCE
from tidelog.shell.client.client_errors import (
    BrokerError,
    CannotConnect,
    ClientError,
    Unresolved,
    error_name,
)
from tidelog.shell.client.cluster import Cluster
from tidelog.shell.client.cluster_metadata import NO_TOPIC_ID, PartitionMetadata
from tidelog.shell.client.connection import KafkaConnection, Question
from tidelog.shell.client.producer import ALL, ANSWER_S, LAST_VERSION_WITH_NAMES
from tidelog.shell.client.reader import FetchFrom, fetch
from tidelog.shell.client.retry import Retry

IN_FLIGHT_MAX = 5
"""What a broker remembers of a producer: more, and it can't tell what was sent twice."""
IN_FLIGHT_BYTES_MAX = 16 * 1024 * 1024
REQUEST_BYTES_MAX = 4 * 1024 * 1024
REQUEST_BATCHES_MAX = 256
REPLICAS_WAIT_MS = 15_000
"""How long a leader may wait for its followers before it says so."""
_TOO_LARGE = (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE)


@slotted
class Outgoing:
    """A batch that is not acknowledged yet."""

    data: bytes
    sequence: int
    count: int


@slotted
class Request:
    """One Produce under way."""

    question: Question
    batches: dict[TopicPartition, Outgoing]
    names: dict[TopicId, str]
    """Of its topics: an answer may tell nothing but their ids."""
    size: int


@slotted
class Lane:
    """A connection to one leader, and what is under way on it."""

    connection: KafkaConnection
    under_way: deque[Request] = field(default_factory=deque)
    next: dict[TopicPartition, Outgoing] = field(default_factory=dict)
    next_bytes: int = 0


class Lanes:
    """Sends the batches of one task. `ends` tells how far each partition was written.
    `connections` outlive it, by address; after an error they must not be used again."""

    def __init__(
        self,
        cluster: Cluster,
        connections: dict[str, KafkaConnection],
        delivery_s: float,
        batch_bytes: int,
    ) -> None:
        self.cluster = cluster
        self._connections = connections
        self.ends: dict[TopicPartition, Offset] = {}
        self.delivery_s = delivery_s
        self._batch_bytes = batch_bytes
        self._lanes: dict[BrokerId, Lane] = {}
        self._unacked: dict[TopicPartition, deque[Outgoing]] = {}
        self._homes: dict[TopicPartition, Lane] = {}
        """Where the last batch of a partition went."""
        self._stamping: set[str] = set()
        """Topics of LogAppendTime: their answers always tell a time."""
        self._trouble: ClientError | None = None

    def send(self, key: TopicPartition, data: bytes, sequence: int, count: int) -> None:
        """Give a batch; it leaves with `post`, or before. Raises SinkError, ClientError."""
        batch = Outgoing(data, sequence, count)
        self._unacked.setdefault(key, deque()).append(batch)
        try:
            lane = self._lane(key)
            if len(self._unacked[key]) > 1 and self._homes.get(key) is not lane:
                # Others are on their way to the leader before this one: they come first.
                raise BrokerError(f"the leader of {key}", ErrorCode.NOT_LEADER_OR_FOLLOWER)
            self._homes[key] = lane
            if key not in self.ends:
                # A broker takes any number from a producer that it does not know. Until it
                # knows this one, the second batch must not overtake the first.
                self._await_first(lane, key)
            full = lane.next_bytes + len(data) > REQUEST_BYTES_MAX
            if full or key in lane.next or len(lane.next) == REQUEST_BATCHES_MAX:
                self._post(lane)
            if self._trouble is None:
                lane.next[key] = batch
                lane.next_bytes += len(data)
        except ClientError as error:
            if not error.retriable:
                raise
            self._trouble = error
        if self._trouble is not None:
            self._repair()

    def post(self) -> None:
        """Send what was given; wait only where too much is under way."""
        for lane in list(self._lanes.values()):
            self._post(lane)
        if self._trouble is not None:
            self._repair()

    def flush(self) -> None:
        """Until all that was given is acknowledged."""
        self.post()
        self._take_all()
        if self._trouble is not None:
            self._repair()

    # -- the straight way ----------------------------------------------------------------------

    def _lane(self, key: TopicPartition) -> Lane:
        leader = self.cluster.leader(*key).leader
        lane = self._lanes.get(leader)
        if lane is None:
            lane = self._lanes[leader] = Lane(self._connect(leader))
        return lane

    def _await_first(self, lane: Lane, key: TopicPartition) -> None:
        while len(self._unacked[key]) > 1 and self._trouble is None:
            self._post(lane)
            if lane.under_way:
                self._take(lane)

    def _connect(self, leader: BrokerId) -> KafkaConnection:
        """A connection of our own: on the cluster's, one asks and waits."""
        found = self.cluster.metadata.brokers.get(leader)
        if found is None:
            raise CannotConnect(f"broker {leader}", "it is not in the cluster's metadata")
        kept = self._connections.get(str(found))
        if kept is None or kept.closed:
            client, timeout_s = self.cluster.client_id, self.cluster.timeout_s
            kept = KafkaConnection(found.host, found.port, client, timeout_s, advertised=True)
            self._connections[str(found)] = kept
        return kept

    def _post(self, lane: Lane) -> None:
        """Send the lane's next request, once there is room for it."""
        if not lane.next:
            return
        while lane.under_way and self._trouble is None and _is_full(lane):
            self._take(lane)
        batches, lane.next, lane.next_bytes = lane.next, {}, 0
        if self._trouble is not None:
            return
        try:
            lane.under_way.append(self._ask(lane.connection, batches))
        except (CannotConnect, Unresolved) as error:
            self._broken(lane, error)

    def _ask(self, connection: KafkaConnection, batches: dict[TopicPartition, Outgoing]) -> Request:
        by_topic: dict[str, list[tuple[int, Buffer]]] = {}
        for key, batch in batches.items():
            by_topic.setdefault(key.topic, []).append((key.partition, batch.data))
        topics = [
            TopicRecords(name, self.cluster.topic(name).id, records)
            for name, records in by_topic.items()
        ]
        nameless = any(topic.id == NO_TOPIC_ID for topic in topics)
        version = connection.version(PRODUCE, LAST_VERSION_WITH_NAMES if nameless else None)
        timeout_ms = min(REPLICAS_WAIT_MS, int(connection.timeout_s * 1000))

        def encode(correlation: int, client: str) -> list[Buffer]:
            return produce_pieces(version, correlation, client, ALL, timeout_ms, topics)

        question = connection.ask_in_pieces(PRODUCE, version, encode)
        names = {topic.id: topic.name for topic in topics}
        size = sum(len(batch.data) for batch in batches.values())
        return Request(question, batches, names, size)

    def _take(self, lane: Lane) -> None:
        """Take the oldest answer of a lane."""
        request = lane.under_way.popleft()
        wait_s = lane.connection.timeout_s + ANSWER_S
        try:
            answer = lane.connection.answer(request.question, wait_s)
        except (CannotConnect, Unresolved) as error:
            self._broken(lane, error)
            return
        self._settle(request, answer)

    def _settle(self, request: Request, answer: Struct) -> None:
        for topic in answer["responses"]:
            name = topic["name"] if "name" in topic else request.names[topic["topic_id"]]
            for each in topic["partition_responses"]:
                key = TopicPartition(name, each["index"])
                self._judge(key, request.batches[key], each)

    def _judge(self, key: TopicPartition, batch: Outgoing, answer: Struct) -> None:
        code = answer["error_code"]
        waiting = self._unacked[key]
        first = waiting[0] is batch
        if code == ErrorCode.NONE:
            if not first:
                raise Conflict(key, waiting[0].sequence, "ahead of this attempt")
            told_time = answer.get("log_append_time_ms", -1) >= 0
            if told_time or parse(batch.data).max_timestamp < 0:
                self._compare(key, batch, answer["base_offset"])
            waiting.popleft()
            self.ends[key] = answer["base_offset"] + batch.count
            return
        if code in _TOO_LARGE:
            raise TooLarge(key, len(batch.data), batch.count, self._batch_bytes)
        if code == ErrorCode.INVALID_PRODUCER_EPOCH:
            raise TooLate(key)
        error = BrokerError(f"append to {key}", code, answer.get("error_message"))
        if code in (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
            if first and self._trouble is None:
                raise Conflict(key, batch.sequence, error_name(code))
        elif not error.retriable:
            raise error
        self._trouble = self._trouble or error

    def _compare(self, key: TopicPartition, batch: Outgoing, offset: Offset) -> None:
        """The answer tells a time (or may, where one before 1970 looks like none): the topic
        stamps its own, or the batch was there before, ours from an earlier try or another's."""
        if key.topic in self._stamping:
            return
        found = batch_at(self.cluster, key, offset)
        if found.is_log_append_time:
            self._stamping.add(key.topic)
        elif not same_records(found, parse(batch.data)):
            raise Conflict(key, batch.sequence, "with other rows")

    # -- when something failed -----------------------------------------------------------------

    def _broken(self, lane: Lane, error: ClientError) -> None:
        lane.connection.close()
        lane.under_way.clear()
        self._lanes = {leader: each for leader, each in self._lanes.items() if each is not lane}
        self._trouble = self._trouble or error

    def _take_all(self) -> None:
        for lane in list(self._lanes.values()):
            while lane.under_way:
                self._take(lane)

    def _repair(self) -> None:
        """Take in what is under way, then send the rest again until all of it is there."""
        self._take_all()
        retry = Retry(self.delivery_s)
        while waiting := [key for key, batches in self._unacked.items() if batches]:
            before, self._trouble = self._trouble, None
            try:
                if before is not None:
                    self.cluster.refresh(sorted({key.topic for key in waiting}))
                self._send_first_of(waiting)
            except ClientError as error:
                if not error.retriable:
                    raise
                self._trouble = error
            if self._trouble is None:
                retry = Retry(self.delivery_s)
            else:
                retry.wait(self._gave_up(waiting))
        self._trouble = None

    def _send_first_of(self, waiting: Iterable[TopicPartition]) -> None:
        """The first batch of each partition; takes the answers."""
        for lane in self._lanes.values():  # of a try that ended half way
            lane.next, lane.next_bytes = {}, 0
        for key in waiting:
            self._lane(key).next[key] = self._unacked[key][0]
        for lane in list(self._lanes.values()):
            self._post(lane)
        self._take_all()

    def _gave_up(self, waiting: list[TopicPartition]) -> SinkError:
        rows = sum(batch.count for key in waiting for batch in self._unacked[key])
        return SinkError(
            f"{rows} rows were not acknowledged within {self.delivery_s:g} s"
            f" (kafka.delivery.timeout.ms): {self._trouble}"
        )


def _is_full(lane: Lane) -> bool:
    return (
        len(lane.under_way) >= IN_FLIGHT_MAX
        or sum(request.size for request in lane.under_way) >= IN_FLIGHT_BYTES_MAX
    )


def batch_at(cluster: Cluster, key: TopicPartition, offset: Offset) -> RecordBatch:
    """The batch that lies at an offset."""

    def ask(leader: KafkaConnection, _: PartitionMetadata) -> RecordBatch:
        topics = {key.topic: cluster.topic(key.topic)}
        answer = fetch(leader, topics, {key: FetchFrom(offset, max_bytes=1)}, max_wait_ms=1000)
        if answer[key].error:
            raise BrokerError(f"fetch of {key} at offset {offset}", answer[key].error)
        found = next(batches(answer[key].records), None)
        if found is None:  # the leader's high watermark is not there yet
            raise BrokerError(f"fetch of {key} at offset {offset}", ErrorCode.OFFSET_NOT_AVAILABLE)
        return found

    return cluster.ask_leader(*key, ask)


def same_records(one: RecordBatch, other: RecordBatch) -> bool:
    """Whether two batches hold the same rows, however they are packed."""
    if one.crc == other.crc:
        return True
    return one.count == other.count and all(
        (a.key, a.value, a.headers) == (b.key, b.value, b.headers)
        for a, b in zip(decode(one), decode(other), strict=True)
    )
