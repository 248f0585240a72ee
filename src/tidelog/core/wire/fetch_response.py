"""The codec of Fetch responses, written by hand: records stay in the file or the received buffer.

Versions 4 to 18 are encoded, as chunks: bytes, and between them the records of each partition
unchanged, so that a host can let the kernel send a Region from the file. Version 18, which
followers use, is decoded.
"""

from struct import Struct

from tidelog.core.api_table import FETCH
from tidelog.core.errors import ErrorCode
from tidelog.core.node.messages import FetchPartitionResponse, FetchResponse, TopicNames, unresolved
from tidelog.core.record.crc32c import Buffer
from tidelog.core.storage.disk import Region
from tidelog.core.types import EpochEnd, TopicPartition
from tidelog.core.wire.frames import begin_response, finish
from tidelog.core.wire.leader_hints import NO_TAGS, LeaderHints, LeaderOf, tagged
from tidelog.core.wire.primitives import (
    INT32,
    NO_ID,
    UNREADABLE,
    MalformedRequest,
    compact_string,
    read_compact_count,
    read_tags,
    read_uvarint,
    skip_tags,
    string,
    uvarint,
)

FIRST_WITH_SESSIONS = 7
FIRST_WITH_PREFERRED_REPLICA = 11
FIRST_FLEXIBLE = 12
FIRST_WITH_TOPIC_IDS = 13
FIRST_WITH_HINTS = 16

DIVERGING_TAG = 0
CURRENT_LEADER_TAG = 1

MOVED = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)

_HEAD = Struct(">ihi")
"""Throttle time, error, session."""
_FLEXIBLE_HEAD = Struct(">iiBihi")
"""Length, correlation id, tags, and as _HEAD."""
_PARTITION = Struct(">ihqqq")
_FLEXIBLE_PARTITION = Struct(">ihqqqBi")
"""As _PARTITION, without aborted transactions (the usual case), and the preferred replica."""
_PARTITION_4 = Struct(">ihqq")
_LONE = Struct(">iiBihiB16sBihqqqBi")
"""As _FLEXIBLE_HEAD, one topic, its id, one partition, as _FLEXIBLE_PARTITION."""
_NO_MORE_TAGS = bytes(3)
"""No tags of the partition, the topic and the response, which end the frame."""
_LONE_SIZE = _LONE.size + len(_NO_MORE_TAGS) - INT32.size
_LONE_BODY = Struct(">ihiB16sBihqqqBi")
"""As _LONE, from the throttle time on."""
_ABORTED = Struct(">qq")
_TAGGED_ABORTED = Struct(">qqb")
_DIVERGING = Struct(">iqb")
_EPOCH_END = Struct(">iq")
_TOPIC_SIZE_MIN = 18
_PARTITION_SIZE_MIN = _PARTITION.size + 7
_ERRORS = {int(code): code for code in ErrorCode}

_NONE = ErrorCode.NONE

new = tuple.__new__
"""Creates a TopicPartition in half the time of its own constructor."""

Chunk = bytes | Region | bytearray | memoryview


def encode_fetch_response(
    version: int,
    correlation_id: int,
    response: FetchResponse,
    leader_of: LeaderOf | None = None,
    throttle_ms: int = 0,
) -> list[Chunk]:
    """Encode the chunks to send, in order; the first one starts with the length of all."""
    if throttle_ms:
        return _encode_all(version, correlation_id, response, leader_of, throttle_ms)
    if version >= FIRST_WITH_TOPIC_IDS and len(response.partitions) == 1:
        part = response.partitions[0]
        if part.error is _NONE and part.diverging is None and part.aborted is None:
            return _encode_lone(correlation_id, response, part)
    return _encode_all(version, correlation_id, response, leader_of)


def _encode_all(
    version: int,
    correlation_id: int,
    response: FetchResponse,
    leader_of: LeaderOf | None,
    throttle_ms: int = 0,
) -> list[Chunk]:
    flexible = version >= FIRST_FLEXIBLE
    hints = None
    if leader_of is not None and version >= FIRST_WITH_HINTS:
        hints = LeaderHints(leader_of)
    topics = _by_topic(version, response.partitions)
    first = frame = _begin(version, correlation_id, response, len(topics), throttle_ms)
    chunks: list[Chunk] = []
    more = 0
    for parts in topics:
        frame += _topic(version, parts[0])
        frame += uvarint(len(parts) + 1) if flexible else INT32.pack(len(parts))
        for part in parts:
            records = part.records
            size = 0
            if records is not None:
                size = records.length if type(records) is Region else len(records)
            frame += _partition(version, part, size)
            if size and records is not None:
                chunks += (frame, records)
                more += size + len(frame)
                frame = bytearray()
            if flexible:
                frame += _partition_tags(part, hints)
        if flexible:
            frame += NO_TAGS
    if flexible:
        frame += NO_TAGS if hints is None else hints.node_endpoints()
    if frame is first:
        return [finish(first)]
    if frame:
        chunks.append(frame)
    chunks[0] = finish(first, more + len(frame) - len(first))
    return chunks


