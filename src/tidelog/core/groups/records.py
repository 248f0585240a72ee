"""The records of `__consumer_offsets`: offsets and generations of groups, in Kafka's format.

Written in the versions of Kafka 4.3; all versions of Kafka can be read. Decoding never reads past
the end of the data: a record decodes or raises DamagedRecord. Keys of an unknown kind are not
damage: newer brokers, or newer kinds of groups, may have written them.
"""

from collections.abc import Iterable
from struct import Struct
from struct import error as OutOfBytes
from typing import NamedTuple

from tidelog.core.coordinator.shard import DamagedRecord


class OffsetKey(NamedTuple):
    """The key of a committed offset."""

    group: str
    topic: str
    partition: int


class GroupKey(NamedTuple):
    """The key of the latest generation of a group."""

    group: str


class OffsetValue(NamedTuple):
    """A committed offset. None: not set."""

    offset: int
    leader_epoch: int | None
    metadata: str
    commit_timestamp: int
    expire_timestamp: int | None = None
    """Set only if the client sent a retention time; current clients do not."""
    topic_id: bytes | None = None


class MemberValue(NamedTuple):
    """One member of a generation."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout: int
    session_timeout: int
    subscription: bytes
    assignment: bytes


class GroupValue(NamedTuple):
    """A generation, or a group without members."""

    protocol_type: str
    """Empty for a group that only ever had offsets."""
    generation: int
    protocol: str | None
    leader: str | None
    current_state_timestamp: int | None
    members: list[MemberValue]


_OFFSET_KEYS = (0, 1)
_OFFSET_KEY = 1
_GROUP_KEY = 2
_OFFSET_VALUE = 4
_OFFSET_VALUE_WITH_EXPIRY = 1
_GROUP_VALUE = 3
_FLEXIBLE = 4
"""From this version on lengths are varints and fields may have tags, in both values."""
_TOPIC_ID_TAG = 0
_TOPIC_ID_SIZE = 16
_STRING_BYTES_MAX = 0x7FFF
_UNKNOWN = -1

_I16 = Struct(">h")
_I32 = Struct(">i")
_I64 = Struct(">q")
_OFFSET_AND_EPOCH = Struct(">qi")
_USUAL_OFFSET = Struct(">hqiBqB2s16s")
"""The fast path: no metadata, but a topic id. Nearly all offsets are encoded so."""
_ID_FOLLOWS = bytes((_TOPIC_ID_TAG, _TOPIC_ID_SIZE))


# -- keys ----------------------------------------------------------------------------------


def encode_key(key: OffsetKey | GroupKey) -> bytes:
    """Return the key in the log's format."""
    if isinstance(key, OffsetKey):
        return offset_keys(key.group, [(key.topic, key.partition)])[0]
    return _I16.pack(_GROUP_KEY) + _string(key.group)


def offset_keys(group: str, partitions: Iterable[tuple[str, int]]) -> list[bytes]:
    """Return the keys of a group's offsets in the log's format."""
    start = _I16.pack(_OFFSET_KEY) + _string(group)
    partitions = list(partitions)
    starts = {topic: start + _string(topic) for topic in {topic for topic, _ in partitions}}
    return [starts[topic] + _I32.pack(partition) for topic, partition in partitions]


def decode_key(data: bytes) -> OffsetKey | GroupKey | None:
    """Decode a key. Return None if its kind is unknown."""
    try:
        kind = _I16.unpack_from(data)[0]
        if kind in _OFFSET_KEYS:
            group, at = _read_string(data, 2)
            topic, at = _read_string(data, at)
            return OffsetKey(group, topic, _I32.unpack_from(data, at)[0])
        if kind == _GROUP_KEY:
            return GroupKey(_read_string(data, 2)[0])
    except (OutOfBytes, UnicodeDecodeError) as error:
        raise DamagedRecord(f"a key of {len(data)} bytes: {error}") from error
    return None


# -- offsets -------------------------------------------------------------------------------


def encode_offset_value(value: OffsetValue) -> bytes:
    """Encode an offset, with the topic id if it is known."""
    if value.expire_timestamp is not None:
        return b"".join(
            (
                _I16.pack(_OFFSET_VALUE_WITH_EXPIRY),
                _I64.pack(value.offset),
                _string(value.metadata),
                _I64.pack(value.commit_timestamp),
                _I64.pack(value.expire_timestamp),
            )
        )
    topic_id, epoch = value.topic_id, _number(value.leader_epoch)
    if topic_id is not None and not value.metadata:
        head = (_OFFSET_VALUE, value.offset, epoch, 1, value.commit_timestamp)
        return _USUAL_OFFSET.pack(*head, 1, _ID_FOLLOWS, topic_id)
    text = value.metadata.encode()
    tags = bytes(1) if topic_id is None else bytes((1, _TOPIC_ID_TAG, _TOPIC_ID_SIZE)) + topic_id
    return b"".join(
        (
            _I16.pack(_OFFSET_VALUE),
            _OFFSET_AND_EPOCH.pack(value.offset, epoch),
            _uvarint(len(text) + 1),
            text,
            _I64.pack(value.commit_timestamp),
            tags,
        )
    )


