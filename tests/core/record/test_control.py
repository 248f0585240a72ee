import struct

import pytest

from tidelog.core.record.control import (
    ControlRecord,
    ControlType,
    TransactionMarker,
    marker_key,
    marker_value,
    read_control,
)
from tidelog.core.record.record_batch import CorruptRecord

KEY = struct.Struct(">hh")
VALUE = struct.Struct(">hi")


@pytest.mark.parametrize("kind", [ControlType.ABORT, ControlType.COMMIT])
def test_markers(kind: ControlType) -> None:
    assert (marker_key(kind), marker_value(9)) == (KEY.pack(0, kind), VALUE.pack(0, 9))
    marker = read_control(marker_key(kind), marker_value(9))
    assert marker == TransactionMarker(kind, 9)
    assert isinstance(marker, TransactionMarker)
    assert marker.is_abort == (kind == ControlType.ABORT)


NOT_MARKERS = {"leader change": ControlType.LEADER_CHANGE, "one not known yet": 77}


@pytest.mark.parametrize("kind", NOT_MARKERS.values(), ids=NOT_MARKERS)
def test_other_kinds_keep_their_number(kind: int) -> None:
    assert read_control(KEY.pack(0, kind), None) == ControlRecord(kind)


def test_newer_versions_may_be_longer() -> None:
    assert read_control(KEY.pack(3, 1) + b"more", VALUE.pack(2, 5) + b"more") == TransactionMarker(
        ControlType.COMMIT, 5
    )


BAD = {
    "no key": (None, VALUE.pack(0, 0)),
    "short key": (b"\x00\x00\x00", VALUE.pack(0, 0)),
    "negative key version": (KEY.pack(-1, 0), VALUE.pack(0, 0)),
    "no value": (KEY.pack(0, 0), None),
    "short value": (KEY.pack(0, 0), b"\x00\x00"),
    "negative value version": (KEY.pack(0, 0), VALUE.pack(-1, 0)),
}


@pytest.mark.parametrize(("key", "value"), BAD.values(), ids=BAD)
def test_bad_control_records(key: bytes | None, value: bytes | None) -> None:
    with pytest.raises(CorruptRecord):
        read_control(key, value)
