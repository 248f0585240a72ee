"""Control records: what brokers write into a log for each other and applications never see.

A control batch holds one record. Its key says which kind, its value belongs to the kind;
only the markers that end a transaction are read here. Kinds not known are kept as numbers:
a newer broker may write them, and readers skip them.
"""

from enum import IntEnum
from struct import Struct

from tidelog.core.record.record_batch import CorruptRecord
from tidelog.core.slotted import slotted

_KEY = Struct(">hh")
_MARKER = Struct(">hi")
MARKER_VERSION = 0


class ControlType(IntEnum):
    """The kinds of control record."""

    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6


@slotted
class ControlRecord:
    """What a control record says."""

    type: int


@slotted
class TransactionMarker(ControlRecord):
    """The end of a producer's transaction."""

    coordinator_epoch: int
    """Of the transaction coordinator that wrote the marker."""

    @property
    def is_abort(self) -> bool:
        return self.type == ControlType.ABORT


def read_control(key: bytes | None, value: bytes | None) -> ControlRecord:
    """Raises CorruptRecord when the bytes are too short or of a negative version."""
    if key is None or len(key) < _KEY.size:
        raise CorruptRecord("control record without a type")
    version, kind = _KEY.unpack_from(key)
    if version < 0:
        raise CorruptRecord(f"control record of version {version}")
    if kind not in (ControlType.ABORT, ControlType.COMMIT):
        return ControlRecord(kind)
    if value is None or len(value) < _MARKER.size:
        raise CorruptRecord("transaction marker without a coordinator epoch")
    version, coordinator_epoch = _MARKER.unpack_from(value)
    if version < 0:
        raise CorruptRecord(f"transaction marker of version {version}")
    return TransactionMarker(kind, coordinator_epoch)


def marker_key(kind: ControlType) -> bytes:
    return _KEY.pack(MARKER_VERSION, kind)


def marker_value(coordinator_epoch: int) -> bytes:
    return _MARKER.pack(MARKER_VERSION, coordinator_epoch)
