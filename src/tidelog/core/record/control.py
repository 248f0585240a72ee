"""Control records, which brokers write into a log and clients do not return to applications.

A control batch has one record. Its key holds the type, its value depends on the type; only the
markers that end a transaction are decoded here. Unknown types are kept as numbers: newer brokers
may write them, and readers skip them.
"""

from enum import IntEnum
from struct import Struct

from tidelog.core.record.record_batch import CorruptRecord
from tidelog.core.slotted import slotted

_KEY = Struct(">hh")
_MARKER = Struct(">hi")
MARKER_VERSION = 0


class ControlType(IntEnum):
    """The types of control records."""

    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6


@slotted
class ControlRecord:
    """A decoded control record."""

    type: int


@slotted
class TransactionMarker(ControlRecord):
    """The marker that ends a producer's transaction."""

    coordinator_epoch: int
    """The epoch of the transaction coordinator that wrote the marker."""

    @property
    def is_abort(self) -> bool:
        return self.type == ControlType.ABORT


def read_control(key: bytes | None, value: bytes | None) -> ControlRecord:
    """Decode a control record. Raises CorruptRecord for too few bytes or a negative version."""
    if key is None or len(key) < _KEY.size:
        raise CorruptRecord("control record without a type")
    version, kind = _KEY.unpack_from(key)
    if version < 0:
        raise CorruptRecord(f"control record has invalid version {version}")
    if kind not in (ControlType.ABORT, ControlType.COMMIT):
        return ControlRecord(kind)
    if value is None or len(value) < _MARKER.size:
        raise CorruptRecord("transaction marker without a coordinator epoch")
    version, coordinator_epoch = _MARKER.unpack_from(value)
    if version < 0:
        raise CorruptRecord(f"transaction marker has invalid version {version}")
    return TransactionMarker(kind, coordinator_epoch)


def marker_key(kind: ControlType) -> bytes:
    """Return the key of a transaction marker."""
    return _KEY.pack(MARKER_VERSION, kind)


def marker_value(coordinator_epoch: int) -> bytes:
    """Return the value of a transaction marker."""
    return _MARKER.pack(MARKER_VERSION, coordinator_epoch)
