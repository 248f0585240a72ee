"""What brokers say to each other besides fetches, as JSON: to the controller, and followers
to their leaders when they have to ask where a log begins and ends.

Rare and small, between brokers of one cluster only; people read it when something is wrong.
A value says of which class it is, and only the classes named here are made from what comes
in. A field that the sender does not know takes its default; one that the receiver does not
know is passed over: so brokers of neighbouring releases understand each other.
"""

import json
from enum import Enum
from typing import Any

from tidelog.core.controller import effects, events
from tidelog.core.controller.metadata import registrations
from tidelog.core.errors import ErrorCode
from tidelog.core.node import messages
from tidelog.core.types import EpochEnd, TopicPartition

_CLASSES: dict[str, type[Any]] = {
    known.__name__: known
    for known in (
        messages.Forwarded,
        messages.ListOffsets,
        messages.ListOffsetsPartition,
        messages.ListOffsetsResponse,
        messages.ListOffsetsPartitionResponse,
        messages.OffsetForLeaderEpoch,
        messages.EpochPartition,
        messages.OffsetForLeaderEpochResponse,
        messages.EpochPartitionResponse,
        events.HeartbeatReceived,
        events.AlterPartitionReceived,
        events.IsrProposal,
        events.IsrMember,
        events.LogReportsReceived,
        events.LogState,
        events.CreateTopicReceived,
        events.DeleteTopicReceived,
        events.CreatePartitionsReceived,
        events.AlterConfigReceived,
        events.UnregisterBrokerReceived,
        events.ElectLeadersReceived,
        events.ElectionType,
        events.AlterReassignmentsReceived,
        events.ListReassignmentsReceived,
        events.AllocateProducerIdsReceived,
        effects.HeartbeatAnswer,
        effects.AlterPartitionAnswer,
        effects.AlterPartitionResult,
        effects.TopicAnswer,
        effects.PartitionErrorsAnswer,
        effects.ReassignmentsAnswer,
        effects.ProducerIdsAnswer,
        registrations.PartitionKey,
        registrations.PartitionRegistration,
        registrations.LeaderRecovery,
        registrations.UncleanElection,
        ErrorCode,
        TopicPartition,
        EpochEnd,
    )
}
_CLASS, _VALUE, _BYTES, _TUPLE, _MAP = "class", "value", "bytes", "tuple", "map"


class UnknownCall(ValueError):
    """Not what a broker of this cluster says."""


def encode_call(value: object) -> bytes:
    """A request to the controller or a leader, or its answer."""
    return json.dumps(_plain(value), separators=(",", ":")).encode()


def decode_call(data: bytes | memoryview) -> Any:
    """The request or answer again."""
    try:
        return _made(json.loads(bytes(data)))
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise UnknownCall(str(error)) from error


def _plain(value: Any) -> Any:
    if isinstance(value, Enum):
        return {_CLASS: type(value).__name__, _VALUE: value.value}
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, bytes):
        return {_BYTES: value.hex()}
    if type(value).__name__ in _CLASSES:
        names = getattr(value, "_fields", None) or value.__slots__
        plain = {name: _plain(getattr(value, name)) for name in names}
        return {_CLASS: type(value).__name__, _VALUE: plain}
    if isinstance(value, tuple):
        return {_TUPLE: [_plain(item) for item in value]}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {_MAP: [[_plain(key), _plain(item)] for key, item in value.items()]}
    raise TypeError(f"{type(value).__name__} is never sent to a broker")


def _made(plain: Any) -> Any:
    if isinstance(plain, list):
        return [_made(item) for item in plain]
    if not isinstance(plain, dict):
        return plain
    if _CLASS in plain:
        kind, value = _CLASSES[plain[_CLASS]], plain[_VALUE]
        if issubclass(kind, Enum):
            return kind(value)
        known = getattr(kind, "_fields", None) or kind.__slots__
        return kind(**{name: _made(value[name]) for name in known if name in value})
    if _BYTES in plain:
        return bytes.fromhex(plain[_BYTES])
    if _TUPLE in plain:
        return tuple(_made(item) for item in plain[_TUPLE])
    return {_made(key): _made(item) for key, item in plain[_MAP]}
