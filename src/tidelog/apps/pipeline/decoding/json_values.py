"""Decode JSON values into columns: Spark parses them, and this module explains the failures.

Invariant: a value is bad if it is not one whole JSON object, or if a field's type differs from the
schema. As in Spark, a missing field is null, and a field that is not in the schema is ignored.
"""

import json
from typing import Any

from tidelog.apps.pipeline.plan import Decode

CORRUPT = "_tidelog_corrupt"
_STRICT = {
    "mode": "PERMISSIVE",
    "columnNameOfCorruptRecord": CORRUPT,
    "allowSingleQuotes": "false",
    "allowNonNumericNumbers": "false",
}
_FRAME = """concat('{"v":', cast(value as string), ',"e":1}')"""
"""Wraps the value, because Spark's parser stops after the first object.

If more text follows that object, the wrapped text is invalid JSON, or the parser never reads `e`.
"""


def schema_of(text: str) -> Any:
    """Return the schema as a Spark type. Raises ValueError with a one-line message."""
    from pyspark.errors import PySparkException
    from pyspark.sql.types import StructType

    try:
        if text.lstrip().startswith("{"):
            return StructType.fromJson(json.loads(text))
        return StructType.fromDDL(text)
    except (PySparkException, ValueError, KeyError, TypeError) as error:
        first = str(error).strip().splitlines()[0]
        raise ValueError(
            f"invalid columns ({first}); write them as: id long, name string"
        ) from None


def with_decoded(frame: Any, decode: Decode) -> Any:
    """Return the frame with a struct `decoded` and a flag `bad`."""
    from pyspark.sql import functions as sql
    from pyspark.sql.types import IntegerType, StringType, StructField, StructType

    framed = StructType(
        [
            StructField("v", schema_of(decode.schema)),
            StructField("e", IntegerType()),
            StructField(CORRUPT, StringType()),
        ]
    )
    parsed = frame.withColumn("parsed", sql.from_json(sql.expr(_FRAME), framed, _STRICT))
    bad = sql.expr(
        f"value is not null and (parsed.{CORRUPT} is not null or parsed.e is null"
        " or parsed.v is null or not is_valid_utf8(cast(value as string)))"
    )
    return parsed.withColumn("bad", bad).withColumn("decoded", sql.col("parsed.v")).drop("parsed")


def reason(value: bytes, decoded: dict[str, Any] | None, types: dict[str, str]) -> str:
    """Return why a value could not be decoded. `decoded` holds the fields that Spark could read."""
    try:
        found = json.loads(value.decode(), parse_constant=_reject_constant)
    except UnicodeDecodeError:
        return "invalid JSON: not UTF-8"
    except ValueError as error:
        return f"invalid JSON: {str(error)[:1].lower()}{str(error)[1:]}"
    except RecursionError:
        return "invalid JSON: nested too deeply"
    if not isinstance(found, dict):
        return f"not a JSON object but {_shortened(found)}"
    wrong = [
        f"{name} is {_shortened(found[name])}, not {kind}"
        for name, kind in types.items()
        if found.get(name) is not None and (decoded or {}).get(name) is None
    ]
    return f"does not fit the schema: {'; '.join(wrong) or 'a field has another type'}"


def _reject_constant(name: str) -> None:
    raise ValueError(f"the constant {name} is not allowed")


def _shortened(value: object) -> str:
    text = json.dumps(value)
    return text if len(text) <= 40 else f"{text[:37]}..."
