"""The columns that a schema declares, read without Spark: enough to find a slip of the pen.

Spark's own parser decides when the pipeline runs. Always true: what Spark takes is taken here;
what is refused here, Spark would refuse too.
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
"""Comments, which may hold anything."""


def declared_columns(decode: Decode) -> list[str]:
    """The names of the columns that a value becomes. Raises BadPlan."""
    text = decode.schema.strip()
    is_json = decode.format == "avro" or text.startswith("{")
    names = _of_json(text) if is_json else _of_list(text)
    return [f"{decode.prefix}{name}" for name in names]


def _of_json(text: str) -> list[str]:
    """Avro, or Spark's own schema as JSON."""
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
    """Cut at commas that stand in no brackets and no quoted name."""
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
