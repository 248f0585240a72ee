"""Read a pipeline file in TOML into a plan, and validate it key by key.

The page `docs/reference/pipeline-file.md` lists the same keys; a test compares the two.
Invariants: a key that is not listed here is rejected. An error is one line that names the file, the
line number if known, and the key. Relative paths start at the folder of the file, so the working
directory does not matter.
"""

import os
import re
import tomllib
from collections.abc import Callable, Mapping
from datetime import date, datetime
from typing import Any, NamedTuple, TypeAlias, cast

from tidelog.apps.near_names import near
from tidelog.apps.pipeline.decoding.value_columns import declared_columns
from tidelog.apps.pipeline.lake import layout
from tidelog.apps.pipeline.plan import (
    RECORD_COLUMNS,
    AggregatePlan,
    BackfillPlan,
    BadPlan,
    Decode,
    LandPlan,
    Origin,
    Plan,
)
from tidelog.apps.pipeline.streaming import source_options
from tidelog.apps.spark.client_options import BOOTSTRAP, OptionError
from tidelog.apps.spark.security_options import security_names, spark_options
from tidelog.apps.spark.sink.write_options import write_options
from tidelog.apps.spark.source.source_options import stream_options

Security: TypeAlias = Callable[[str | None], Mapping[str, str]]
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


_TYPES: dict[str, tuple[type, str]] = {
    "text": (str, "a string in quotes"),
    "path": (str, "a path in quotes"),
    "texts": (list, "a list of strings"),
    "number": (int, "a whole number"),
    "flag": (bool, "true or false"),
    "date": (date, "a date: 2026-01-31"),
}


class BadFile(Exception):
    """An invalid pipeline file. The message is one line: file, line, key, what to do."""


def read_plan(
    path: str,
    bootstrap: str | None = None,
    otherwise: Callable[[], str] | None = None,
    *,
    security: Security | None = None,
    to_run: bool = False,
) -> Plan:
    """Return the plan in a file. Raises BadFile.

    `bootstrap` takes precedence over the file. `otherwise` is called if neither `bootstrap` nor the
    file lists brokers. `security` returns the security settings of a client for the brokers that
    are named (None: for the default ones); source and sink use them. With `to_run`, the folder that
    a backfill reads must exist.
    """
    try:
        text = _read_text(path)
    except BadPlan as error:
        raise BadFile(str(error)) from None
    return parse_plan(text, path, bootstrap, otherwise, security=security, to_run=to_run)


def _read_text(path: str, key: str | None = None) -> str:
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        what = f"cannot read {path}: {reason}" if key else f"cannot read the file: {reason}"
        raise BadPlan(key or path, what) from None


def parse_plan(
    text: str,
    path: str,
    bootstrap: str | None = None,
    otherwise: Callable[[], str] | None = None,
    *,
    security: Security | None = None,
    to_run: bool = False,
) -> Plan:
    """Return the plan in the text of a file. Raises BadFile."""
    try:
        found = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        reason = str(error)
        raise BadFile(f"{path}: invalid TOML: {reason[:1].lower()}{reason[1:]}") from None
    try:
        tables = _tables(found)
        kind = _kind(tables)
        _check_sections(tables, kind)
        folder = os.path.dirname(os.path.abspath(path))
        values = {
            section: _values(section, tables.get(section, {}), kind, folder)
            for section in sections_of(kind)
        }
        values["pipeline"].setdefault("name", os.path.splitext(os.path.basename(path))[0])
        if bootstrap is not None:
            values["pipeline"]["bootstrap"] = bootstrap
        if security is not None:
            _add_security(values, security(values["pipeline"].get("bootstrap")))
        if otherwise is not None and "bootstrap" not in values["pipeline"]:
            values["pipeline"]["bootstrap"] = otherwise()
        plan = _plan(kind, values, tables)
        _check_options(plan)
        _check_columns(plan)
        if to_run:
            _check_folders(plan)
        return plan
    except BadPlan as error:
        raise BadFile(f"{path}{_line_of(text, error.key)}: {error}") from None


