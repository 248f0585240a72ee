"""Decode Avro values into columns with fastavro, and convert Avro schemas to Arrow types.

Spark's own Avro reader needs a jar that matches the Spark version.

The schema must be the writer's: the schema that Confluent's registry returns for the id at the
start of each value. Invariants: a value is bad unless it is decoded to its last byte. A type that
cannot be a column (a union of several types) is rejected before any row is read; the error names
the field.
"""

import io
import json
import uuid
from typing import Any

from tidelog.apps.pipeline.plan import Decode

MAGIC = 0
PREFIX_BYTES = 5
"""The length of Confluent's prefix: a zero byte and the schema id in four bytes."""


class NoFastavro(Exception):
    """The package that decodes Avro is missing. The message is one line."""


def require_fastavro() -> Any:
    """Return the module `fastavro`. Raises NoFastavro."""
    try:
        import fastavro
    except ImportError:
        raise NoFastavro("cannot decode Avro without fastavro: pip install fastavro") from None
    return fastavro


def with_decoded(frame: Any, decode: Decode) -> Any:
    """Return the frame with a struct `decoded` and a flag `bad`."""
    import pyarrow as pa
    from pyspark.sql import functions as sql
    from pyspark.sql.pandas.types import from_arrow_schema

    kind = AvroDecoder(decode.schema, decode.framing).type
    result = pa.struct([pa.field("decoded", kind), pa.field("bad", pa.bool_())])
    schema, framing = decode.schema, decode.framing

    @sql.arrow_udf(from_arrow_schema(pa.schema(list(result))))
    def decoded(values: pa.Array) -> pa.Array:  # Spark uses these type hints
        rows, reasons = AvroDecoder(schema, framing).decode(values)
        bad = pa.array([why is not None for why in reasons])
        return pa.StructArray.from_arrays([rows, bad], fields=list(result))

    both = frame.withColumn("_avro", decoded(sql.col("value")))
    return both.select(*frame.columns, "_avro.decoded", "_avro.bad")


class AvroDecoder:
    """Decodes arrays of Avro values."""

    def __init__(self, schema: str, framing: str) -> None:
        fastavro = require_fastavro()
        written = parse_avro_schema(schema)
        self.type = arrow_type(written)
        self._schema = fastavro.parse_schema(written)
        self._read = fastavro.schemaless_reader
        self._framed = framing == "confluent"

    def decode(self, values: Any) -> tuple[Any, list[str | None]]:
        """Return a struct array, and for each row the reason why it is bad, or None."""
        import pyarrow as pa

        rows: list[dict[str, Any] | None] = []
        reasons: list[str | None] = []
        for value in values.to_pylist():
            row, why = (None, None) if value is None else self._decode_value(value)
            rows.append(row)
            reasons.append(why)
        try:
            return pa.array(rows, self.type), reasons
        except (pa.ArrowException, OverflowError, ValueError, TypeError):
            return self._row_by_row(rows, reasons)

    def _row_by_row(
        self, rows: list[dict[str, Any] | None], reasons: list[str | None]
    ) -> tuple[Any, list[str | None]]:
        """Convert row by row, so that only rows that do not fit their columns are bad.

        Some Avro values do not fit an Arrow column: an int of 40 bits, a decimal with too many
        digits.
        """
        import pyarrow as pa

        for place, row in enumerate(rows):
            try:
                pa.array([row], self.type)
            except (pa.ArrowException, OverflowError, ValueError, TypeError) as error:
                rows[place] = None
                reasons[place] = f"does not fit its column: {_first_line(error)}"
        return pa.array(rows, self.type), reasons

    def _decode_value(self, value: bytes) -> tuple[dict[str, Any] | None, str | None]:
        start = 0
        schema_id = ""
        if self._framed:
            if len(value) < PREFIX_BYTES or value[0] != MAGIC:
                return None, "no Confluent prefix: a zero byte and a schema id of four bytes"
            start = PREFIX_BYTES
            schema_id = f" (schema id {int.from_bytes(value[1:5], 'big')})"
        source = io.BytesIO(value)
        source.seek(start)
        try:
            row = self._read(source, self._schema)
        except Exception as error:  # noqa: BLE001 - untrusted bytes: any error makes the row bad
            return None, f"not valid Avro of this schema{schema_id}: {_first_line(error)}"
        if left := len(value) - source.tell():
            return None, f"not valid Avro of this schema{schema_id}: {left} more bytes follow"
        return _without_uuids(row), None


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:120]


