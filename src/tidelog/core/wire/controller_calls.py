"""Requests between brokers other than Fetch, as JSON: to the controller, and from followers to
leaders for the start and end of a log.

They are rare and small, and only between brokers of one cluster; JSON is readable in a network
trace. A value names its class, and only the classes listed here are created from received data. A
missing field gets its default, and an unknown field is ignored: so brokers of
neighbouring releases are compatible.
"""

import json
from enum import Enum
from typing import Any

from tidelog.core.authorization import acl
from tidelog.core.controller import effects, events
from tidelog.core.controller.metadata import registrations
from tidelog.core.errors import ErrorCode
from tidelog.core.node import messages
from tidelog.core.quotas.entity import QuotaAlteration
from tidelog.core.sasl.credential import ScramCredential
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
        events.UpdateFeaturesReceived,
        events.AlterQuotasReceived,
        QuotaAlteration,
        events.AlterScramReceived,
        ScramCredential,
        events.UpgradeType,
        events.CreateAclsReceived,
        events.DeleteAclsReceived,
        events.ElectLeadersReceived,
        events.ElectionType,
        events.AlterReassignmentsReceived,
        events.ListReassignmentsReceived,
        events.AllocateProducerIdsReceived,
        effects.HeartbeatAnswer,
        effects.AlterPartitionAnswer,
        effects.AlterPartitionResult,
        effects.TopicAnswer,
        effects.AclsDeleted,
        effects.PartitionErrorsAnswer,
        effects.ReassignmentsAnswer,
        effects.ProducerIdsAnswer,
        registrations.PartitionKey,
        registrations.PartitionRegistration,
        registrations.LeaderRecovery,
        registrations.UncleanElection,
        acl.Acl,
        acl.AclFilter,
        acl.Operation,
        acl.PatternType,
        acl.Permission,
        acl.ResourceType,
        ErrorCode,
        TopicPartition,
        EpochEnd,
    )
}
_CLASS, _VALUE, _BYTES, _TUPLE, _MAP = "class", "value", "bytes", "tuple", "map"


class UnknownCall(ValueError):
    """The document is not a call of a broker of this cluster."""


def encode_call(value: object) -> bytes:
    """Encode a request to the controller or a leader, or its response."""
    return json.dumps(_to_json(value), separators=(",", ":")).encode()


def decode_call(data: bytes | memoryview) -> Any:
    """Decode a request or a response. Raises UnknownCall."""
    try:
        return _from_json(json.loads(bytes(data)))
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise UnknownCall(str(error)) from error


def _to_json(value: Any) -> Any:
    if isinstance(value, Enum):
        return {_CLASS: type(value).__name__, _VALUE: value.value}
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, bytes):
        return {_BYTES: value.hex()}
    if type(value).__name__ in _CLASSES:
        names = getattr(value, "_fields", None) or value.__slots__
        plain = {name: _to_json(getattr(value, name)) for name in names}
        return {_CLASS: type(value).__name__, _VALUE: plain}
    if isinstance(value, tuple):
        return {_TUPLE: [_to_json(item) for item in value]}
    if isinstance(value, list):
        return [_to_json(item) for item in value]
    if isinstance(value, dict):
        return {_MAP: [[_to_json(key), _to_json(item)] for key, item in value.items()]}
    raise TypeError(f"{type(value).__name__} cannot be sent to a broker")


def _from_json(plain: Any) -> Any:
    if isinstance(plain, list):
        return [_from_json(item) for item in plain]
    if not isinstance(plain, dict):
        return plain
    if _CLASS in plain:
        kind, value = _CLASSES[plain[_CLASS]], plain[_VALUE]
        if issubclass(kind, Enum):
            return kind(value)
        known = getattr(kind, "_fields", None) or kind.__slots__
        return kind(**{name: _from_json(value[name]) for name in known if name in value})
    if _BYTES in plain:
        return bytes.fromhex(plain[_BYTES])
    if _TUPLE in plain:
        return tuple(_from_json(item) for item in plain[_TUPLE])
    return {_from_json(key): _from_json(item) for key, item in plain[_MAP]}
