"""Fetch requests, written by hand: read from clients and followers, written as a follower.

Versions 4 to 18. Sessions since 7, leader epochs since 9, the reader's rack since 11; from 12
on lengths are compact and a follower names the epoch it fetched last; from 13 on topics are
named by id; from 15 on a follower says who it is, and in which incarnation, in a tagged
field. None stands where the wire says -1.

As a follower this broker speaks version 18 only, to brokers of its own kind.
"""

from struct import Struct

from tidelog.core.node.messages import SESSIONLESS, Fetch, FetchPartition, FetchResponse
from tidelog.core.record.crc32c import Buffer
from tidelog.core.types import TopicId, TopicPartition
from tidelog.core.wire.apis import FETCH
from tidelog.core.wire.fetch_response import decode_fetch_response
from tidelog.core.wire.frames import begin_request, finish, parse_response_header
from tidelog.core.wire.primitives import (
    INT32,
    UNREADABLE,
    MalformedRequest,
    read_compact_count,
    read_compact_string,
    read_count,
    read_string,
    read_tags,
    skip_tags,
    uvarint,
)
from tidelog.core.wire.topic_ids import TopicNames, unresolved

FIRST_WITH_SESSIONS = 7
FIRST_WITH_ANY_REPLICA = 11
FIRST_FLEXIBLE = 12
FIRST_WITH_TOPIC_IDS = 13
FIRST_WITH_REPLICA_STATE = 15
FOLLOWER_VERSION = 18

REPLICA_STATE_TAG = 1
READ_COMMITTED = 1

_LIMITS = Struct(">iiib")
"""Wait, least and most bytes, isolation."""
_SESSION = Struct(">ii")
_PARTITION = Struct(">iiqiqi")
_PARTITION_9 = Struct(">iiqqi")
_PARTITION_5 = Struct(">iqqi")
_PARTITION_4 = Struct(">iqi")
_REPLICA_STATE = Struct(">iq")
_HEAD = Struct(">iiibii")
_TAIL = Struct(">BBBBiqB")
"""Empty rack; one tagged field: the replica's state."""
_TOPIC_SIZE_MIN = 3

new = tuple.__new__
"""Makes a TopicPartition in half the time that its own constructor takes."""


def decode_fetch(version: int, frame: Buffer, position: int, names: TopicNames) -> Fetch:
    """Raises MalformedRequest."""
    try:
        if version >= FIRST_FLEXIBLE:
            return _decode_flexible(version, frame, position, names)
        return _decode_plain(version, frame, position)
    except UNREADABLE as reason:
        raise MalformedRequest(f"Fetch {version}: {reason}") from reason


def _decode_flexible(version: int, data: Buffer, position: int, names: TopicNames) -> Fetch:
    replica, broker_epoch = -1, -1
    if version < FIRST_WITH_REPLICA_STATE:
        (replica,) = INT32.unpack_from(data, position)
        position += 4
    max_wait, min_bytes, max_bytes, isolation, session_id, session_epoch = _HEAD.unpack_from(
        data, position
    )
    topics, position = read_compact_count(data, position + _HEAD.size, _TOPIC_SIZE_MIN)
    partitions: list[FetchPartition] = []
    for _ in range(topics):
        topic, topic_id, position = _read_topic(version, data, position, names)
        count, position = read_compact_count(data, position, _PARTITION.size + 1)
        for _ in range(count):
            index, epoch, offset, fetched, start, size = _PARTITION.unpack_from(data, position)
            position += _PARTITION.size
            partitions.append(
                FetchPartition(
                    new(TopicPartition, (topic, index)),
                    topic_id,
                    offset,
                    size,
                    None if epoch < 0 else epoch,
                    None if fetched < 0 else fetched,
                    start,
                )
            )
            position = skip_tags(data, position) if data[position] else position + 1
        position = skip_tags(data, position) if data[position] else position + 1
    forgotten: list[TopicPartition] = []
    if data[position] == 1:
        position += 1
    else:
        forgotten, position = _read_forgotten(version, data, position, names)
    rack_id, position = read_compact_string(data, position)
    if data[position]:
        tags, _ = read_tags(data, position)
        if version >= FIRST_WITH_REPLICA_STATE and REPLICA_STATE_TAG in tags:
            replica, broker_epoch = _REPLICA_STATE.unpack_from(tags[REPLICA_STATE_TAG])
    return Fetch(
        None if replica < 0 else replica,
        None if broker_epoch < 0 else broker_epoch,
        max_wait,
        min_bytes,
        max_bytes,
        partitions,
        session_id,
        session_epoch,
        forgotten,
        isolation == READ_COMMITTED,
        rack_id=rack_id,
    )


def _read_topic(
    version: int, data: Buffer, position: int, names: TopicNames
) -> tuple[str, TopicId | None, int]:
    if version < FIRST_WITH_TOPIC_IDS:
        topic, position = read_compact_string(data, position)
        return topic, None, position
    topic_id = bytes(data[position : position + 16])
    return names.get(topic_id) or unresolved(topic_id), topic_id, position + 16


def _read_forgotten(
    version: int, data: Buffer, position: int, names: TopicNames
) -> tuple[list[TopicPartition], int]:
    topics, position = read_compact_count(data, position, _TOPIC_SIZE_MIN)
    forgotten: list[TopicPartition] = []
    for _ in range(topics):
        topic, _id, position = _read_topic(version, data, position, names)
        count, position = read_compact_count(data, position, INT32.size)
        for _ in range(count):
            forgotten.append(TopicPartition(topic, *INT32.unpack_from(data, position)))
            position += 4
        position = skip_tags(data, position)
    return forgotten, position