def _without_uuids(row: Any) -> Any:
    """Convert UUID objects to text, because Arrow does not accept them."""
    if isinstance(row, dict):
        return {name: _without_uuids(value) for name, value in row.items()}
    if isinstance(row, list):
        return [_without_uuids(value) for value in row]
    return str(row) if isinstance(row, uuid.UUID) else row


class BadAvroSchema(ValueError):
    """An Avro schema that cannot be converted to columns. The message is one line."""


def parse_avro_schema(text: str) -> dict[str, Any]:
    """Parse a schema of Avro records. Raises BadAvroSchema."""
    try:
        schema = json.loads(text)
    except ValueError as error:
        raise BadAvroSchema(f"invalid JSON: {error}") from None
    if not isinstance(schema, dict) or schema.get("type") != "record":
        raise BadAvroSchema('must be a record: {"type": "record", "name": …, "fields": […]}')
    arrow_type(schema)
    return schema


def arrow_type(schema: Any, where: str = "", named: dict[str, Any] | None = None) -> Any:
    """Return the Arrow type for the values of a schema. Raises BadAvroSchema."""
    import pyarrow as pa

    named = {} if named is None else named
    if isinstance(schema, list):
        return arrow_type(_only_type(schema, where), where, named)
    if isinstance(schema, str):
        return _named_or_primitive(schema, where, named)
    kind = schema.get("type")
    if isinstance(kind, dict | list):
        return arrow_type(kind, where, named)
    logical = _logical_type(schema)
    if kind in ("enum", "fixed"):
        named[_short_name(schema)] = logical or (
            pa.string() if kind == "enum" else pa.binary(int(schema["size"]))
        )
        return named[_short_name(schema)]
    if logical is not None:
        return logical
    if kind == "record":
        return _record_type(schema, where, named)
    if kind == "array":
        return pa.list_(arrow_type(schema["items"], f"{where}[]", named))
    if kind == "map":
        return pa.map_(pa.string(), arrow_type(schema["values"], f"{where}{{}}", named))
    return _named_or_primitive(kind, where, named)


def _only_type(union: list[Any], where: str) -> Any:
    kinds = [each for each in union if each != "null"]
    if len(kinds) != 1:
        raise BadAvroSchema(f"{_field(where)}: a union of several types cannot be a column")
    return kinds[0]


def _field(where: str) -> str:
    return f"field {where.removeprefix('.')}" if where else "the value"


def _short_name(schema: dict[str, Any]) -> str:
    return str(schema.get("name", "")).rpartition(".")[2]


def _record_type(schema: dict[str, Any], where: str, named: dict[str, Any]) -> Any:
    import pyarrow as pa

    name = _short_name(schema)
    named[name] = None  # marks a recursive type, which is rejected
    fields = [
        pa.field(field["name"], arrow_type(field["type"], f"{where}.{field['name']}"[:200], named))
        for field in schema.get("fields", [])
    ]
    named[name] = pa.struct(fields)
    return named[name]


def _named_or_primitive(kind: object, where: str, named: dict[str, Any]) -> Any:
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
        raise BadAvroSchema(f"{_field(where)}: {name} contains itself, so it cannot be a column")
    if name not in named:
        raise BadAvroSchema(f"{_field(where)}: unknown type {kind!r}")
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
