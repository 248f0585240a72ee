"""The codec of Produce, written by hand: the records are not copied from the received buffer.

Versions 3 to 13. From 9 on, lengths are compact and structs end with tagged fields; from 13 on, a
topic is named by its id. The response has the order of the request, so its topics are taken from
there.
"""

from struct import Struct

from tidelog.core.api_table import APIS, PRODUCE
from tidelog.core.errors import ErrorCode
from tidelog.core.node.messages import (
    Produce,
    ProducePartition,
    ProducePartitionResponse,
    ProduceResponse,
    TopicNames,
    unresolved,
)
from tidelog.core.record.crc32c import Buffer
from tidelog.core.types import TopicPartition
from tidelog.core.wire.frames import LENGTH_SIZE, begin_response, finish
from tidelog.core.wire.leader_hints import NO_TAGS, LeaderHints, LeaderOf, tagged
from tidelog.core.wire.primitives import (
    INT32,
    NO_ID,
    UNREADABLE,
    MalformedRequest,
    compact_string,
    optional_compact_string,
    optional_string,
    read_compact_count,
    read_compact_string,
    read_count,
    read_optional_compact_string,
    read_optional_string,
    read_string,
    read_uvarint,
    skip_tags,
    string,
    uvarint,
)

FIRST_FLEXIBLE = 9
FIRST_WITH_HINTS = 10
FIRST_WITH_TOPIC_IDS = 13

_ACKS_AND_TIMEOUT = Struct(">hi")
_LONE_REQUEST = Struct(">BhiBB")
"""No transactional id, acks, time-out, one topic, its name's length."""
_LONE_PARTITION = Struct(">BiB")
_NO_MORE_TAGS = bytes(3)
"""No tags of the partition, the topic and the request, which end the frame."""
_INDEX_AND_BYTE = Struct(">iB")
_INDEX_AND_LENGTH = Struct(">ii")
_PARTITION_SIZE_MIN = 6
"""Index, length of the records and tags, in the shorter encoding."""
_TOPIC_SIZE_MIN = 3

_ANSWER = Struct(">ihqqq")
_GOOD_ANSWER = Struct(">ihqqqBBB")
"""As _ANSWER, with no record errors, no message and no tags, in flexible versions."""
_ANSWER_BEFORE_START = Struct(">ihqq")
"""Before version 5: without the log start offset."""
_PLAIN_NO_ERRORS = INT32.pack(0) + optional_string(None)
"""No record errors, no message."""
_FLEXIBLE_NO_ERRORS = b"\1\0"
_LONE_HEAD = Struct(">iiBB")
"""Length, correlation id, tags, one topic."""
_LONE_ANSWER = Struct(">BihqqqBBBBiB")
"""One partition as _ANSWER, _NOTHING_MORE, and the end of the frame."""
_NOTHING_MORE = (1, 0, 0, 0, 0, 0)
"""No record errors, no message, no tags of partition and topic, no throttling, no tags."""
_LONE_SIZE = _LONE_HEAD.size + _LONE_ANSWER.size - LENGTH_SIZE

PARTITIONS_MAX = APIS[PRODUCE].entries_max
"""Partitions in one request. Each costs time, and one thread serves all clients."""

_NONE = ErrorCode.NONE

new = tuple.__new__
"""Creates a TopicPartition in half the time of its own constructor."""


def decode_produce(
    version: int, frame: Buffer, position: int, names: TopicNames
) -> tuple[Produce, str | None]:
    """Decode a request and its transactional id. Raises MalformedRequest.

    The records are views of `frame`, writable if it is.
    """
    try:
        if version >= FIRST_FLEXIBLE:
            data = frame if isinstance(frame, memoryview) else memoryview(frame)
            lone = _decode_lone(version, data, position, names)
            return lone or _decode_flexible(version, data, position, names)
        return _decode_plain(version, memoryview(frame), position)
    except UNREADABLE as reason:
        raise MalformedRequest(f"Produce {version}: {reason}") from reason


