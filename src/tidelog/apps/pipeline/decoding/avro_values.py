"""Decode Avro values into columns with fastavro.

Spark's own Avro reader needs a jar that matches the Spark version.

The schema must be the writer's: the schema that Confluent's registry returns for the id at the
start of each value. Invariant: a value is bad unless it is decoded to its last byte.
"""

import io
import uuid
from typing import Any

from tidelog.apps.pipeline.decoding.avro_types import arrow_type, parse_avro_schema
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
        raise NoFastavro("Avro needs fastavro: pip install fastavro") from None
    return fastavro


def with_decoded(frame: Any, decode: Decode) -> Any:
    """Return the frame with a struct `decoded` and a flag `bad`."""
    import pyarrow as pa
    from pyspark.sql import functions as sql
    from pyspark.sql.pandas.types import from_arrow_schema

    kind = AvroDecoder(decode.schema, decode.framing).type
    answer = pa.struct([pa.field("decoded", kind), pa.field("bad", pa.bool_())])
    schema, framing = decode.schema, decode.framing

    @sql.arrow_udf(from_arrow_schema(pa.schema(list(answer))))
    def decoded(values: pa.Array) -> pa.Array:  # Spark uses these type hints
        rows, reasons = AvroDecoder(schema, framing).decode(values)
        bad = pa.array([why is not None for why in reasons])
        return pa.StructArray.from_arrays([rows, bad], fields=list(answer))

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
            row, why = (None, None) if value is None else self._one(value)
            rows.append(row)
            reasons.append(why)
        try:
            return pa.array(rows, self.type), reasons
        except (pa.ArrowException, OverflowError, ValueError, TypeError):
            return self._one_by_one(rows, reasons)

    def _one_by_one(
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

    def _one(self, value: bytes) -> tuple[dict[str, Any] | None, str | None]:
        start = 0
        written_as = ""
        if self._framed:
            if len(value) < PREFIX_BYTES or value[0] != MAGIC:
                return None, "not framed as Confluent does: no zero byte and schema id at the start"
            start = PREFIX_BYTES
            written_as = f" (schema id {int.from_bytes(value[1:5], 'big')})"
        source = io.BytesIO(value)
        source.seek(start)
        try:
            row = self._read(source, self._schema)
        except Exception as error:  # noqa: BLE001 - untrusted bytes: any error makes the row bad
            return None, f"not Avro of this schema{written_as}: {_first_line(error)}"
        if left := len(value) - source.tell():
            return None, f"not Avro of this schema{written_as}: {left} bytes are left over"
        return _plain(row), None


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:120]


def _plain(row: Any) -> Any:
    """Convert UUID objects to text, because Arrow does not accept them."""
    if isinstance(row, dict):
        return {name: _plain(value) for name, value in row.items()}
    if isinstance(row, list):
        return [_plain(value) for value in row]
    return str(row) if isinstance(row, uuid.UUID) else row
