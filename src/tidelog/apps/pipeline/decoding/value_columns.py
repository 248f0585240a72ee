"""The columns that values are decoded into, for every format.

`declared_columns` reads a schema without Spark, to find typing errors early. Spark's own parser
decides when the pipeline runs. Invariants: every schema that Spark accepts is accepted by
`declared_columns`; Spark would also reject every schema that it rejects. No decoded column has the
name of one of the record's own columns.
"""

import json
import re
from collections import Counter
from typing import Any

from tidelog.apps.near_names import near
from tidelog.apps.pipeline.decoding import avro, json_values
from tidelog.apps.pipeline.plan import RECORD_COLUMNS, BadPlan, Decode

TYPES = (
    *("boolean", "byte", "tinyint", "short", "smallint", "int", "integer", "long", "bigint"),
    *("float", "real", "double", "decimal", "dec", "numeric", "string", "char", "character"),
    *("varchar", "binary", "date", "time", "timestamp", "timestamp_ltz", "timestamp_ntz"),
    *("interval", "void", "variant", "geometry", "geography", "array", "map", "struct"),
)
KEY = "decode.schema"
_COLUMN = re.compile(r"\s*(`(?:[^`]|``)+`|\w+)(?:\s*:\s*|\s+)(\w+)")
_STRUCT = re.compile(r"\s*struct\s*<(.*)>\s*", re.DOTALL | re.IGNORECASE)
_HIDDEN = re.compile(r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|--[^\n]*|/\*.*?\*/""", re.DOTALL)
"""String literals and comments, which may contain any character."""


def declared_columns(decode: Decode) -> list[str]:
    """Return the names of the columns that a value is decoded into. Raises BadPlan."""
    text = decode.schema.strip()
    is_json = decode.format == "avro" or text.startswith("{")
    names = _columns_in_json(text) if is_json else _columns_in_list(text)
    return [f"{decode.prefix}{name}" for name in names]


def _columns_in_json(text: str) -> list[str]:
    """Return the column names of an Avro schema, or of a Spark schema in JSON."""
    try:
        return [str(field["name"]) for field in json.loads(text)["fields"]]
    except ValueError as error:
        raise BadPlan(KEY, f"invalid JSON: {error}") from None
    except (KeyError, TypeError):
        raise BadPlan(KEY, 'must be a record: {"type": …, "fields": [{"name": …}, …]}') from None


def _columns_in_list(text: str) -> list[str]:
    names = []
    text = _HIDDEN.sub(" ", text)
    if struct := _STRUCT.fullmatch(text):
        text = struct[1]
    for part in _parts(text):
        found = _COLUMN.match(part)
        if found is None:
            part = part.strip()
            what = f"{part!r} is not a column" if part else "a column is missing next to a comma"
            raise BadPlan(KEY, f"{what}; write columns as: id long, name string")
        if found[2].lower() not in TYPES:
            raise BadPlan(KEY, f"{found[1]}: unknown type {found[2]!r}; {near(found[2], TYPES)}")
        names.append(found[1].strip("`").replace("``", "`"))
    return names


def _parts(text: str) -> list[str]:
    """Split at commas that are outside brackets and quoted names."""
    parts, depth, quoted = [""], 0, False
    for letter in text:
        quoted ^= letter == "`"
        if not quoted:
            depth += (letter in "<(") - (letter in ">)")
        if letter == "," and not depth and not quoted:
            parts.append("")
        else:
            parts[-1] += letter
    return parts


def decoded_columns(decode: Decode, taken: tuple[str, ...]) -> list[str]:
    """Return the columns that a value is decoded into. Raises BadPlan, NoFastavro."""
    try:
        if decode.format == "avro":
            avro.require_fastavro()
            names = [field.name for field in avro.arrow_type(avro.parse_avro_schema(decode.schema))]
        else:
            names = list(json_values.schema_of(decode.schema).names)
    except ValueError as error:
        raise BadPlan(KEY, str(error)) from None
    columns = [f"{decode.prefix}{name}" for name in names]
    # Compare in lower case: for Spark, Key and key are the same name.
    alike = Counter(name.lower() for name in columns)
    if twice := [name for name in columns if alike[name.lower()] > 1]:
        raise BadPlan(KEY, f"Spark treats {' and '.join(twice[:2])} as the same name")
    known = {name.lower() for name in taken}
    if twice := [name for name in columns if name.lower() in known]:
        raise BadPlan(
            KEY,
            f"{twice[0]} is a column of the record itself; set decode.prefix to rename it",
        )
    return columns


def with_value_columns(frame: Any, decode: Decode | None, *taken: str) -> Any:
    """Add the columns of the values, and a flag `bad`, to a frame of records. Raises BadPlan."""
    from pyspark.sql import functions as sql

    if decode is None:
        return frame.withColumn("bad", sql.lit(False))
    own = [name for name in RECORD_COLUMNS if name in frame.columns]
    columns = decoded_columns(decode, (*RECORD_COLUMNS, "bad", "decoded", *taken))
    decoder = avro if decode.format == "avro" else json_values
    frame = decoder.with_decoded(frame, decode)
    fields = frame.schema["decoded"].dataType.names
    shown = [
        sql.col("decoded").getField(field).alias(column)
        for field, column in zip(fields, columns, strict=True)
    ]
    return frame.select(*own, "bad", *shown)
