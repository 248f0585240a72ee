"""Requests with as many entries as allowed, to find those that take too long.

For every array of every offered API there are two: in one all entries name the same thing, in the
other all entries differ. The work of a broker may grow with the number of entries, but not with the
entries times the things they name.
"""

from collections.abc import Iterator
from random import Random
from typing import Any, NamedTuple

from tidelog.core.api_table import OFFERED, REQUEST_BYTES_MAX
from tidelog.core.wire.codec import REQUEST, encode_request, message_fields
from tidelog.core.wire.schema.notation import ARRAY, STRUCT, Field
from tidelog.lab.fuzz.requests import RequestMaker

ENTRIES = (1000, 9000)
_NUMBERED = ("name", "topic", "resource_name", "group_id", "member_id", "user", "key")
"""Text fields that get a number, so that entries differ."""
_INDEXES = ("partition_index", "partition", "index")


class LargeRequest(NamedTuple):
    """A frame without its length, and the name of its large array."""

    name: str
    frame: bytes


def large_requests(maker: RequestMaker, entries: int) -> Iterator[LargeRequest]:
    """Large requests in the latest version of each API, if they fit into a frame."""
    for key, api in sorted(OFFERED.items()):
        fields = message_fields(key, api.last, REQUEST)
        for path in arrays(fields, api.last):
            for differ in (False, True):
                request = stretched(maker, fields, api.last, path, entries, differ)
                frame = encode_request(key, api.last, 1, "fuzz", request)[4:]
                if len(frame) <= REQUEST_BYTES_MAX:
                    where = ".".join(field.name for field in path)
                    how = "differ" if differ else "same"
                    yield LargeRequest(f"{api.name} {where} {how}", frame)


def any_large(maker: RequestMaker, random: Random) -> bytes:
    """A large request in a random version; a small one if it does not fit into a frame."""
    key = random.choice(list(OFFERED))
    version = random.randint(OFFERED[key].first, OFFERED[key].last)
    fields = message_fields(key, version, REQUEST)
    paths = list(arrays(fields, version))
    if not paths:
        return maker.of(key, version)
    path, differ = random.choice(paths), random.random() < 0.5
    request = stretched(maker, fields, version, path, random.choice(ENTRIES), differ)
    frame = encode_request(key, version, 1, "fuzz", request)[4:]
    return frame if len(frame) <= REQUEST_BYTES_MAX else maker.of(key, version)


def arrays(
    fields: tuple[Field, ...], version: int, above: tuple[Field, ...] = ()
) -> Iterator[tuple[Field, ...]]:
    """The paths to all arrays of a message."""
    for field in fields:
        if field.versions.hold(version):
            path = (*above, field)
            if field.type.startswith(ARRAY):
                yield path
            if field.type.startswith(ARRAY) or field.type == STRUCT:
                yield from arrays(field.fields, version, path)


def stretched(
    maker: RequestMaker,
    fields: tuple[Field, ...],
    version: int,
    path: tuple[Field, ...],
    entries: int,
    differ: bool,
) -> dict[str, Any]:
    """A request whose array at the end of `path` has `entries` entries."""
    request = inner = maker.struct(fields, version)
    for field in path[:-1]:
        if field.type.startswith(ARRAY):
            inner[field.name] = inner[field.name] or [maker.struct(field.fields, version)]
            inner = inner[field.name][0]
        else:
            inner[field.name] = inner[field.name] or maker.struct(field.fields, version)
            inner = inner[field.name]
    field = path[-1]
    one = maker.entry(field, version)
    inner[field.name] = [_numbered(one, n) if differ else one for n in range(entries)]
    return request


def _numbered(entry: Any, number: int) -> Any:
    if isinstance(entry, str):
        return f"{entry}-{number}"
    if isinstance(entry, int) and not isinstance(entry, bool):
        return number % 128
    if not isinstance(entry, dict):
        return entry
    texts = {
        name: f"{entry[name]}-{number}" for name in _NUMBERED if isinstance(entry.get(name), str)
    }
    indexes = {name: number for name in _INDEXES if isinstance(entry.get(name), int)}
    return {**entry, **texts, **indexes}
