"""Convert an Avro schema to an Arrow type, and resolve Avro's named types.

Invariant: a type that cannot be a column (a union of several types) is rejected before any row is
read. The error names its place in the schema.
"""

import json
from typing import Any


class BadAvroSchema(ValueError):
    """An Avro schema that cannot be converted to columns. The message is one line."""


def parse_avro_schema(text: str) -> dict[str, Any]:
    """Parse a schema of Avro records. Raises BadAvroSchema."""
    try:
        schema = json.loads(text)
    except ValueError as error:
        raise BadAvroSchema(f"is not JSON: {error}") from None
    if not isinstance(schema, dict) or schema.get("type") != "record":
        raise BadAvroSchema('must be a record: {"type": "record", "name": …, "fields": […]}')
    arrow_type(schema)
    return schema


def arrow_type(schema: Any, where: str = "", named: dict[str, Any] | None = None) -> Any:
    """Return the Arrow type for the values of a schema. Raises BadAvroSchema."""
    import pyarrow as pa

    named = {} if named is None else named
    if isinstance(schema, list):
        return arrow_type(_only_kind(schema, where), where, named)
    if isinstance(schema, str):
        return _named_or_plain(schema, where, named)
    kind = schema.get("type")
    if isinstance(kind, dict | list):
        return arrow_type(kind, where, named)
    logical = _logical_type(schema)
    if kind in ("enum", "fixed"):
        named[_full_name(schema)] = logical or (
            pa.string() if kind == "enum" else pa.binary(int(schema["size"]))
        )
        return named[_full_name(schema)]
    if logical is not None:
        return logical
    if kind == "record":
        return _record_type(schema, where, named)
    if kind == "array":
        return pa.list_(arrow_type(schema["items"], f"{where}[]", named))
    if kind == "map":
        return pa.map_(pa.string(), arrow_type(schema["values"], f"{where}{{}}", named))
    return _named_or_plain(kind, where, named)


def _only_kind(union: list[Any], where: str) -> Any:
    kinds = [each for each in union if each != "null"]
    if len(kinds) != 1:
        raise BadAvroSchema(f"{where or 'the value'} may be of several types: that is no column")
    return kinds[0]


def _full_name(schema: dict[str, Any]) -> str:
    return str(schema.get("name", "")).rpartition(".")[2]


def _record_type(schema: dict[str, Any], where: str, named: dict[str, Any]) -> Any:
    import pyarrow as pa

    name = _full_name(schema)
    named[name] = None  # marks a recursive type, which is rejected
    fields = [
        pa.field(field["name"], arrow_type(field["type"], f"{where}.{field['name']}"[:200], named))
        for field in schema.get("fields", [])
    ]
    named[name] = pa.struct(fields)
    return named[name]


def _named_or_plain(kind: object, where: str, named: dict[str, Any]) -> Any:
    import pyarrow as pa

    plain = {
        "null": pa.null(),
        "boolean": pa.bool_(),
        "int": pa.int32(),
        "long": pa.int64(),
        "float": pa.float32(),
        "double": pa.float64(),
        "bytes": pa.binary(),
        "string": pa.string(),
    }
    if kind in plain:
        return plain[str(kind)]
    name = str(kind).rpartition(".")[2]
    if name in named and named[name] is None:
        raise BadAvroSchema(f"{where}: {name} holds itself: that is no column")
    if name not in named:
        raise BadAvroSchema(f"{where or 'the value'}: there is no type {kind!r}")
    return named[name]


def _logical_type(schema: dict[str, Any]) -> Any:
    import pyarrow as pa

    logical = schema.get("logicalType")
    if logical == "decimal":
        return pa.decimal128(int(schema["precision"]), int(schema.get("scale", 0)))
    return {
        ("int", "date"): pa.date32(),
        ("int", "time-millis"): pa.time32("ms"),
        ("long", "time-micros"): pa.time64("us"),
        ("long", "timestamp-millis"): pa.timestamp("us", "UTC"),
        ("long", "timestamp-micros"): pa.timestamp("us", "UTC"),
        ("long", "local-timestamp-millis"): pa.timestamp("us"),
        ("long", "local-timestamp-micros"): pa.timestamp("us"),
        ("string", "uuid"): pa.string(),
    }.get((str(schema.get("type")), str(logical)))