def _encode_lone(
    correlation_id: int, response: FetchResponse, part: FetchPartitionResponse
) -> list[Chunk]:
    """Encode the most frequent response: one partition without an error."""
    records, preferred = part.records, part.preferred_read_replica
    size = 0
    if records is not None:
        size = records.length if type(records) is Region else len(records)
    length = uvarint(size + 1)
    head = _LONE.pack(
        _LONE_SIZE + len(length) + size,
        correlation_id,
        0,
        0,
        response.error,
        response.session_id,
        2,
        part.topic_id or NO_ID,
        2,
        part.topic_partition.partition,
        0,
        part.high_watermark,
        part.last_stable_offset,
        part.log_start_offset,
        0,
        -1 if preferred is None else preferred,
    )
    if size and records is not None:
        return [head + length, records, _NO_MORE_TAGS]
    return [head + length + _NO_MORE_TAGS]


def _begin(
    version: int, correlation_id: int, response: FetchResponse, topics: int, throttle_ms: int
) -> bytearray:
    """Encode the frame up to the first topic."""
    if version >= FIRST_FLEXIBLE:
        head = _FLEXIBLE_HEAD.pack(
            0, correlation_id, 0, throttle_ms, response.error, response.session_id
        )
        return bytearray(head + uvarint(topics + 1))
    frame = begin_response(FETCH, version, correlation_id)
    if version >= FIRST_WITH_SESSIONS:
        frame += _HEAD.pack(throttle_ms, response.error, response.session_id)
    else:
        frame += INT32.pack(throttle_ms)
    return frame + INT32.pack(topics)


def _by_topic(
    version: int, partitions: list[FetchPartitionResponse]
) -> list[list[FetchPartitionResponse]]:
    """Group neighbouring partitions of the same topic."""
    if len(partitions) == 1:
        return [partitions]
    topics: list[list[FetchPartitionResponse]] = []
    last: object = None
    for part in partitions:
        topic = part.topic_id if version >= FIRST_WITH_TOPIC_IDS else part.topic_partition.topic
        if topic == last and topics:
            topics[-1].append(part)
        else:
            topics.append([part])
            last = topic
    return topics


def _topic(version: int, part: FetchPartitionResponse) -> bytes:
    if version >= FIRST_WITH_TOPIC_IDS:
        return part.topic_id or NO_ID
    name = part.topic_partition.topic
    return compact_string(name) if version >= FIRST_FLEXIBLE else string(name)


def _partition(version: int, part: FetchPartitionResponse, size: int) -> bytes:
    """Encode a partition up to its records."""
    preferred = part.preferred_read_replica
    if version >= FIRST_FLEXIBLE and part.aborted is None:
        body = _FLEXIBLE_PARTITION.pack(
            part.topic_partition.partition,
            part.error,
            part.high_watermark,
            part.last_stable_offset,
            part.log_start_offset,
            0,
            -1 if preferred is None else preferred,
        )
        return body + uvarint(size + 1)
    if version >= 5:
        body = _PARTITION.pack(
            part.topic_partition.partition,
            part.error,
            part.high_watermark,
            part.last_stable_offset,
            part.log_start_offset,
        )
    else:
        body = _PARTITION_4.pack(
            part.topic_partition.partition,
            part.error,
            part.high_watermark,
            part.last_stable_offset,
        )
    body += _aborted(version, part)
    if version >= FIRST_WITH_PREFERRED_REPLICA:
        body += INT32.pack(-1 if preferred is None else preferred)
    return body + (uvarint(size + 1) if version >= FIRST_FLEXIBLE else INT32.pack(size))


def _aborted(version: int, part: FetchPartitionResponse) -> bytes:
    found = part.aborted
    if version >= FIRST_FLEXIBLE and found is not None:
        entries = (_TAGGED_ABORTED.pack(a.producer_id, a.first_offset, 0) for a in found)
        return uvarint(len(found) + 1) + b"".join(entries)
    if found is None:
        return INT32.pack(-1)
    entries = (_ABORTED.pack(a.producer_id, a.first_offset) for a in found)
    return INT32.pack(len(found)) + b"".join(entries)


