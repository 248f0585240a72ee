"""The keys of a pipeline file: their types, allowed values, and the pipeline kinds that use them.

The page `docs/reference/pipeline-file.md` lists the same keys; a test compares the two.
Invariant: a key that is not listed here is rejected.
"""

from typing import NamedTuple

LAND, AGGREGATE, BACKFILL = KINDS = ("land", "aggregate", "backfill")
STREAMS = (LAND, AGGREGATE)


class Key(NamedTuple):
    """The rules for one key of a section."""

    type: str
    """One of: text, texts, number, flag, date, path."""
    kinds: tuple[str, ...] = KINDS
    """The kinds of pipeline that accept the key."""
    needed: bool = False
    choices: tuple[str, ...] = ()
    least: int = 0
    """The smallest allowed value, for a key of type number."""


SECTIONS: dict[str, dict[str, Key]] = {
    "pipeline": {
        "kind": Key("text", needed=True, choices=KINDS),
        "name": Key("text"),
        "bootstrap": Key("text"),
        "topics": Key("texts"),
        "pattern": Key("text", STREAMS),
        "checkpoint": Key("path"),
        "trigger": Key("text", STREAMS),
    },
    "decode": {
        "format": Key("text", STREAMS, needed=True, choices=("json", "avro")),
        "schema": Key("text", STREAMS),
        "schema_file": Key("path", STREAMS),
        "framing": Key("text", STREAMS, choices=("plain", "confluent")),
        "prefix": Key("text", STREAMS),
        "keep_value": Key("flag", STREAMS),
    },
    "lake": {
        "path": Key("path", (LAND, BACKFILL), needed=True),
        "format": Key("text", (LAND,), choices=("parquet", "delta")),
        "compact_files": Key("number", (LAND,)),
        "file_mb": Key("number", (LAND,), least=1),
        "overlap": Key("text", (LAND,), choices=("fail", "accept")),
    },
    "aggregate": {
        "event_time": Key("text", (AGGREGATE,)),
        "window": Key("text", (AGGREGATE,), needed=True),
        "slide": Key("text", (AGGREGATE,)),
        "watermark": Key("text", (AGGREGATE,), needed=True),
        "group_by": Key("texts", (AGGREGATE,)),
    },
    "output": {
        "table": Key("path", (AGGREGATE,), needed=True),
        "topic": Key("text", (AGGREGATE,)),
        "compact_files": Key("number", (AGGREGATE,)),
        "file_mb": Key("number", (AGGREGATE,), least=1),
    },
    "backfill": {
        "topic": Key("text", (BACKFILL,)),
        "first": Key("date", (BACKFILL,)),
        "last": Key("date", (BACKFILL,)),
        "keep_partitions": Key("flag", (BACKFILL,)),
        "rows_per_batch": Key("number", (BACKFILL,), least=1),
    },
}
FREE: dict[str, tuple[str, ...]] = {
    "source": STREAMS,
    "sink": (AGGREGATE, BACKFILL),
    "aggregate.columns": (AGGREGATE,),
}
"""Sections whose keys the user chooses, with the kinds that accept them.

They hold options that are passed to the source or the sink, and the columns of a result.
"""
NEEDED_SECTIONS: dict[str, tuple[str, ...]] = {
    LAND: ("lake",),
    AGGREGATE: ("aggregate", "aggregate.columns", "output"),
    BACKFILL: ("lake",),
}


def sections_of(kind: str) -> list[str]:
    """Return the sections that a pipeline of this kind may have."""
    fixed = [s for s, keys in SECTIONS.items() if any(kind in k.kinds for k in keys.values())]
    return [*fixed, *(section for section, kinds in FREE.items() if kind in kinds)]


def keys_of(section: str, kind: str) -> dict[str, Key]:
    """Return the keys that a pipeline of this kind may have in a section."""
    return {name: key for name, key in SECTIONS[section].items() if kind in key.kinds}
