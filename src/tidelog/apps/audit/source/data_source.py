"""`spark.read.format("tidelog-log")`: log directories on disk as a DataFrame.

It needs no broker and does not disturb a running one: it opens files only for reading. Workers
must see the folders under the same paths as the driver.
"""

import gc
import json
import os
from collections.abc import Iterator
from typing import NamedTuple

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from tidelog.apps.audit.folders.discovery import NothingThere
from tidelog.apps.audit.source.batch_rows import batch_rows
from tidelog.apps.audit.source.file_rows import scan_rows, small_rows
from tidelog.apps.audit.source.planning import (
    READ_COMMITTED,
    READ_UNCOMMITTED,
    SPLIT_BYTES,
    Planned,
    RecordView,
    Unit,
    pack,
    plan,
)
from tidelog.apps.audit.source.schemas import LEVELS

_frozen = False


class WrongOption(ValueError):
    """An option is invalid; the text is one line for users."""


class LogOptions(NamedTuple):
    """The parsed options of a query."""

    planned: Planned
    level: str = "record"
    view: RecordView = RecordView()
    deep: bool = False
    """Whether level `scan` also decodes the records of each batch."""


def parse_options(options: dict[str, str]) -> LogOptions:
    """Parse Spark's options. Raises WrongOption.

    Spark passes one path as `path`, several paths as a JSON list in `paths`.
    """
    level = _one_of(options, "level", tuple(LEVELS))
    view = RecordView(
        _one_of(options, "isolationLevel", ("", READ_UNCOMMITTED, READ_COMMITTED)),
        _one_of(options, "includeDeleted", ("false", "true")) == "true",
        _one_of(options, "onDamage", ("fail", "skip")) == "skip",
    )
    try:
        split = int(options.get("splitbytes", SPLIT_BYTES))
    except ValueError:
        raise WrongOption(f"splitBytes {options['splitbytes']!r} is not a number") from None
    only = frozenset(json.loads(options.get("only", "[]")))
    windows = {
        folder: tuple(numbers)
        for folder, numbers in json.loads(options.get("windows", "{}")).items()
    }
    if view.skip_damage and not windows:
        split = 0  # a split at a wrong place would be skipped as damage and go unnoticed
    folders = frozenset(json.loads(options.get("folders", "[]")))
    planned = Planned(_paths(options), split, only, folders, windows)
    return LogOptions(planned, level, view, _one_of(options, "deep", ("false", "true")) == "true")


def _one_of(options: dict[str, str], name: str, allowed: tuple[str, ...]) -> str:
    """Return the value of an option; the first allowed value is the default."""
    value = options.get(name.lower(), allowed[0])
    if value.lower() not in allowed:
        choice = ", ".join(each for each in allowed if each)
        raise WrongOption(f"{name} must be one of {choice}; it is {value!r}")
    return value.lower()


def _paths(options: dict[str, str]) -> tuple[str, ...]:
    several = options.get("paths")
    if several:
        try:
            listed = json.loads(several)
        except ValueError:
            listed = several.split(",")
        paths = tuple(str(each) for each in listed)
    else:
        paths = (options["path"],) if options.get("path") else ()
    if not paths:
        raise WrongOption(
            "path is missing: give load() a log directory, or set paths to a JSON list"
        )
    return tuple(os.path.abspath(path.removeprefix("file://")) for path in paths)


class UnitsPartition(InputPartition):
    """The units that one task reads."""

    def __init__(self, units: list[Unit]) -> None:
        super().__init__(len(units))
        self.units = units


class LogReader(DataSourceReader):
    """Plans units on the driver and reads them in Spark's workers."""

    def __init__(self, options: LogOptions, schema: pa.Schema) -> None:
        self._options = options
        self._schema = schema

    def partitions(self) -> list[UnitsPartition]:
        try:
            units = plan(self._options.planned)
        except NothingThere as error:
            raise WrongOption(str(error)) from None
        tasks = pack(units, self._options.planned.split_bytes or SPLIT_BYTES)
        return [UnitsPartition(task) for task in tasks]

    def read(self, partition: UnitsPartition) -> Iterator[pa.RecordBatch]:
        _settle_worker()
        options = self._options
        units, schema = partition.units, self._schema
        if options.level == "record":
            from tidelog.apps.audit.source.record_rows import record_rows

            return record_rows(units, schema, options.view)
        if options.level == "scan":
            return scan_rows(units, schema, options.deep)
        if options.level == "batch":
            return batch_rows(units, schema, options.view.skip_damage, options.planned.windows)
        return small_rows(units, schema, options.level)


def _settle_worker() -> None:
    """Exclude imported modules from the garbage collection that Spark runs after each task."""
    global _frozen
    if not _frozen:
        gc.freeze()
        _frozen = True