def _partition_tags(part: FetchPartitionResponse, hints: LeaderHints | None) -> bytes:
    if part.diverging is not None:
        return tagged({DIVERGING_TAG: _DIVERGING.pack(*part.diverging, 0)})
    if hints is not None and part.error in MOVED:
        leader = hints.current_leader(part.topic_partition)
        if leader:
            return tagged({CURRENT_LEADER_TAG: leader})
    return NO_TAGS


def decode_fetch_response(frame: Buffer, position: int, names: TopicNames) -> FetchResponse:
    """Decode the body of version 18 that starts at `position`. Raises MalformedRequest."""
    try:
        return _decode_lone(frame, position, names) or _decode(frame, position, names)
    except UNREADABLE as reason:
        raise MalformedRequest(f"Fetch response: {reason}") from reason


def _decode_lone(data: Buffer, position: int, names: TopicNames) -> FetchResponse | None:
    """Decode what `_encode_lone` encodes; None if the response is different."""
    if len(data) < position + _LONE_BODY.size + 4 or data[position + 10] != 2:
        return None
    (
        _throttle,
        error,
        session_id,
        _topics,
        topic_id,
        count,
        index,
        code,
        high_watermark,
        last_stable,
        log_start,
        aborted,
        preferred,
    ) = _LONE_BODY.unpack_from(data, position)
    topic = names.get(topic_id)
    if topic is None or count != 2 or error or code or aborted:
        return None
    size, start = read_uvarint(data, position + _LONE_BODY.size)
    end = start + size - 1
    if not size or end + 3 != len(data) or data[end:] != _NO_MORE_TAGS:
        return None
    part = FetchPartitionResponse(
        new(TopicPartition, (topic, index)),
        topic_id,
        _NONE,
        high_watermark,
        last_stable,
        log_start,
        None,
        data[start:end] if size > 1 else None,
        None,
        None if preferred < 0 else preferred,
    )
    return FetchResponse(_NONE, session_id, [part])


def _decode(data: Buffer, position: int, names: TopicNames) -> FetchResponse:
    _throttle, error, session_id = _HEAD.unpack_from(data, position)
    limit = len(data)
    partitions: list[FetchPartitionResponse] = []
    topics, position = read_compact_count(data, position + _HEAD.size, _TOPIC_SIZE_MIN)
    for _ in range(topics):
        topic_id = bytes(data[position : position + 16])
        topic = names.get(topic_id) or unresolved(topic_id)
        count, position = read_compact_count(data, position + 16, _PARTITION_SIZE_MIN)
        for _ in range(count):
            index, code, high_watermark, last_stable, log_start = _PARTITION.unpack_from(
                data, position
            )
            position += _PARTITION.size
            position = _skip_aborted(data, position) if data[position] else position + 1
            (preferred,) = INT32.unpack_from(data, position)
            size, start = read_uvarint(data, position + 4)
            position = start + size - 1 if size else start
            if position >= limit:
                raise MalformedRequest(
                    f"records of {size} bytes extend past the end of the message"
                )
            diverging = None
            end = position + 1
            if data[position]:
                tags, end = read_tags(data, position)
                if DIVERGING_TAG in tags:
                    diverging = EpochEnd(*_EPOCH_END.unpack_from(tags[DIVERGING_TAG]))
            partitions.append(
                FetchPartitionResponse(
                    new(TopicPartition, (topic, index)),
                    topic_id,
                    _error(code) if code else _NONE,
                    high_watermark,
                    last_stable,
                    log_start,
                    diverging,
                    data[start:position] if size > 1 else None,
                    None,
                    None if preferred < 0 else preferred,
                )
            )
            position = end
        position = skip_tags(data, position) if data[position] else position + 1
    skip_tags(data, position)
    return FetchResponse(_error(error), session_id, partitions)


def _error(code: int) -> ErrorCode:
    return _ERRORS.get(code, ErrorCode.UNKNOWN_SERVER_ERROR)


def _skip_aborted(data: Buffer, position: int) -> int:
    """Skip the aborted transactions: a follower reads all records."""
    count, position = read_compact_count(data, position, _TAGGED_ABORTED.size)
    for _ in range(count):
        position = skip_tags(data, position + _ABORTED.size)
    return position