def decode_offset_value(data: bytes) -> OffsetValue:
    """Decode a value of any version. Raises DamagedRecord."""
    try:
        version = _I16.unpack_from(data)[0]
        if version == _FLEXIBLE:
            return _flexible_offset(data)
        if 0 <= version < _FLEXIBLE:
            return _fixed_offset(version, data)
    except (OutOfBytes, IndexError, UnicodeDecodeError) as error:
        raise DamagedRecord(f"an offset of {len(data)} bytes: {error}") from error
    raise DamagedRecord(f"an offset of unknown version {version}")


def _flexible_offset(data: bytes) -> OffsetValue:
    if len(data) == _USUAL_OFFSET.size:
        _, offset, epoch, text, at, tags, tag, topic_id = _USUAL_OFFSET.unpack(data)
        if text == 1 and tags == 1 and tag == _ID_FOLLOWS and any(topic_id):
            return OffsetValue(offset, _known(epoch), "", at, None, topic_id)
    offset, leader_epoch = _OFFSET_AND_EPOCH.unpack_from(data, 2)
    metadata, at = _read_compact_string(data, 14)
    committed = _I64.unpack_from(data, at)[0]
    topic_id = None
    tags, at = _read_uvarint(data, at + 8)
    for _ in range(tags):
        tag, at = _read_uvarint(data, at)
        content, at = _read_tag(data, at)
        if tag == _TOPIC_ID_TAG:
            if len(content) != _TOPIC_ID_SIZE:
                raise DamagedRecord(f"a topic id of {len(content)} bytes")
            topic_id = content if any(content) else None
    return OffsetValue(offset, _known(leader_epoch), metadata, committed, None, topic_id)


def _fixed_offset(version: int, data: bytes) -> OffsetValue:
    offset, at, leader_epoch, expires = _I64.unpack_from(data, 2)[0], 10, _UNKNOWN, _UNKNOWN
    if version == 3:
        leader_epoch, at = _I32.unpack_from(data, at)[0], at + 4
    metadata, at = _read_string(data, at)
    committed, at = _I64.unpack_from(data, at)[0], at + 8
    if version == _OFFSET_VALUE_WITH_EXPIRY:
        expires = _I64.unpack_from(data, at)[0]
    return OffsetValue(offset, _known(leader_epoch), metadata, committed, _known(expires))


# -- generations ---------------------------------------------------------------------------


def encode_group_value(value: GroupValue) -> bytes:
    """Encode a generation and its members."""
    parts = [
        _I16.pack(_GROUP_VALUE),
        _string(value.protocol_type),
        _I32.pack(value.generation),
        _optional_string(value.protocol),
        _optional_string(value.leader),
        _I64.pack(_number(value.current_state_timestamp)),
        _I32.pack(len(value.members)),
    ]
    for member in value.members:
        parts += (
            _string(member.member_id),
            _optional_string(member.group_instance_id),
            _string(member.client_id),
            _string(member.client_host),
            _I32.pack(member.rebalance_timeout),
            _I32.pack(member.session_timeout),
            _I32.pack(len(member.subscription)),
            member.subscription,
            _I32.pack(len(member.assignment)),
            member.assignment,
        )
    return b"".join(parts)


def decode_group_value(data: bytes) -> GroupValue:
    """Decode a value of any version. Raises DamagedRecord."""
    try:
        version = _I16.unpack_from(data)[0]
        if not 0 <= version <= _FLEXIBLE:
            raise DamagedRecord(f"a group of unknown version {version}")
        return _GroupReader(data, version).group()
    except (OutOfBytes, IndexError, UnicodeDecodeError) as error:
        raise DamagedRecord(f"a group of {len(data)} bytes: {error}") from error


