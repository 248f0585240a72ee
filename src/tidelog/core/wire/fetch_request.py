"""The decoder of Fetch requests, written by hand: from clients and followers.

Versions 4 to 18. Sessions since 7, leader epochs since 9, the consumer's rack since 11. From 12 on,
lengths are compact and a follower sends the epoch that it fetched last; from 13 on, topics are
named by id; from 15 on, a follower sends its id and broker epoch in a tagged field. None is
-1 on the wire. follower_fetch.py encodes a follower's requests.
"""

from struct import Struct

from tidelog.core.api_table import ENTRIES_MAX
from tidelog.core.node.messages import SESSIONLESS, Fetch, FetchPartition, TopicNames, unresolved
from tidelog.core.record.crc32c import Buffer
from tidelog.core.types import TopicId, TopicPartition
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
)

FIRST_WITH_SESSIONS = 7
FIRST_WITH_ANY_REPLICA = 11
FIRST_FLEXIBLE = 12
FIRST_WITH_TOPIC_IDS = 13
FIRST_WITH_REPLICA_STATE = 15
FOLLOWER_VERSION = 18

REPLICA_STATE_TAG = 1
READ_COMMITTED = 1

_LIMITS = Struct(">iiib")
"""Wait time, minimum and maximum bytes, isolation level."""
_SESSION = Struct(">ii")
PARTITION = Struct(">iiqiqi")
_PARTITION_9 = Struct(">iiqqi")
_PARTITION_5 = Struct(">iqqi")
_PARTITION_4 = Struct(">iqi")
REPLICA_STATE = Struct(">iq")
HEAD = Struct(">iiibii")
LONE = Struct(">iiibiiB16sBiiqiqiBBBBBBBiqBB")
"""As HEAD, one topic, its id, one partition, no forgotten topics, replica state, no other tags."""
LONE_REST = [0, 0, 1, 1, 1, REPLICA_STATE_TAG, REPLICA_STATE.size + 1]
_TOPIC_SIZE_MIN = 3

new = tuple.__new__
"""Creates a TopicPartition in half the time of its own constructor."""


def decode_fetch(
    version: int, frame: Buffer, position: int, names: TopicNames, most: int = ENTRIES_MAX
) -> Fetch:
    """Decode a request. Raises MalformedRequest, also for more than `most` topics or partitions."""
    try:
        if version >= FIRST_WITH_REPLICA_STATE and len(frame) == position + LONE.size:
            lone = _decode_lone(frame, position, names)
            if lone is not None:
                return lone
        if version >= FIRST_FLEXIBLE:
            return _decode_flexible(version, frame, position, names, most)
        return _decode_plain(version, frame, position, most)
    except UNREADABLE as reason:
        raise MalformedRequest(f"Fetch {version}: {reason}") from reason


def _decode_lone(data: Buffer, position: int, names: TopicNames) -> Fetch | None:
    """Decode a follower's fetch with one changed partition: most fetches between brokers are like
    this. None if it is a different request of the same length."""
    (
        max_wait,
        min_bytes,
        max_bytes,
        isolation,
        session_id,
        session_epoch,
        topics,
        topic_id,
        count,
        index,
        epoch,
        offset,
        fetched,
        start,
        size,
        *rest,
        replica,
        broker_epoch,
        state_tags,
        more_tags,
    ) = LONE.unpack_from(data, position)
    topic = names.get(topic_id)
    if topic is None or topics != 2 or count != 2 or rest != LONE_REST or state_tags or more_tags:
        return None
    asked = FetchPartition(
        new(TopicPartition, (topic, index)),
        topic_id,
        offset,
        size,
        None if epoch < 0 else epoch,
        None if fetched < 0 else fetched,
        start,
    )
    return Fetch(
        None if replica < 0 else replica,
        None if broker_epoch < 0 else broker_epoch,
        max_wait,
        min_bytes,
        max_bytes,
        [asked],
        session_id,
        session_epoch,
        [],
        isolation == READ_COMMITTED,
    )


def _decode_flexible(
    version: int, data: Buffer, position: int, names: TopicNames, most: int
) -> Fetch:
    replica, broker_epoch = -1, -1
    if version < FIRST_WITH_REPLICA_STATE:
        (replica,) = INT32.unpack_from(data, position)
        position += 4
    max_wait, min_bytes, max_bytes, isolation, session_id, session_epoch = HEAD.unpack_from(
        data, position
    )
    topics, position = read_compact_count(data, position + HEAD.size, _TOPIC_SIZE_MIN)
    _check_count(topics, most)
    partitions: list[FetchPartition] = []
    for _ in range(topics):
        topic, topic_id, position = _read_topic(version, data, position, names)
        count, position = read_compact_count(data, position, PARTITION.size + 1)
        _check_count(len(partitions) + count, most)
        for _ in range(count):
            index, epoch, offset, fetched, start, size = PARTITION.unpack_from(data, position)
            position += PARTITION.size
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
        forgotten, position = _read_forgotten(version, data, position, names, most)
    rack_id, position = read_compact_string(data, position)
    if data[position]:
        tags, _ = read_tags(data, position)
        if version >= FIRST_WITH_REPLICA_STATE and REPLICA_STATE_TAG in tags:
            replica, broker_epoch = REPLICA_STATE.unpack_from(tags[REPLICA_STATE_TAG])
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
    version: int, data: Buffer, position: int, names: TopicNames, most: int
) -> tuple[list[TopicPartition], int]:
    topics, position = read_compact_count(data, position, _TOPIC_SIZE_MIN)
    _check_count(topics, most)
    forgotten: list[TopicPartition] = []
    for _ in range(topics):
        topic, _id, position = _read_topic(version, data, position, names)
        count, position = read_compact_count(data, position, INT32.size)
        _check_count(len(forgotten) + count, most)
        for _ in range(count):
            forgotten.append(TopicPartition(topic, *INT32.unpack_from(data, position)))
            position += 4
        position = skip_tags(data, position)
    return forgotten, position


def _decode_plain(version: int, data: Buffer, position: int, most: int) -> Fetch:
    (replica,) = INT32.unpack_from(data, position)
    max_wait, min_bytes, max_bytes, isolation = _LIMITS.unpack_from(data, position + 4)
    position += 4 + _LIMITS.size
    session_id, session_epoch = 0, SESSIONLESS
    if version >= FIRST_WITH_SESSIONS:
        session_id, session_epoch = _SESSION.unpack_from(data, position)
        position += _SESSION.size
    partitions, position = _read_plain_partitions(version, data, position, most)
    forgotten: list[TopicPartition] = []
    if version >= FIRST_WITH_SESSIONS:
        topics, position = read_count(data, position, _TOPIC_SIZE_MIN)
        _check_count(topics, most)
        for _ in range(topics):
            topic, position = read_string(data, position)
            count, position = read_count(data, position, INT32.size)
            _check_count(len(forgotten) + count, most)
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
    version: int, data: Buffer, position: int, most: int
) -> tuple[list[FetchPartition], int]:
    form = _PARTITION_9 if version >= 9 else _PARTITION_5 if version >= 5 else _PARTITION_4
    partitions: list[FetchPartition] = []
    topics, position = read_count(data, position, _TOPIC_SIZE_MIN)
    _check_count(topics, most)
    for _ in range(topics):
        topic, position = read_string(data, position)
        count, position = read_count(data, position, form.size)
        _check_count(len(partitions) + count, most)
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


def _check_count(count: int, most: int) -> None:
    if count > most:
        raise MalformedRequest(f"fetch of {count} partitions exceeds the limit of {most}")
