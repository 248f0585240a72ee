"""Pictures of replicas: frozen fields as bytes, which cache their hash; tuples do not.

A search hashes and compares the same few thousand pictures millions of times.
"""

import marshal
from typing import Any, TypeAlias

Picture: TypeAlias = bytes
Fields: TypeAlias = tuple[Any, ...]

LOG_END_OFFSET, HIGH_WATERMARK, LEADER, LEADER_EPOCH, PARTITION_EPOCH = 1, 2, 5, 6, 7
ISR, FOLLOWERS, ACCUSED = 9, 10, 18
"""The positions of these values in the fields that `Replica.freeze` returns."""

_FIELDS: dict[Picture, Fields] = {}
_PICTURES: dict[Picture, Picture] = {}


def picture_of(fields: Fields) -> Picture:
    """Return the picture, the same object for equal fields. Format 2 has no back references."""
    packed = marshal.dumps(fields, 2)
    picture = _PICTURES.setdefault(packed, packed)
    _FIELDS[picture] = fields
    return picture


def fields_of(picture: Picture) -> Fields:
    """Return the fields of a picture, also if another process made it."""
    fields = _FIELDS.get(picture)
    if fields is None:
        fields = _FIELDS[picture] = marshal.loads(picture)
    return fields
