"""Pictures of replicas as bytes: bytes remember their hash, nested tuples don't.

A search hashes and compares the same few thousand pictures millions of times.
"""

import marshal
from typing import Any, TypeAlias

Picture: TypeAlias = bytes
Fields: TypeAlias = tuple[Any, ...]

LOG_END_OFFSET, HIGH_WATERMARK, LEADER, LEADER_EPOCH, PARTITION_EPOCH = 1, 2, 5, 6, 7
ISR, FOLLOWERS, ACCUSED = 9, 10, 18
"""Where these stand among the fields that `Replica.freeze` gives."""

_FIELDS: dict[Picture, Fields] = {}
_PICTURES: dict[Picture, Picture] = {}


def picture_of(fields: Fields) -> Picture:
    """Always the same object for the same fields. Format 2 has no back references."""
    packed = marshal.dumps(fields, 2)
    picture = _PICTURES.setdefault(packed, packed)
    _FIELDS[picture] = fields
    return picture


def fields_of(picture: Picture) -> Fields:
    """What `picture_of` was given, also for a picture that another process made."""
    fields = _FIELDS.get(picture)
    if fields is None:
        fields = _FIELDS[picture] = marshal.loads(picture)
    return fields