def _tables(found: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the sections by name; a section inside another section has a dotted name."""
    tables: dict[str, dict[str, Any]] = {}
    for section, content in found.items():
        if not isinstance(content, dict):
            raise BadPlan(section, "this key is outside of a section; move it below [pipeline]")
        inner = f"{section}.columns"
        tables[section] = {k: v for k, v in content.items() if f"{section}.{k}" not in FREE}
        if "columns" in content and inner in FREE:
            if not isinstance(content["columns"], dict):
                raise BadPlan(inner, f'must be a section: [{inner}], then a = "sum(b)"')
            tables[inner] = content["columns"]
    return tables


def _kind(tables: Mapping[str, Mapping[str, Any]]) -> str:
    if "pipeline" not in tables:
        raise BadPlan("pipeline", 'section is missing; it must set the kind, as in kind = "land"')
    kind = tables["pipeline"].get("kind")
    if kind is None:
        raise BadPlan("pipeline.kind", f"key is missing; choose from: {', '.join(KINDS)}")
    if kind not in KINDS:
        raise BadPlan("pipeline.kind", f"unknown kind {kind!r}; {near(str(kind), KINDS)}")
    return str(kind)


def _check_sections(tables: Mapping[str, object], kind: str) -> None:
    known = sections_of(kind)
    for section in tables:
        if section in known:
            continue
        if section in SECTIONS or section in FREE:
            raise BadPlan(
                section, f"a {kind} pipeline cannot have this section; it has {', '.join(known)}"
            )
        raise BadPlan(section, f"unknown section; {near(section, known)}")
    for section in NEEDED_SECTIONS[kind]:
        if section not in tables:
            raise BadPlan(section, f"section is missing; a {kind} pipeline needs it")


def _values(section: str, table: Mapping[str, Any], kind: str, folder: str) -> dict[str, Any]:
    if section in FREE:
        return {key: _option(f"{section}.{key}", value) for key, value in table.items()}
    keys = keys_of(section, kind)
    for name in table:
        if name not in keys:
            raise BadPlan(f"{section}.{name}", f"unknown key; {near(name, keys)}")
    for name, key in keys.items():
        if key.needed and name not in table and table:
            raise BadPlan(f"{section}.{name}", f"key is missing; a {kind} pipeline needs it")
    return {
        name: _value(f"{section}.{name}", value, keys[name], folder)
        for name, value in table.items()
    }


def _option(where: str, value: object) -> str:
    """Return an option as text, which Spark requires."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str | int | float):
        return str(value)
    raise BadPlan(where, "must be text, a number, true or false")


def _value(where: str, value: Any, key: Key, folder: str) -> Any:
    wanted, description = _TYPES[key.type]
    wrong = not isinstance(value, wanted)
    wrong |= key.type == "number" and isinstance(value, bool)
    wrong |= key.type == "date" and isinstance(value, datetime)
    wrong |= key.type == "texts" and not all(isinstance(v, str) for v in cast("list[Any]", value))
    if wrong:
        raise BadPlan(where, f"must be {description}")
    if key.choices and value not in key.choices:
        raise BadPlan(where, f"unknown value {value!r}; {near(value, key.choices)}")
    if key.type == "number" and value < key.least:
        raise BadPlan(where, f"must be {key.least} or more")
    if key.type in ("text", "path") and not value.strip() and where != "decode.prefix":
        raise BadPlan(where, "must not be empty")
    if key.type == "path":
        if "://" in value and where != "decode.schema_file":
            raise BadPlan(where, "must be a path that all Spark workers can access, not a URL")
        return os.path.normpath(os.path.join(folder, os.path.expanduser(value)))
    return tuple(value) if key.type == "texts" else value


def _plan(kind: str, values: dict[str, dict[str, Any]], tables: Mapping[str, object]) -> Plan:
    head = values["pipeline"]
    if "bootstrap" not in head:
        raise BadPlan("pipeline.bootstrap", "key is missing; list the brokers: host:port,host:port")
    shared: dict[str, Any] = {"name": head["name"], "bootstrap": head["bootstrap"]}
    if kind == "backfill":
        lake = values["lake"]["path"]
        shared["checkpoint"] = head.get("checkpoint") or os.path.join(
            lake, "_tidelog", f"backfill-{head['name']}"
        )
        shared.update(path=lake, topics=head.get("topics", ()), sink=values["sink"])
        return BackfillPlan(**shared, **values["backfill"])
    shared["origin"] = Origin(head.get("topics", ()), head.get("pattern"), values["source"])
    shared["decode"] = _decode(values["decode"]) if "decode" in tables else None
    if "trigger" in head:
        shared["trigger"] = head["trigger"]
    if kind == LAND:
        lake = dict(values["lake"])
        if "format" in lake:
            lake["table_format"] = lake.pop("format")
        shared["checkpoint"] = head.get("checkpoint") or os.path.join(
            lake["path"], "_tidelog", "checkpoint"
        )
        return LandPlan(**shared, **lake)
    output = values["output"]
    shared["checkpoint"] = head.get("checkpoint") or os.path.join(
        output["table"], "_tidelog", "checkpoint"
    )
    shared.update(output, sink=values["sink"], columns=values["aggregate.columns"])
    return AggregatePlan(**shared, **values["aggregate"])


def _add_security(values: dict[str, dict[str, Any]], security: Mapping[str, str]) -> None:
    """Give the security settings to source and sink. They must not mix with those of the file."""
    for section in ("source", "sink"):
        if security and section in values:
            for name in security_names(values[section]):
                raise BadPlan(
                    f"{section}.{name}",
                    "--command-config has the security settings; remove this line, or run without"
                    " --command-config",
                )
            values[section].update(spark_options(security))


def _decode(given: dict[str, Any]) -> Decode:
    given = dict(given)
    path = given.pop("schema_file", None)
    if (path is None) == ("schema" not in given):
        raise BadPlan("decode.schema", "set exactly one of schema and schema_file")
    if path is not None:
        given["schema"] = _read_text(path, "decode.schema_file")
    return Decode(**given)


def _check_options(plan: Plan) -> None:
    """Validate the options of the source and the sink before Spark starts."""
    brokers = {BOOTSTRAP: plan.bootstrap}
    if not isinstance(plan, LandPlan):
        _check_section("sink", plan.sink, write_options, {**brokers, **plan.sink})
    if not isinstance(plan, BackfillPlan):
        given = {**brokers, **source_options(plan.origin)}
        _check_section("source", plan.origin.options, stream_options, given)


def _check_section(
    section: str,
    keys: Mapping[str, str],
    parser: Callable[[Mapping[str, str]], object],
    given: Mapping[str, str],
) -> None:
    try:
        parser(given)
    except OptionError as error:
        named = [key for key in keys if key.lower() in str(error).lower()]
        where = f"{section}.{named[0]}" if named else "pipeline"
        raise BadPlan(where, str(error)) from None


def _check_columns(plan: Plan) -> None:
    if isinstance(plan, BackfillPlan):
        return
    columns = [*RECORD_COLUMNS, *(declared_columns(plan.decode) if plan.decode else ())]
    if isinstance(plan, AggregatePlan) and plan.event_time not in columns:
        hint = near(plan.event_time, columns)
        raise BadPlan("aggregate.event_time", f"unknown column {plan.event_time}; {hint}")


def _check_folders(plan: Plan) -> None:
    if isinstance(plan, BackfillPlan) and not os.path.isdir(os.path.join(plan.path, layout.DATA)):
        raise BadPlan("lake.path", f"{plan.path} is not a lake that a land pipeline wrote")


def _line_of(text: str, key: str) -> str:
    """Return the line of a key, or else of its section, as `:12`; empty if not found."""
    section, _, name = key.rpartition(".")
    for free in FREE:
        if key.startswith(f"{free}."):  # option names may contain dots
            section, name = free, key.removeprefix(f"{free}.")
    if key in SECTIONS or key in FREE:
        section, name = key, ""
    here, section_line = "", 0
    for number, line in enumerate(text.splitlines(), 1):
        if header := re.match(r"\s*\[\s*([\w.\s-]+?)\s*\]", line):
            here = header[1]
            section_line = section_line or (number if here == (section or name) else 0)
        elif name and here == section and re.match(rf"\s*[\"']?{re.escape(name)}[\"']?\s*=", line):
            return f":{number}"
    return f":{section_line}" if section_line else ""
