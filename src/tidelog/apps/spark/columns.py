"""The columns of a topic's row: their names, and their types in Spark and in Arrow.

These are the columns of Spark's Kafka source, and `leader_epoch`. A schema may list fewer columns,
in any order; only the listed columns are decoded.

Invariant: the Arrow schema has the same types and nullability as Spark's schema; Spark rejects any
other schema. Spark's type holds times up to 290,000 years from 1970; a time beyond that limit is
returned as the limit.
"""

from typing import Any

import pyarrow as pa

KEY = "key"
VALUE = "value"
TOPIC = "topic"
PARTITION = "partition"
OFFSET = "offset"
TIMESTAMP = "timestamp"
TIMESTAMP_TYPE = "timestampType"
LEADER_EPOCH = "leader_epoch"
HEADERS = "headers"

HEADER_FIELDS = (pa.field("key", pa.string()), pa.field("value", pa.binary()))
ARROW_TYPES: dict[str, Any] = {
    KEY: pa.binary(),
    VALUE: pa.binary(),
    TOPIC: pa.string(),
    PARTITION: pa.int32(),
    OFFSET: pa.int64(),
    TIMESTAMP: pa.timestamp("us", tz="UTC"),
    TIMESTAMP_TYPE: pa.int32(),
    LEADER_EPOCH: pa.int32(),
    HEADERS: pa.list_(pa.field("element", pa.struct(HEADER_FIELDS))),
}
"""The columns and their Arrow types, in the order of a row."""
MAY_BE_NULL = (KEY, VALUE, HEADERS)


class WrongSchema(ValueError):
    """A topic can't be read with this schema. The message is one line for users."""


def topic_schema(include_headers: bool) -> Any:
    """Return Spark's StructType of a row; all columns are nullable, as in Spark's Kafka source."""
    from pyspark.sql.types import StructField, StructType

    types = _spark_types()
    names = [name for name in types if include_headers or name != HEADERS]
    return StructType([StructField(name, types[name]) for name in names])


def check_schema(schema: Any, include_headers: bool = False) -> Any:
    """Return the Arrow schema for the StructType of a reader. Raises WrongSchema."""
    types = _spark_types()
    known = ", ".join(name for name in types if include_headers or name != HEADERS)
    if not schema.fields:
        raise WrongSchema(f"the schema has no columns; name some of {known}")
    fields = []
    for wanted in schema.fields:
        expected = types.get(wanted.name)
        if expected is None:
            raise WrongSchema(f"a topic has no column {wanted.name!r}; it has {known}")
        if wanted.dataType != expected:
            raise WrongSchema(
                f"column {wanted.name!r} is {expected.simpleString()}, not"
                f" {wanted.dataType.simpleString()}; read it with its own type, then cast it"
            )
        if not wanted.nullable and wanted.name in MAY_BE_NULL:
            raise WrongSchema(f"column {wanted.name!r} may be null; remove NOT NULL")
        fields.append(pa.field(wanted.name, ARROW_TYPES[wanted.name], nullable=wanted.nullable))
    if len({field.name for field in fields}) < len(fields):
        raise WrongSchema(f"the schema lists a column twice: {', '.join(schema.fieldNames())}")
    return pa.schema(fields)


def arrow_schema(include_headers: bool = False) -> Any:
    """Return the Arrow schema of a whole row, for readers without Spark."""
    return pa.schema(
        [
            pa.field(name, kind)
            for name, kind in ARROW_TYPES.items()
            if include_headers or name != HEADERS
        ]
    )


def constant_columns(schema: Any, topic: str, partition: int, rows: int) -> dict[str, Any]:
    """Return the columns of `schema` that have the same value in every row."""
    made: dict[str, Any] = {}
    if TOPIC in schema.names:
        made[TOPIC] = pa.repeat(pa.scalar(topic, pa.string()), rows)
    if PARTITION in schema.names:
        made[PARTITION] = pa.repeat(pa.scalar(partition, pa.int32()), rows)
    return made


def _spark_types() -> dict[str, Any]:
    from pyspark.sql import types

    header = types.StructType(
        [
            types.StructField("key", types.StringType()),
            types.StructField("value", types.BinaryType()),
        ]
    )
    return {
        KEY: types.BinaryType(),
        VALUE: types.BinaryType(),
        TOPIC: types.StringType(),
        PARTITION: types.IntegerType(),
        OFFSET: types.LongType(),
        TIMESTAMP: types.TimestampType(),
        TIMESTAMP_TYPE: types.IntegerType(),
        LEADER_EPOCH: types.IntegerType(),
        HEADERS: types.ArrayType(header),
    }