def _decode_plain(version: int, data: Buffer, position: int) -> Fetch:
    (replica,) = INT32.unpack_from(data, position)
    max_wait, min_bytes, max_bytes, isolation = _LIMITS.unpack_from(data, position + 4)
    position += 4 + _LIMITS.size
    session_id, session_epoch = 0, SESSIONLESS
    if version >= FIRST_WITH_SESSIONS:
        session_id, session_epoch = _SESSION.unpack_from(data, position)
        position += _SESSION.size
    partitions, position = _read_plain_partitions(version, data, position)
    forgotten: list[TopicPartition] = []
    if version >= FIRST_WITH_SESSIONS:
        topics, position = read_count(data, position, _TOPIC_SIZE_MIN)
        for _ in range(topics):
            topic, position = read_string(data, position)
            count, position = read_count(data, position, INT32.size)
            for _ in range(count):
                forgotten.append(TopicPartition(topic, *INT32.unpack_from(data, position)))
                position += 4
    rack_id = ""
    if version >= FIRST_WITH_ANY_REPLICA:
        rack_id, position = read_string(data, position)
    return Fetch(
        None if replica < 0 else replica,
        None,
        max_wait,
        min_bytes,
        max_bytes,
        partitions,
        session_id,
        session_epoch,
        forgotten,
        isolation == READ_COMMITTED,
        version >= FIRST_WITH_ANY_REPLICA,
        rack_id,
    )


def _read_plain_partitions(
    version: int, data: Buffer, position: int
) -> tuple[list[FetchPartition], int]:
    form = _PARTITION_9 if version >= 9 else _PARTITION_5 if version >= 5 else _PARTITION_4
    partitions: list[FetchPartition] = []
    topics, position = read_count(data, position, _TOPIC_SIZE_MIN)
    for _ in range(topics):
        topic, position = read_string(data, position)
        count, position = read_count(data, position, form.size)
        for _ in range(count):
            epoch, start = -1, -1
            if version >= 9:
                index, epoch, offset, start, size = form.unpack_from(data, position)
            elif version >= 5:
                index, offset, start, size = form.unpack_from(data, position)
            else:
                index, offset, size = form.unpack_from(data, position)
            position += form.size
            partitions.append(
                FetchPartition(
                    new(TopicPartition, (topic, index)),
                    None,
                    offset,
                    size,
                    None if epoch < 0 else epoch,
                    None,
                    start,
                )
            )
    return partitions, position


class FollowerFetches:
    """Fetches from one leader over one connection.

    Remembers which topic has which id: a session forgets a topic by its id, and the answers
    speak of ids only.
    """

    __slots__ = ("_client_id", "_ids", "_names")

    def __init__(self, client_id: str) -> None:
        self._client_id = client_id
        self._ids: dict[str, TopicId] = {}
        self._names: dict[TopicId, str] = {}

    def encode(self, correlation_id: int, request: Fetch) -> bytes:
        """The whole frame, its length in front."""
        frame = begin_request(FETCH, FOLLOWER_VERSION, correlation_id, self._client_id)
        frame += _HEAD.pack(
            request.max_wait_ms,
            request.min_bytes,
            request.max_bytes,
            0,
            request.session_id,
            request.session_epoch,
        )
        if request.partitions:
            self._add_partitions(frame, request.partitions)
        else:
            frame.append(1)
        if request.forgotten:
            self._add_forgotten(frame, request.forgotten)
        else:
            frame.append(1)
        assert request.replica is not None, "only followers ask through this"
        epoch = -1 if request.broker_epoch is None else request.broker_epoch
        size = _REPLICA_STATE.size + 1
        frame += _TAIL.pack(1, 1, REPLICA_STATE_TAG, size, request.replica, epoch, 0)
        frame.append(0)
        return finish(frame)

    def _add_partitions(self, frame: bytearray, partitions: list[FetchPartition]) -> None:
        by_topic: dict[TopicId, list[bytes]] = {}
        for asked in partitions:
            topic_id = asked.topic_id
            assert topic_id is not None, "a follower knows the id of what it follows"
            found = by_topic.get(topic_id)
            if found is None:
                found = by_topic[topic_id] = []
                topic = asked.topic_partition.topic
                self._ids[topic] = topic_id
                self._names[topic_id] = topic
            epoch, fetched = asked.leader_epoch, asked.last_fetched_epoch
            found.append(
                _PARTITION.pack(
                    asked.topic_partition.partition,
                    -1 if epoch is None else epoch,
                    asked.offset,
                    -1 if fetched is None else fetched,
                    asked.log_start_offset,
                    asked.max_bytes,
                )
            )
        frame += uvarint(len(by_topic) + 1)
        for topic_id, found in by_topic.items():
            found.append(b"\0")  # the topic's tags, after those of its last partition
            frame += topic_id + uvarint(len(found)) + b"\0".join(found)

    def _add_forgotten(self, frame: bytearray, forgotten: list[TopicPartition]) -> None:
        by_topic: dict[str, list[bytes]] = {}
        for topic, partition in forgotten:
            by_topic.setdefault(topic, []).append(INT32.pack(partition))
        frame += uvarint(len(by_topic) + 1)
        for topic, found in by_topic.items():
            frame += self._ids[topic] + uvarint(len(found) + 1) + b"".join(found) + b"\0"

    def decode(self, frame: Buffer) -> tuple[int, FetchResponse]:
        """The correlation id and the answer. Raises MalformedRequest.

        The records are slices of `frame`.
        """
        correlation_id, position = parse_response_header(FETCH, FOLLOWER_VERSION, frame)
        return correlation_id, decode_fetch_response(frame, position, self._names)
