"""The consumer protocol: subscriptions and assignments of group members, and the range assignor.

Members exchange these bytes through the coordinator, which does not decode them.

Invariants: decoding any bytes gives a value or raises MalformedRequest. The assignment depends
only on its arguments, so every leader of a group computes the same one.
"""

from collections.abc import Iterable, Mapping
from struct import Struct as Packing

from tidelog.core.types import TopicPartition
from tidelog.core.wire.primitives import MalformedRequest

PROTOCOL_TYPE = "consumer"
RANGE = "range"
_INT16 = Packing(">h")
_INT32 = Packing(">i")
_NO_USER_DATA = _INT32.pack(-1)
"""The user data field, always null here."""


def encode_subscription(topics: Iterable[str]) -> bytes:
    """Encode a subscription in version 0, which all clients can read."""
    names = list(topics)
    return b"".join([_INT16.pack(0), _INT32.pack(len(names)), *map(_string, names), _NO_USER_DATA])


def encode_assignment(partitions: Iterable[TopicPartition]) -> bytes:
    """Encode an assignment in version 0, which all clients can read."""
    topics: dict[str, list[int]] = {}
    for topic, partition in partitions:
        topics.setdefault(topic, []).append(partition)
    parts = [_INT16.pack(0), _INT32.pack(len(topics))]
    for topic, numbers in topics.items():
        parts += [_string(topic), _INT32.pack(len(numbers)), *map(_INT32.pack, numbers)]
    return b"".join([*parts, _NO_USER_DATA])


def decode_assignment(data: bytes) -> list[TopicPartition]:
    """Decode an assignment of any version; empty if a member has no assignment yet.

    Raises MalformedRequest.
    """
    if not data:
        return []
    reader = _Reader(data)
    reader.int16()
    found = []
    for _ in range(reader.count()):
        topic = reader.string()
        found += [TopicPartition(topic, reader.int32()) for _ in range(reader.count())]
    return found


def assign_ranges(
    subscriptions: Mapping[str, Iterable[str]], counts: Mapping[str, int]
) -> dict[str, list[TopicPartition]]:
    """Assign a range of each topic's partitions to each subscriber, in the order of member ids.

    If the partitions do not divide evenly, the first members get one more.
    """
    assigned: dict[str, list[TopicPartition]] = {member: [] for member in subscriptions}
    for topic in sorted({topic for topics in subscriptions.values() for topic in topics}):
        members = sorted(member for member, topics in subscriptions.items() if topic in topics)
        each, more = divmod(counts.get(topic, 0), len(members))
        first = 0
        for place, member in enumerate(members):
            behind = first + each + (place < more)
            assigned[member] += [TopicPartition(topic, one) for one in range(first, behind)]
            first = behind
    return assigned


def _string(text: str) -> bytes:
    data = text.encode()
    return _INT16.pack(len(data)) + data


class _Reader:
    """Reads fields one after another from bytes."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def int16(self) -> int:
        return self._number(_INT16)

    def int32(self) -> int:
        return self._number(_INT32)

    def _number(self, packing: Packing) -> int:
        if self._at + packing.size > len(self._data):
            raise MalformedRequest("a member's metadata is cut off")
        (found,) = packing.unpack_from(self._data, self._at)
        self._at += packing.size
        return int(found)

    def count(self) -> int:
        found = self.int32()
        if not 0 <= found <= len(self._data):
            raise MalformedRequest(f"{found} entries in {len(self._data)} bytes")
        return found

    def string(self) -> str:
        length = self.int16()
        data = self._data[self._at : self._at + max(length, 0)]
        if length < 0 or len(data) < length:
            raise MalformedRequest("a topic's name is cut off")
        self._at += length
        try:
            return data.decode()
        except UnicodeDecodeError:
            raise MalformedRequest("a topic's name is not UTF-8") from None
