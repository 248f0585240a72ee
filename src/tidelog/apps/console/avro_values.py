"""Decodes Avro values for the record browser, with the schemas that the console was started with.

A value may begin with a zero byte and the schema's id in four bytes, as serializers write that
use a schema registry. The id is shown; the schema is always the one that was given for the topic.
Any client that can produce may write a value. Invariant: the length of a value bounds the memory
and time to decode it.
"""

import base64
import io
import json
from collections.abc import Mapping, Sequence
from datetime import date, datetime, time
from typing import Any

from tidelog.apps.pipeline.decoding.avro import MAGIC, PREFIX_BYTES, require_fastavro

BYTES_MAX = 1 << 20
"""Longer values are not decoded."""


class BadSchema(Exception):
    """A schema can't be used. Its text is one line."""


def schema_id_of(data: bytes) -> int | None:
    """Return the schema id that a value begins with; None if it has none."""
    if len(data) <= PREFIX_BYTES or data[0] != MAGIC:
        return None
    return int.from_bytes(data[1:PREFIX_BYTES], "big")


class AvroValues:
    """The schemas by topic."""

    def __init__(self, schemas: Mapping[str, Any]) -> None:
        """`schemas`: parsed schemas by topic, see `read_schemas`."""
        self._schemas = schemas

    def decode(self, topic: str, data: bytes) -> str | None:
        """Return a value as JSON; None if it is not a value of the topic's schema."""
        schema = self._schemas.get(topic)
        if schema is None or len(data) > BYTES_MAX:
            return None
        starts = (0,) if schema_id_of(data) is None else (PREFIX_BYTES, 0)
        return next((text for start in starts if (text := _decoded(schema, data, start))), None)


def _decoded(schema: Any, data: bytes, start: int) -> str | None:
    source = io.BytesIO(data)
    source.seek(start)
    try:
        value = require_fastavro().schemaless_reader(source, schema)
        if source.tell() < len(data):
            return None
        return json.dumps(value, default=_as_json, ensure_ascii=False)
    except Exception:  # noqa: BLE001 - untrusted bytes: any error means that the schema does not fit
        return None


def _as_json(value: object) -> str:
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    return value.isoformat() if isinstance(value, date | datetime | time) else str(value)


def read_schemas(options: Sequence[str]) -> AvroValues:
    """Read the schemas of `TOPIC=FILE` options. Raises BadSchema, and NoFastavro if there are any
    and the package is missing."""
    schemas = {}
    for option in options:
        topic, _, path = option.partition("=")
        if not topic or not path:
            raise BadSchema(f"--avro-schema {option!r} is not in the form TOPIC=FILE")
        schemas[topic] = _read_schema(path)
    return AvroValues(schemas)


def _read_schema(path: str) -> Any:
    parse = require_fastavro().parse_schema
    try:
        with open(path, encoding="utf-8") as file:
            written = json.load(file)
    except OSError as error:
        raise BadSchema(f"can't read {path}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise BadSchema(f"{path} is not JSON: {error}") from error
    try:
        schema = parse(written)
    except Exception as error:  # fastavro's errors have no common base
        text = " ".join(str(error).split()) or type(error).__name__
        raise BadSchema(f"{path} is not an Avro schema: {text}") from error
    if _has_empty_items(written, {}):
        raise BadSchema(
            f"{path} has an array whose items take no bytes: a short value could have any number"
        )
    return schema


def _has_empty_items(schema: Any, named: dict[str, Any]) -> bool:
    """Whether an array's items may take no bytes, so that the length of a value bounds nothing."""
    if isinstance(schema, list):
        return any(_has_empty_items(each, named) for each in schema)
    if not isinstance(schema, dict):
        return False
    if "name" in schema:
        named[str(schema["name"])] = schema
    if schema.get("type") == "array" and _is_empty(schema["items"], named, 0):
        return True
    inner = [schema.get("items"), schema.get("values"), schema.get("type")]
    inner += [each.get("type") for each in schema.get("fields", [])]
    return any(_has_empty_items(each, named) for each in inner)


def _is_empty(schema: Any, named: Mapping[str, Any], depth: int) -> bool:
    """Whether a value of the schema takes no bytes: null, a record without fields, or an empty
    fixed."""
    if depth > 20 or isinstance(schema, list):
        return False  # a union writes its branch number; recursion passes a union, array or map
    if isinstance(schema, str):
        return schema == "null" or (schema in named and _is_empty(named[schema], named, depth + 1))
    kind = schema.get("type")
    if kind == "record":
        return all(_is_empty(each["type"], named, depth + 1) for each in schema.get("fields", []))
    if kind == "fixed":
        return int(schema.get("size", 0)) == 0
    return kind not in ("array", "map", "enum") and _is_empty(kind, named, depth + 1)
