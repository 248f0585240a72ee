"""A record as a line of JSON with kcat's fields, there and back.

A key or a value that is not UTF-8 can't be a JSON string: then `key_base64` or
`payload_base64` stands in the place of `key` or `payload`, and a header's value is an object
`{"base64": …}`. Always true: what `dump` wrote, `load` reads to the same bytes.
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
"""What very old clients wrote."""
_dumps = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


class Envelope(NamedTuple):
    """What a line says of the record to be written."""

    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...]
    timestamp: int | None
    partition: int | None


def dump(topic: str, partition: int, record: LogRecord, broker: BrokerId) -> bytes:
    """One line."""
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
    except UnicodeEncodeError:  # a header's name that is no text: spell it in escapes
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
    """What a line asks for; topic, offset and broker are not looked at. Raises ValueError."""
    try:
        fields = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"no JSON: {error}") from None
    if not isinstance(fields, dict):
        raise ValueError("no JSON object")
    given = fields.get("headers") or []
    if not isinstance(given, list) or len(given) % 2:
        raise ValueError('"headers" is no list of names and values in turn')
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
    """Half of a surrogate pair is no text, unless it stands for a byte that was none."""
    try:
        return text.encode(errors="surrogateescape")
    except UnicodeEncodeError:
        raise ValueError(f'"{name}" has half a character, {text[:40]!a}') from None


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
        raise ValueError(f'"{name}" is no string')
    return value


def _number(fields: dict[str, Any], name: str) -> int | None:
    value = fields.get(name)
    if value is not None and type(value) is not int:
        raise ValueError(f'"{name}" is no whole number')
    return value


def _time(fields: dict[str, Any]) -> int | None:
    value = _number(fields, "ts")
    if value is not None and not _NO_TIME <= value <= TIME_MAX:
        raise ValueError(f'"ts" is {value}, which is no time in milliseconds since 1970')
    return value