class _GroupReader:
    """Decodes a generation field by field."""

    def __init__(self, data: bytes, version: int) -> None:
        self._data = data
        self._version = version
        self._at = 2

    def group(self) -> GroupValue:
        protocol_type = self._text()
        generation = self._i32()
        protocol, leader = self._optional_text(), self._optional_text()
        changed = self._i64() if self._version >= 2 else _UNKNOWN
        members = [self._member() for _ in range(self._count())]
        self._skip_tags()
        return GroupValue(protocol_type, generation, protocol, leader, _known(changed), members)

    def _member(self) -> MemberValue:
        member_id = self._text()
        instance = self._optional_text() if self._version >= 3 else None
        client_id, client_host = self._text(), self._text()
        rebalance_timeout = self._i32() if self._version >= 1 else _UNKNOWN
        session_timeout = self._i32()
        if rebalance_timeout == _UNKNOWN:
            rebalance_timeout = session_timeout  # older versions have no rebalance time-out
        subscription, assignment = self._bytes(), self._bytes()
        self._skip_tags()
        return MemberValue(
            member_id,
            instance,
            client_id,
            client_host,
            rebalance_timeout,
            session_timeout,
            subscription,
            assignment,
        )

    def _i32(self) -> int:
        number: int = _I32.unpack_from(self._data, self._at)[0]
        self._at += 4
        return number

    def _i64(self) -> int:
        number: int = _I64.unpack_from(self._data, self._at)[0]
        self._at += 8
        return number

    def _length(self, fixed: Struct) -> int:
        """Return the length of a string, bytes or an array; -1 is null."""
        if self._version >= _FLEXIBLE:
            length, self._at = _read_uvarint(self._data, self._at)
            return length - 1
        (length,) = fixed.unpack_from(self._data, self._at)
        self._at += fixed.size
        return int(length)

    def _count(self) -> int:
        return self._present(self._length(_I32))

    def _bytes(self) -> bytes:
        return self._take(self._present(self._length(_I32)))

    def _text(self) -> str:
        return self._take(self._present(self._length(_I16))).decode()

    def _optional_text(self) -> str | None:
        length = self._length(_I16)
        return None if length == _UNKNOWN else self._take(self._present(length)).decode()

    def _present(self, length: int) -> int:
        if length < 0:
            raise DamagedRecord(f"null or negative length {length}")
        return length

    def _take(self, length: int) -> bytes:
        taken, self._at = _slice(self._data, self._at, length)
        return taken

    def _skip_tags(self) -> None:
        if self._version < _FLEXIBLE:
            return
        tags, self._at = _read_uvarint(self._data, self._at)
        for _ in range(tags):
            _, self._at = _read_uvarint(self._data, self._at)
            _, self._at = _read_tag(self._data, self._at)


# -- parts ---------------------------------------------------------------------------------


def _number(known: int | None) -> int:
    return _UNKNOWN if known is None else known


def _known(number: int) -> int | None:
    return None if number == _UNKNOWN else number


def _string(text: str) -> bytes:
    raw = text.encode()
    if len(raw) > _STRING_BYTES_MAX:
        raise ValueError(f"string of {len(raw)} bytes; the limit is {_STRING_BYTES_MAX}")
    return _I16.pack(len(raw)) + raw


def _optional_string(text: str | None) -> bytes:
    return _I16.pack(_UNKNOWN) if text is None else _string(text)


def _slice(data: bytes, at: int, length: int) -> tuple[bytes, int]:
    end = at + length
    if end > len(data):
        raise DamagedRecord(
            f"field of {length} bytes at {at} extends past the end ({len(data)} bytes)"
        )
    return data[at:end], end


def _read_string(data: bytes, at: int) -> tuple[str, int]:
    length = _I16.unpack_from(data, at)[0]
    end = at + 2 + length
    if length < 0 or end > len(data):
        raise DamagedRecord(f"string of {length} bytes at {at} of {len(data)}")
    return data[at + 2 : end].decode(), end


def _read_compact_string(data: bytes, at: int) -> tuple[str, int]:
    length, at = _read_uvarint(data, at)
    if length == 0:
        raise DamagedRecord(f"null instead of a string at {at}")
    raw, at = _slice(data, at, length - 1)
    return raw.decode(), at


def _read_tag(data: bytes, at: int) -> tuple[bytes, int]:
    size, at = _read_uvarint(data, at)
    return _slice(data, at, size)


def _uvarint(number: int) -> bytes:
    output = bytearray()
    while number > 0x7F:
        output.append(number & 0x7F | 0x80)
        number >>= 7
    output.append(number)
    return bytes(output)


def _read_uvarint(data: bytes, at: int) -> tuple[int, int]:
    number = data[at]
    if number < 0x80:
        return number, at + 1
    number &= 0x7F
    for shift in (7, 14, 21, 28):
        at += 1
        byte = data[at]
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, at + 1
    raise DamagedRecord(f"a varint at {at} does not end")
