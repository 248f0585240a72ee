"""Which columns of a DataFrame the sink takes: those of Spark's Kafka sink, and `timestamp`.

Columns of other names are left alone, as Spark's connector does, so what was read from a topic
can be written as it is. Always true: a `SinkColumns` was checked, so every column in it has a
type that the encoder knows.
"""

from typing import Any, NamedTuple

from tidelog.apps.spark.sink.sink_errors import WrongColumns

HEADERS_TYPE = "array<struct<key:string,value:binary>>"
_TEXT = ("string", "binary")
_TYPES = {
    "value": _TEXT,
    "key": _TEXT,
    "headers": (HEADERS_TYPE,),
    "topic": ("string",),
    "partition": ("int",),
    "timestamp": ("timestamp", "timestamp_ntz"),
}


class SinkColumns(NamedTuple):
    """Places of the columns in a row; None: it has no such column."""

    value: int
    key: int | None = None
    headers: int | None = None
    topic: int | None = None
    partition: int | None = None
    timestamp: int | None = None


def sink_columns(schema: Any, topic: str | None) -> SinkColumns:
    """From a StructType; `topic` is the option. Raises WrongColumns."""
    places: dict[str, int] = {}
    for place, column in enumerate(schema.fields):
        wanted = _TYPES.get(column.name)
        if wanted is None:
            continue
        if column.name in places:
            raise WrongColumns(f"there are two columns {column.name!r}; keep one")
        found = column.dataType.simpleString()
        if _kind(found) not in wanted:
            raise WrongColumns(f"column {column.name!r} is {found}; cast it to {_either(wanted)}")
        places[column.name] = place
    if "value" not in places:
        names = ", ".join(column.name for column in schema.fields) or "none"
        raise WrongColumns(f"there is no column 'value' (there are: {names}); select one AS value")
    if topic is not None:
        places.pop("topic", None)
    elif "topic" not in places:
        raise WrongColumns("no topic: set the option 'topic', or select a column AS topic")
    return SinkColumns(**places)


def _kind(found: str) -> str:
    """A type's name without what Arrow does not see: the length or the collation of text."""
    plain = found.split(" collate")[0]
    return "string" if plain.startswith(("varchar(", "char(")) else plain


def _either(types: tuple[str, ...]) -> str:
    return " or ".join(types)
