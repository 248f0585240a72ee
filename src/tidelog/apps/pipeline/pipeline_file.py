"""Read a pipeline file in TOML into a plan, and validate it key by key.

Invariant: an error is one line that names the file, the line number if known, and the key.
Relative paths start at the folder of the file, so the working directory does not matter.
"""

import os
import re
import tomllib
from collections.abc import Callable, Mapping
from datetime import date, datetime
from typing import Any, cast

from tidelog.apps.near_names import near
from tidelog.apps.pipeline.decoding.declared_columns import declared_columns
from tidelog.apps.pipeline.file_keys import (
    FREE,
    KINDS,
    LAND,
    NEEDED_SECTIONS,
    SECTIONS,
    Key,
    keys_of,
    sections_of,
)
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
from tidelog.apps.spark.sink.write_options import write_options
from tidelog.apps.spark.source.source_options import stream_options

_TYPES: dict[str, tuple[type, str]] = {
    "text": (str, "text in quotes"),
    "path": (str, "a path in quotes"),
    "texts": (list, "a list of texts"),
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
    to_run: bool = False,
) -> Plan:
    """Return the plan in a file. Raises BadFile.

    `bootstrap` takes precedence over the file. `otherwise` is called if neither names brokers.
    With `to_run`, folders that the pipeline reads must exist.
    """
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "is not UTF-8"
        raise BadFile(f"{path}: can't be read: {reason}") from None
    return parse_plan(text, path, bootstrap, otherwise, to_run=to_run)


def parse_plan(
    text: str,
    path: str,
    bootstrap: str | None = None,
    otherwise: Callable[[], str] | None = None,
    *,
    to_run: bool = False,
) -> Plan:
    """Return the plan in the text of a file. Raises BadFile."""
    try:
        found = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise BadFile(f"{path}: is not TOML: {_lower(str(error))}") from None
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
        elif otherwise is not None and "bootstrap" not in values["pipeline"]:
            values["pipeline"]["bootstrap"] = otherwise()
        plan = _plan(kind, values, tables)
        _check_options(plan)
        _check_columns(plan)
        if to_run:
            _check_folders(plan)
        return plan
    except BadPlan as error:
        raise BadFile(f"{path}{_line_of(text, error.key)}: {error}") from None


def _lower(text: str) -> str:
    return text[:1].lower() + text[1:]


def _tables(found: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the sections by name; a section inside another section has a dotted name."""
    tables: dict[str, dict[str, Any]] = {}
    for section, content in found.items():
        if not isinstance(content, dict):
            raise BadPlan(section, "stands outside a section; put it under [pipeline]")
        inner = f"{section}.columns"
        tables[section] = {k: v for k, v in content.items() if f"{section}.{k}" not in FREE}
        if "columns" in content and inner in FREE:
            if not isinstance(content["columns"], dict):
                raise BadPlan(inner, 'must be a section: [aggregate.columns], then a = "sum(b)"')
            tables[inner] = content["columns"]
    return tables


def _kind(tables: Mapping[str, Mapping[str, Any]]) -> str:
    if "pipeline" not in tables:
        raise BadPlan("pipeline", 'there is no such section; begin with [pipeline] kind = "land"')
    kind = tables["pipeline"].get("kind")
    if kind is None:
        raise BadPlan("pipeline.kind", f"is missing; choose from: {', '.join(KINDS)}")
    if kind not in KINDS:
        raise BadPlan("pipeline.kind", f"no kind {kind!r}; {near(str(kind), KINDS)}")
    return str(kind)


def _check_sections(tables: Mapping[str, object], kind: str) -> None:
    known = sections_of(kind)
    for section in tables:
        if section in known:
            continue
        if section in SECTIONS or section in FREE:
            raise BadPlan(section, f"is no section of kind = {kind!r}; it has {', '.join(known)}")
        raise BadPlan(section, f"no such section; {near(section, known)}")
    for section in NEEDED_SECTIONS[kind]:
        if section not in tables:
            raise BadPlan(section, f"the section is missing; kind = {kind!r} needs it")


def _values(section: str, table: Mapping[str, Any], kind: str, folder: str) -> dict[str, Any]:
    if section in FREE:
        return {key: _option(f"{section}.{key}", value) for key, value in table.items()}
    keys = keys_of(section, kind)
    for name in table:
        if name not in keys:
            raise BadPlan(f"{section}.{name}", f"no such key; {near(name, keys)}")
    for name, key in keys.items():
        if key.needed and name not in table and table:
            raise BadPlan(f"{section}.{name}", "is missing")
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
    wanted, words = _TYPES[key.type]
    wrong = not isinstance(value, wanted)
    wrong |= key.type == "number" and isinstance(value, bool)
    wrong |= key.type == "date" and isinstance(value, datetime)
    wrong |= key.type == "texts" and not all(isinstance(v, str) for v in cast("list[Any]", value))
    if wrong:
        raise BadPlan(where, f"must be {words}")
    if key.choices and value not in key.choices:
        raise BadPlan(where, f"no {value!r} here; {near(value, key.choices)}")
    if key.type == "number" and value < key.least:
        raise BadPlan(where, f"must be {key.least} or more")
    if key.type in ("text", "path") and not value.strip() and where != "decode.prefix":
        raise BadPlan(where, "is empty")
    if key.type == "path":
        if "://" in value and where != "decode.schema_file":
            raise BadPlan(where, "must be a folder that all workers see, not a URL")
        return os.path.normpath(os.path.join(folder, os.path.expanduser(value)))
    return tuple(value) if key.type == "texts" else value


def _plan(kind: str, values: dict[str, dict[str, Any]], tables: Mapping[str, object]) -> Plan:
    head = values["pipeline"]
    if "bootstrap" not in head:
        raise BadPlan("pipeline.bootstrap", "is missing; name the brokers: host:port,host:port")
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


def _decode(given: dict[str, Any]) -> Decode:
    given = dict(given)
    path = given.pop("schema_file", None)
    if (path is None) == ("schema" not in given):
        raise BadPlan("decode.schema", "give either schema or schema_file")
    if path is not None:
        try:
            with open(path, encoding="utf-8") as file:
                given["schema"] = file.read()
        except (OSError, UnicodeDecodeError) as error:
            raise BadPlan("decode.schema_file", f"{path} can't be read: {error}") from None
    return Decode(**given)


def _check_options(plan: Plan) -> None:
    """Validate the options of the source and the sink before Spark starts."""
    brokers = {BOOTSTRAP: plan.bootstrap}
    if not isinstance(plan, LandPlan):
        _ask("sink", plan.sink, write_options, {**brokers, **plan.sink})
    if not isinstance(plan, BackfillPlan):
        given = {**brokers, **source_options(plan.origin)}
        _ask("source", plan.origin.options, stream_options, given)


def _ask(
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
        near_by = near(plan.event_time, columns)
        raise BadPlan("aggregate.event_time", f"there is no column {plan.event_time}; {near_by}")


def _check_folders(plan: Plan) -> None:
    if isinstance(plan, BackfillPlan) and not os.path.isdir(os.path.join(plan.path, layout.DATA)):
        raise BadPlan("lake.path", f"there is no lake at {plan.path}; name one that land wrote")


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
