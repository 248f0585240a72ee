"""Read the columns that a schema declares without Spark, to find typing errors early.

Spark's own parser decides when the pipeline runs. Invariant: every schema that Spark accepts is
accepted here; Spark would also reject every schema that is rejected here.
"""

import json
import re

from tidelog.apps.near_names import near
from tidelog.apps.pipeline.plan import BadPlan, Decode

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
    names = _of_json(text) if is_json else _of_list(text)
    return [f"{decode.prefix}{name}" for name in names]


def _of_json(text: str) -> list[str]:
    """Return the column names of an Avro schema, or of a Spark schema in JSON."""
    try:
        return [str(field["name"]) for field in json.loads(text)["fields"]]
    except ValueError as error:
        raise BadPlan(KEY, f"is not JSON: {error}") from None
    except (KeyError, TypeError):
        raise BadPlan(KEY, 'must be a record: {"type": …, "fields": [{"name": …}, …]}') from None


def _of_list(text: str) -> list[str]:
    names = []
    text = _HIDDEN.sub(" ", text)
    if whole := _STRUCT.fullmatch(text):
        text = whole[1]
    for part in _parts(text):
        found = _COLUMN.match(part)
        if found is None:
            told = f"{part.strip()!r} is no column" if part.strip() else "there is a comma too many"
            raise BadPlan(KEY, f"{told}; write: id long, name string")
        if found[2].lower() not in TYPES:
            raise BadPlan(KEY, f"{found[1]}: no type {found[2]!r}; {near(found[2], TYPES)}")
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
