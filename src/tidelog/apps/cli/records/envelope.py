"""Convert a record to a line of JSON with kcat's fields, and back.

A key or a value that is not UTF-8 can't be a JSON string: it becomes `key_base64` or
`payload_base64`; a header's value becomes an object `{"base64": …}`. Invariant: `load` returns the
same bytes that `dump` wrote.
"""

import base64
import binascii
import json
from typing import Any, NamedTuple

from tidelog.apps.cli.records.points_in_time import TIME_MAX
from tidelog.core.record.decoder import LogRecord, TimestampType
from tidelog.core.record.record import Header
from tidelog.core.types import BrokerId

_TIMESTAMP_KINDS = {TimestampType.CREATE_TIME: "create", TimestampType.LOG_APPEND_TIME: "logappend"}
_NO_TIME = -1
"""The timestamp that very old clients wrote."""
_dumps = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


class Envelope(NamedTuple):
    """The fields of a line that describe the record to write."""

    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...]
    timestamp: int | None
    partition: int | None


def dump(topic: str, partition: int, record: LogRecord, broker: BrokerId) -> bytes:
    """Return the line of a record."""
    fields: dict[str, Any] = {
        "topic": topic,
        "partition": partition,
        "offset": record.offset,
        "tstype": _TIMESTAMP_KINDS[record.timestamp_type],
        "ts": record.timestamp,
        "broker": broker,
    }
    if record.headers:
        fields["headers"] = [part for header in record.headers for part in _header(header)]
    _put(fields, "key", record.key)
    _put(fields, "payload", record.value)
    try:
        return _dumps(fields).encode() + b"\n"
    except UnicodeEncodeError:  # a header's name is not UTF-8: escape it
        return json.dumps(fields, separators=(",", ":")).encode() + b"\n"


def _put(fields: dict[str, Any], name: str, data: bytes | None) -> None:
    try:
        fields[name] = None if data is None else data.decode()
    except UnicodeDecodeError:
        fields[f"{name}_base64"] = base64.b64encode(data or b"").decode()


def _header(header: Header) -> list[Any]:
    if header.value is None:
        return [header.key, None]
    try:
        return [header.key, header.value.decode()]
    except UnicodeDecodeError:
        return [header.key, {"base64": base64.b64encode(header.value).decode()}]


def load(line: bytes) -> Envelope:
    """Parse a line; topic, offset and broker are ignored. Raises ValueError."""
    try:
        fields = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"invalid JSON: {error}") from None
    if not isinstance(fields, dict):
        raise ValueError("not a JSON object")
    given = fields.get("headers") or []
    if not isinstance(given, list) or len(given) % 2:
        raise ValueError('"headers" must be a list of alternating names and values')
    headers = tuple(
        Header(_header_name(name), _header_value(value))
        for name, value in zip(given[::2], given[1::2], strict=True)
    )
    return Envelope(
        _bytes(fields, "key"),
        _bytes(fields, "payload"),
        headers,
        _time(fields),
        _number(fields, "partition"),
    )


def _bytes(fields: dict[str, Any], name: str) -> bytes | None:
    encoded = fields.get(f"{name}_base64")
    if encoded is not None:
        return _decode(encoded, f"{name}_base64")
    value = fields.get(name)
    return None if value is None else _encode(_text(value, name), name)


def _encode(text: str, name: str) -> bytes:
    """Encode text; a lone surrogate is only valid as an escaped byte."""
    try:
        return text.encode(errors="surrogateescape")
    except UnicodeEncodeError:
        raise ValueError(f'"{name}" has a lone surrogate: {text[:40]!a}') from None


def _header_name(value: object) -> str:
    text = _text(value, "a header's name")
    _encode(text, "headers")
    return text


def _decode(encoded: object, name: str) -> bytes:
    try:
        return base64.b64decode(_text(encoded, name), validate=True)
    except binascii.Error:
        raise ValueError(f'"{name}" is not base64') from None


def _header_value(value: object) -> bytes | None:
    if isinstance(value, dict):
        return _decode(value.get("base64"), "headers")
    return None if value is None else _encode(_text(value, "headers"), "headers")


def _text(value: object, name: str) -> str:
    if not isinstance(value, str):
        raise ValueError(f'"{name}" must be a string')
    return value


def _number(fields: dict[str, Any], name: str) -> int | None:
    value = fields.get(name)
    if value is not None and type(value) is not int:
        raise ValueError(f'"{name}" must be an integer')
    return value


def _time(fields: dict[str, Any]) -> int | None:
    value = _number(fields, "ts")
    if value is not None and not _NO_TIME <= value <= TIME_MAX:
        raise ValueError(f'"ts" is {value}, out of range for milliseconds since 1970')
    return value
