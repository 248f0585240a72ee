"""A follower's Fetch requests to its leader, and the decoding of their responses.

Followers use version 18 only. Requests with one changed partition, as nearly all are, are encoded
in one step.
"""

from struct import Struct

from tidelog.core.api_table import FETCH
from tidelog.core.node.messages import NEW_SESSION, Fetch, FetchPartition, FetchResponse
from tidelog.core.record.crc32c import Buffer
from tidelog.core.types import TopicId, TopicPartition
from tidelog.core.wire.fetch_request import (
    FOLLOWER_VERSION,
    HEAD,
    LONE,
    LONE_REST,
    PARTITION,
    REPLICA_STATE,
    REPLICA_STATE_TAG,
)
from tidelog.core.wire.fetch_response import decode_fetch_response
from tidelog.core.wire.frames import (
    LENGTH_SIZE,
    begin_request,
    finish,
    parse_response_header,
)
from tidelog.core.wire.primitives import INT32, uvarint

_NO_TAGS_AT = 4
"""The position of the tags, after the correlation id."""
_START = Struct(">ihhi")
"""Length, key, version, correlation id."""
_TAIL = Struct(">BBBBiqB")
"""Empty rack; one tagged field: the replica's state."""


class FollowerFetches:
    """Fetches from one leader, over successive connections.

    Keeps the id of each topic during a fetch session: topics are removed from a session by id,
    and responses name topics by id only.
    """

    __slots__ = ("_client_id", "_header", "_ids", "_names")

    def __init__(self, client_id: str) -> None:
        self._client_id = client_id
        self._header = bytes(begin_request(FETCH, FOLLOWER_VERSION, 0, client_id)[_START.size :])
        """The bytes between the correlation id of a request and its body."""
        self._ids: dict[str, TopicId] = {}
        self._names: dict[TopicId, str] = {}

    def encode(self, correlation_id: int, request: Fetch) -> bytes:
        """Encode a whole frame, with its length in front."""
        if request.session_epoch == NEW_SESSION:
            self._ids.clear()
            self._names.clear()
        if len(request.partitions) == 1 and not request.forgotten:
            return self._encode_lone(correlation_id, request, request.partitions[0])
        frame = begin_request(FETCH, FOLLOWER_VERSION, correlation_id, self._client_id)
        frame += HEAD.pack(
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
        assert request.replica is not None, "only followers use this"
        epoch = -1 if request.broker_epoch is None else request.broker_epoch
        size = REPLICA_STATE.size + 1
        frame += _TAIL.pack(1, 1, REPLICA_STATE_TAG, size, request.replica, epoch, 0)
        frame.append(0)
        return finish(frame)

    def _encode_lone(self, correlation_id: int, request: Fetch, asked: FetchPartition) -> bytes:
        topic, topic_id = asked.topic_partition.topic, asked.topic_id
        assert topic_id is not None, "a follower knows its topic ids"
        assert request.replica is not None, "only followers use this"
        self._ids[topic] = topic_id
        self._names[topic_id] = topic
        epoch, fetched, incarnation = (
            asked.leader_epoch,
            asked.last_fetched_epoch,
            request.broker_epoch,
        )
        header = self._header
        size = _START.size - LENGTH_SIZE + len(header) + LONE.size
        return b"".join(
            (
                _START.pack(size, FETCH, FOLLOWER_VERSION, correlation_id),
                header,
                LONE.pack(
                    request.max_wait_ms,
                    request.min_bytes,
                    request.max_bytes,
                    0,
                    request.session_id,
                    request.session_epoch,
                    2,
                    topic_id,
                    2,
                    asked.topic_partition.partition,
                    -1 if epoch is None else epoch,
                    asked.offset,
                    -1 if fetched is None else fetched,
                    asked.log_start_offset,
                    asked.max_bytes,
                    *LONE_REST,
                    request.replica,
                    -1 if incarnation is None else incarnation,
                    0,
                    0,
                ),
            )
        )

    def _add_partitions(self, frame: bytearray, partitions: list[FetchPartition]) -> None:
        by_topic: dict[TopicId, list[bytes]] = {}
        for asked in partitions:
            topic_id = asked.topic_id
            assert topic_id is not None, "a follower knows its topic ids"
            found = by_topic.get(topic_id)
            if found is None:
                found = by_topic[topic_id] = []
                topic = asked.topic_partition.topic
                self._ids[topic] = topic_id
                self._names[topic_id] = topic
            epoch, fetched = asked.leader_epoch, asked.last_fetched_epoch
            found.append(
                PARTITION.pack(
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
        """Decode the correlation id and the response. Raises MalformedRequest.

        The records are slices of `frame`.
        """
        if len(frame) > _NO_TAGS_AT and not frame[_NO_TAGS_AT]:
            (correlation_id,), position = INT32.unpack_from(frame), _NO_TAGS_AT + 1
        else:
            correlation_id, position = parse_response_header(FETCH, FOLLOWER_VERSION, frame)
        return correlation_id, decode_fetch_response(frame, position, self._names)
