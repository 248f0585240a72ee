"""Decode values of any format into columns.

Invariant: no decoded column has the name of one of the record's own columns.
"""

from collections import Counter
from typing import Any

from tidelog.apps.pipeline.decoding import avro_values, json_values
from tidelog.apps.pipeline.decoding.avro_types import BadAvroSchema, arrow_type, parse_avro_schema
from tidelog.apps.pipeline.plan import RECORD_COLUMNS, BadPlan, Decode


def decoded_columns(decode: Decode, taken: tuple[str, ...]) -> list[str]:
    """Return the columns that a value is decoded into. Raises BadPlan, NoFastavro."""
    try:
        if decode.format == "avro":
            avro_values.require_fastavro()
            names = [field.name for field in arrow_type(parse_avro_schema(decode.schema))]
        else:
            names = list(json_values.schema_of(decode.schema).names)
    except (BadAvroSchema, ValueError) as error:
        raise BadPlan("decode.schema", str(error)) from None
    columns = [f"{decode.prefix}{name}" for name in names]
    # Compare in lower case: for Spark, Key and key are the same name.
    alike = Counter(name.lower() for name in columns)
    if twice := [name for name in columns if alike[name.lower()] > 1]:
        raise BadPlan("decode.schema", f"{' and '.join(twice[:2])} are the same name to Spark")
    known = {name.lower() for name in taken}
    if twice := [name for name in columns if name.lower() in known]:
        raise BadPlan(
            "decode.schema",
            f"{twice[0]} is a column of the record itself; set prefix to tell them apart",
        )
    return columns


def with_value_columns(frame: Any, decode: Decode | None, *taken: str) -> Any:
    """Add the columns of the values, and a flag `bad`, to a frame of records. Raises BadPlan."""
    from pyspark.sql import functions as sql

    if decode is None:
        return frame.withColumn("bad", sql.lit(False))
    own = [name for name in RECORD_COLUMNS if name in frame.columns]
    columns = decoded_columns(decode, (*RECORD_COLUMNS, "bad", "decoded", *taken))
    decoder = avro_values if decode.format == "avro" else json_values
    frame = decoder.with_decoded(frame, decode)
    fields = frame.schema["decoded"].dataType.names
    shown = [
        sql.col("decoded").getField(field).alias(column)
        for field, column in zip(fields, columns, strict=True)
    ]
    return frame.select(*own, "bad", *shown)
