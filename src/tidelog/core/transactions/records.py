"""The records of `__transaction_state`: the state of a transactional id, in Kafka's format.

From `transaction.version` 1 on, values are written in version 1, before that in version 0, as in
Kafka. Both can be read. Decoding never reads past the end of the data: a record decodes or raises
DamagedRecord. Keys of an unknown kind are not damage: newer brokers may have written them.
"""

from struct import Struct
from struct import error as OutOfBytes

from tidelog.core.coordinator.shard import DamagedRecord
from tidelog.core.transactions.transaction import Transaction, TransactionState
from tidelog.core.types import TopicPartition

_KEY = 0
_FIXED = 0
_FLEXIBLE = 1
_PREVIOUS_ID_TAG, _NEXT_ID_TAG, _CLIENT_VERSION_TAG = range(3)

_I16 = Struct(">h")
_I32 = Struct(">i")
_I64 = Struct(">q")
_HEAD = Struct(">hqhib")
_TIMES = Struct(">qq")


def encode_key(transactional_id: str) -> bytes:
    """Return the key in the log's format."""
    text = transactional_id.encode()
    return _I16.pack(_KEY) + _I16.pack(len(text)) + text


def decode_key(data: bytes) -> str | None:
    """Decode a key. Return None if its kind is unknown."""
    try:
        if _I16.unpack_from(data)[0] != _KEY:
            return None
        size = _I16.unpack_from(data, 2)[0]
        if size < 0 or len(data) < 4 + size:
            raise DamagedRecord(f"transactional id of {size} bytes in a key of {len(data)}")
        return data[4 : 4 + size].decode()
    except (OutOfBytes, UnicodeDecodeError) as error:
        raise DamagedRecord(f"a key of {len(data)} bytes: {error}") from error


# -- values --------------------------------------------------------------------------------


def encode_value(value: Transaction, transaction_version: int = 1) -> bytes:
    """Encode a state, in the format of the cluster's transaction version."""
    version = _FLEXIBLE if transaction_version >= 1 else _FIXED
    head = _HEAD.pack(version, value.producer_id, value.epoch, value.timeout_ms, int(value.state))
    times = _TIMES.pack(value.updated_ms, value.start_ms)
    topics = None if value.state is TransactionState.EMPTY else _by_topic(value)
    if version == _FIXED:
        return head + _fixed_topics(topics) + times
    return head + _flexible_topics(topics) + times + _tags(value)


def _by_topic(value: Transaction) -> dict[str, list[int]]:
    topics: dict[str, list[int]] = {}
    for topic, partition in sorted(value.partitions):
        topics.setdefault(topic, []).append(partition)
    return topics


def _fixed_topics(topics: dict[str, list[int]] | None) -> bytes:
    if topics is None:
        return _I32.pack(-1)
    parts = [_I32.pack(len(topics))]
    for topic, partitions in topics.items():
        text = topic.encode()
        parts += (_I16.pack(len(text)), text, _I32.pack(len(partitions)))
        parts += map(_I32.pack, partitions)
    return b"".join(parts)


def _flexible_topics(topics: dict[str, list[int]] | None) -> bytes:
    if topics is None:
        return bytes(1)
    parts = [_uvarint(len(topics) + 1)]
    for topic, partitions in topics.items():
        text = topic.encode()
        parts += (_uvarint(len(text) + 1), text, _uvarint(len(partitions) + 1))
        parts += map(_I32.pack, partitions)
        parts.append(bytes(1))
    return b"".join(parts)


def _tags(value: Transaction) -> bytes:
    """Encode the optional fields that differ from their defaults."""
    fields = (
        (_PREVIOUS_ID_TAG, _I64, value.previous_producer_id, -1),
        (_NEXT_ID_TAG, _I64, value.next_producer_id, -1),
        (_CLIENT_VERSION_TAG, _I16, value.client_version, 0),
    )
    tags = [
        bytes((tag, layout.size)) + layout.pack(number)
        for tag, layout, number, default in fields
        if number != default
    ]
    return bytes((len(tags),)) + b"".join(tags)


def decode_value(data: bytes) -> Transaction:
    """Decode a state of any version. Raises DamagedRecord."""
    try:
        version = _I16.unpack_from(data)[0]
        if version not in (_FIXED, _FLEXIBLE):
            raise DamagedRecord(f"a transaction of unknown version {version}")
        return _Reader(data, flexible=version == _FLEXIBLE).transaction()
    except (OutOfBytes, IndexError, UnicodeDecodeError, ValueError) as error:
        raise DamagedRecord(f"a transaction of {len(data)} bytes: {error}") from error


class _Reader:
    """Decodes a state field by field."""

    def __init__(self, data: bytes, *, flexible: bool) -> None:
        self._data = data
        self._at = _HEAD.size
        self._flexible = flexible

    def transaction(self) -> Transaction:
        _, producer_id, epoch, timeout_ms, number = _HEAD.unpack_from(self._data)
        state = TransactionState(number)
        partitions = self._partitions()
        updated_ms, start_ms = _TIMES.unpack_from(self._data, self._at)
        self._at += _TIMES.size
        tags = self._tags() if self._flexible else {}
        return Transaction(
            producer_id,
            epoch,
            timeout_ms,
            state,
            partitions,
            start_ms,
            updated_ms,
            _number(tags.get(_PREVIOUS_ID_TAG), _I64, -1),
            _number(tags.get(_NEXT_ID_TAG), _I64, -1),
            _number(tags.get(_CLIENT_VERSION_TAG), _I16, 0),
        )

    def _partitions(self) -> frozenset[TopicPartition]:
        found = set()
        for _ in range(max(self._length(_I32), 0)):
            topic = self._text()
            for _ in range(max(self._length(_I32), 0)):
                found.add(TopicPartition(topic, _I32.unpack_from(self._data, self._at)[0]))
                self._at += _I32.size
            if self._flexible:
                self._tags()
        return frozenset(found)

    def _length(self, fixed: Struct) -> int:
        """Return the length of a string or an array; -1 is null."""
        if self._flexible:
            return self._uvarint() - 1
        (length,) = fixed.unpack_from(self._data, self._at)
        self._at += fixed.size
        return int(length)

    def _text(self) -> str:
        return self._take(self._length(_I16)).decode()

    def _tags(self) -> dict[int, bytes]:
        tags = {}
        for _ in range(self._uvarint()):
            tag = self._uvarint()
            tags[tag] = self._take(self._uvarint())
        return tags

    def _take(self, size: int) -> bytes:
        end = self._at + size
        if size < 0 or end > len(self._data):
            raise DamagedRecord(f"field of {size} bytes at {self._at} of {len(self._data)} bytes")
        taken = self._data[self._at : end]
        self._at = end
        return taken

    def _uvarint(self) -> int:
        number = 0
        for shift in (0, 7, 14, 21, 28):
            byte = self._data[self._at]
            self._at += 1
            number |= (byte & 0x7F) << shift
            if byte < 0x80:
                return number
        raise DamagedRecord(f"a varint before {self._at} does not end")


def _number(content: bytes | None, layout: Struct, default: int) -> int:
    return default if content is None else int(layout.unpack(content)[0])


def _uvarint(number: int) -> bytes:
    output = bytearray()
    while number > 0x7F:
        output.append(number & 0x7F | 0x80)
        number >>= 7
    output.append(number)
    return bytes(output)