def _decode_lone(
    version: int, data: memoryview, position: int, names: TopicNames
) -> tuple[Produce, None] | None:
    """Decode one batch for one partition, without transaction and tagged fields: most requests
    are like this. None if the request is different."""
    no_transaction, acks, timeout_ms, topics, name = _LONE_REQUEST.unpack_from(data, position)
    if no_transaction or topics != 2:
        return None
    topic_id = None
    if version >= FIRST_WITH_TOPIC_IDS:
        position += 24
        topic_id = bytes(data[position - 16 : position])
        topic = names.get(topic_id) or unresolved(topic_id)
    elif 0 < name < 0x80:
        position += 8 + name
        topic = str(data[position - name + 1 : position], "utf-8")
    else:
        return None
    if data[position] != 2:
        return None
    _, index, length = _LONE_PARTITION.unpack_from(data, position)
    start = position + 6
    if length > 0x7F:
        length, start = read_uvarint(data, position + 5)
    end = start + length - 1
    if length == 0 or data[end:] != _NO_MORE_TAGS:
        return None
    place = new(TopicPartition, (topic, index))
    return Produce(
        acks, timeout_ms, [ProducePartition(place, data[start:end], topic_id)], version
    ), None


def _decode_flexible(
    version: int, data: memoryview, position: int, names: TopicNames
) -> tuple[Produce, str | None]:
    transactional_id, position = read_optional_compact_string(data, position)
    acks, timeout_ms = _ACKS_AND_TIMEOUT.unpack_from(data, position)
    partitions: list[ProducePartition] = []
    topics, position = read_compact_count(data, position + 6, _TOPIC_SIZE_MIN)
    _check_partitions(topics)
    for _ in range(topics):
        topic_id = None
        if version >= FIRST_WITH_TOPIC_IDS:
            topic_id = bytes(data[position : position + 16])
            topic = names.get(topic_id) or unresolved(topic_id)
            position += 16
        else:
            topic, position = read_compact_string(data, position)
        count, position = read_compact_count(data, position, _PARTITION_SIZE_MIN)
        _check_partitions(len(partitions) + count)
        for _ in range(count):
            index, length = _INDEX_AND_BYTE.unpack_from(data, position)
            start = position + 5
            if length > 0x7F:
                length, start = read_uvarint(data, position + 4)
            position = start + length - 1 if length else start
            partitions.append(
                ProducePartition(
                    new(TopicPartition, (topic, index)), data[start:position], topic_id
                )
            )
            # Raises an error at the end of the frame, also if the records are incomplete.
            position = skip_tags(data, position) if data[position] else position + 1
        position = skip_tags(data, position) if data[position] else position + 1
    skip_tags(data, position)
    return Produce(acks, timeout_ms, partitions, version), transactional_id


def _check_partitions(count: int) -> None:
    """Limit the partitions: millions of empty ones in a frame would block the broker."""
    if count > PARTITIONS_MAX:
        raise MalformedRequest(
            f"produce for {count} partitions exceeds the limit of {PARTITIONS_MAX}"
        )


def _decode_plain(version: int, data: memoryview, position: int) -> tuple[Produce, str | None]:
    limit = len(data)
    transactional_id, position = read_optional_string(data, position)
    acks, timeout_ms = _ACKS_AND_TIMEOUT.unpack_from(data, position)
    partitions: list[ProducePartition] = []
    topics, position = read_count(data, position + 6, _TOPIC_SIZE_MIN)
    _check_partitions(topics)
    for _ in range(topics):
        topic, position = read_string(data, position)
        count, position = read_count(data, position, _PARTITION_SIZE_MIN)
        _check_partitions(len(partitions) + count)
        for _ in range(count):
            index, length = _INDEX_AND_LENGTH.unpack_from(data, position)
            start = position + 8
            position = start + length if length > 0 else start
            if position > limit or length < -1:
                raise MalformedRequest(f"records have invalid length {length}")
            partitions.append(
                ProducePartition(new(TopicPartition, (topic, index)), data[start:position])
            )
    return Produce(acks, timeout_ms, partitions, version), transactional_id


def encode_produce_response(
    correlation_id: int,
    request: Produce,
    response: ProduceResponse,
    leader_of: LeaderOf | None = None,
    throttle_ms: int = 0,
) -> bytes:
    """Encode the whole frame of the response to `request`, with its length in front."""
    version = request.version
    flexible = version >= FIRST_FLEXIBLE
    lone = flexible and len(response.partitions) == 1 and not throttle_ms
    if lone and response.partitions[0].error is _NONE:
        return _encode_lone(correlation_id, request.partitions[0], response.partitions[0], version)
    hints = None if leader_of is None or version < FIRST_WITH_HINTS else LeaderHints(leader_of)
    topics: list[tuple[bytes, list[bytes]]] = []
    last: object = None
    for asked, answer in zip(request.partitions, response.partitions, strict=True):
        topic = asked.topic_id if version >= FIRST_WITH_TOPIC_IDS else asked.topic_partition.topic
        if topic != last or not topics:
            topics.append((_topic(asked, version), []))
            last = topic
        topics[-1][1].append(_answer(answer, version, hints))
    frame = begin_response(PRODUCE, version, correlation_id)
    frame += uvarint(len(topics) + 1) if flexible else INT32.pack(len(topics))
    for name, answers in topics:
        frame += name
        frame += uvarint(len(answers) + 1) if flexible else INT32.pack(len(answers))
        frame += b"".join(answers)
        if flexible:
            frame += NO_TAGS
    frame += INT32.pack(throttle_ms)
    if flexible:
        frame += NO_TAGS if hints is None else hints.node_endpoints()
    return finish(frame)


def _encode_lone(
    correlation_id: int, asked: ProducePartition, answer: ProducePartitionResponse, version: int
) -> bytes:
    """Encode the most frequent response: one batch was appended."""
    topic = _topic(asked, version)
    base, appended, start = answer.base_offset, answer.log_append_time_ms, answer.log_start_offset
    return (
        _LONE_HEAD.pack(_LONE_SIZE + len(topic), correlation_id, 0, 2)
        + topic
        + _LONE_ANSWER.pack(
            2,
            answer.topic_partition.partition,
            0,
            -1 if base is None else base,
            -1 if appended is None else appended,
            -1 if start is None else start,
            *_NOTHING_MORE,
        )
    )


def _topic(asked: ProducePartition, version: int) -> bytes:
    if version >= FIRST_WITH_TOPIC_IDS:
        return asked.topic_id or NO_ID
    name = asked.topic_partition.topic
    return compact_string(name) if version >= FIRST_FLEXIBLE else string(name)


def _answer(answer: ProducePartitionResponse, version: int, hints: LeaderHints | None) -> bytes:
    base, appended, start = answer.base_offset, answer.log_append_time_ms, answer.log_start_offset
    index, error = answer.topic_partition.partition, answer.error
    base = -1 if base is None else base
    appended = -1 if appended is None else appended
    start = -1 if start is None else start
    if version >= FIRST_FLEXIBLE and error is _NONE:
        return _GOOD_ANSWER.pack(index, 0, base, appended, start, 1, 0, 0)
    if version < 5:
        return _ANSWER_BEFORE_START.pack(index, error, base, appended)
    body = _ANSWER.pack(index, error, base, appended, start)
    if version < 8:
        return body
    errors = answer.record_errors or answer.error_message is not None
    if version < FIRST_FLEXIBLE:
        return body + (_plain_errors(answer) if errors else _PLAIN_NO_ERRORS)
    body += _flexible_errors(answer) if errors else _FLEXIBLE_NO_ERRORS
    if hints is not None and error is ErrorCode.NOT_LEADER_OR_FOLLOWER:
        leader = hints.current_leader(answer.topic_partition)
        if leader:
            return body + tagged({0: leader})
    return body + NO_TAGS


def _plain_errors(answer: ProducePartitionResponse) -> bytes:
    body = bytearray(INT32.pack(len(answer.record_errors)))
    for index, message in answer.record_errors:
        body += INT32.pack(index) + string(message)
    return bytes(body + optional_string(answer.error_message))


def _flexible_errors(answer: ProducePartitionResponse) -> bytes:
    body = bytearray(uvarint(len(answer.record_errors) + 1))
    for index, message in answer.record_errors:
        body += INT32.pack(index) + compact_string(message) + NO_TAGS
    return bytes(body + optional_compact_string(answer.error_message))
