"""Plans: the parameters of a pipeline, with one class for each kind.

The functions `land`, `aggregate` and `backfill` take a plan. A plan comes from a TOML file
(`pipeline_file`), or a notebook constructs it directly.

Invariant: a plan object is valid in itself. Errors that only brokers, files or Spark can detect
appear at run time.
"""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date
from typing import Literal, TypeAlias

AVAILABLE_NOW = "available-now"
RECORD_COLUMNS = (
    "key",
    "value",
    "topic",
    "partition",
    "offset",
    "timestamp",
    "timestampType",
    "leader_epoch",
    "headers",
)
"""The columns of the record itself, without those decoded from its value."""
DATE = "date"
"""The column with the UTC day of a record's timestamp; each day is a folder of the lake."""
_INTERVAL = re.compile(r"\s*(\d+)\s*(millisecond|second|minute|hour|day|week)s?\s*", re.IGNORECASE)
_UNIT_MS = {
    "millisecond": 1,
    "second": 1_000,
    "minute": 60_000,
    "hour": 3_600_000,
    "day": 86_400_000,
    "week": 604_800_000,
}
_NAME = re.compile(r"[A-Za-z0-9._-]{1,200}")


class BadPlan(ValueError):
    """An invalid plan. The message is one line; `key` is the invalid key, as in the file."""

    def __init__(self, key: str, what: str) -> None:
        super().__init__(f"{key}: {what}")
        self.key = key


def interval_ms(text: str) -> int | None:
    """Return the milliseconds of an interval such as `10 minutes`; None if it is invalid."""
    found = _INTERVAL.fullmatch(text)
    return int(found[1]) * _UNIT_MS[found[2].lower()] if found else None


@dataclass(frozen=True)
class Decode:
    """How to decode a record's value into columns."""

    format: Literal["json", "avro"]
    schema: str
    framing: Literal["plain", "confluent"] = "plain"
    prefix: str = ""
    keep_value: bool = True

    def __post_init__(self) -> None:
        if self.framing == "confluent" and self.format != "avro":
            raise BadPlan("decode.framing", 'confluent framing needs format = "avro"')
        if not self.schema.strip():
            raise BadPlan(
                "decode.schema", "must not be empty; write columns as: id long, name string"
            )


@dataclass(frozen=True)
class Origin:
    """The topics that a stream reads, and the options of the source."""

    topics: tuple[str, ...] = ()
    pattern: str | None = None
    options: Mapping[str, str] = field(default_factory=dict, repr=False)  # may have passwords

    def __post_init__(self) -> None:
        if bool(self.topics) == (self.pattern is not None):
            raise BadPlan("pipeline.topics", "set exactly one of topics and pattern")


@dataclass(frozen=True)
class LandPlan:
    """A plan to land topics in a lake of Parquet files or Delta tables."""

    name: str
    bootstrap: str
    origin: Origin
    checkpoint: str
    path: str
    trigger: str = AVAILABLE_NOW
    decode: Decode | None = None
    table_format: Literal["parquet", "delta"] = "parquet"
    compact_files: int = 32
    file_mb: int = 128
    overlap: Literal["fail", "accept"] = "fail"
    kind: Literal["land"] = "land"

    def __post_init__(self) -> None:
        _check_name(self.name)
        _check_trigger(self.trigger)
        _make_absolute(self, "checkpoint", "path")


@dataclass(frozen=True)
class AggregatePlan:
    """A plan to aggregate topics by event-time windows, into a table and optionally a topic."""

    name: str
    bootstrap: str
    origin: Origin
    checkpoint: str
    window: str
    watermark: str
    columns: Mapping[str, str]
    table: str
    topic: str | None = None
    event_time: str = "timestamp"
    slide: str | None = None
    group_by: tuple[str, ...] = ()
    sink: Mapping[str, str] = field(default_factory=dict, repr=False)  # may have passwords
    trigger: str = AVAILABLE_NOW
    decode: Decode | None = None
    compact_files: int = 32
    file_mb: int = 128
    kind: Literal["aggregate"] = "aggregate"

    def __post_init__(self) -> None:
        _check_name(self.name)
        _check_trigger(self.trigger)
        for key in ("window", "watermark", "slide"):
            length = getattr(self, key)
            if length is not None and interval_ms(length) is None:
                raise BadPlan(
                    f"aggregate.{key}",
                    f"{length!r} is not a length of time; use a value such as 5 minutes",
                )
        if not interval_ms(self.window):
            raise BadPlan(
                "aggregate.window", "must be longer than 0; use a value such as 5 minutes"
            )
        if self.slide is not None and not 0 < self.slide_ms <= self.window_ms:
            raise BadPlan(
                "aggregate.slide", "must be longer than 0 and at most as long as the window"
            )
        if not self.columns:
            raise BadPlan(
                "aggregate.columns", 'must define at least one column, such as rows = "count(*)"'
            )
        taken = {"window_start", "window_end", *self.group_by}
        if twice := sorted(taken & self.columns.keys()):
            raise BadPlan(
                "aggregate.columns",
                f"{twice[0]} is also a column of the window or of group_by; choose another name",
            )
        _make_absolute(self, "checkpoint", "table")

    @property
    def window_ms(self) -> int:
        """The length of a window."""
        return interval_ms(self.window) or 0

    @property
    def slide_ms(self) -> int:
        """The time from the start of one window to the start of the next."""
        return interval_ms(self.slide) or 0 if self.slide else self.window_ms


@dataclass(frozen=True)
class BackfillPlan:
    """A plan to send the rows of a lake back to a topic."""

    name: str
    bootstrap: str
    path: str
    checkpoint: str
    topics: tuple[str, ...] = ()
    topic: str | None = None
    first: date | None = None
    last: date | None = None
    keep_partitions: bool = True
    rows_per_batch: int = 500_000
    sink: Mapping[str, str] = field(default_factory=dict, repr=False)  # may have passwords
    kind: Literal["backfill"] = "backfill"

    def __post_init__(self) -> None:
        _check_name(self.name)
        if self.first is not None and self.last is not None and self.first > self.last:
            raise BadPlan("backfill.first", f"{self.first} is after backfill.last, {self.last}")
        _make_absolute(self, "checkpoint", "path")


Plan: TypeAlias = LandPlan | AggregatePlan | BackfillPlan


def _make_absolute(plan: Plan, *keys: str) -> None:
    """Make paths absolute, because Spark's processes run in other working directories."""
    for key in keys:
        path = getattr(plan, key)
        if "://" not in path:
            object.__setattr__(plan, key, os.path.abspath(path))


def _check_name(name: str) -> None:
    """Validate a pipeline's name, which is used in file names and as a producer name."""
    if not _NAME.fullmatch(name):
        raise BadPlan(
            "pipeline.name", f"{name!r} is invalid; use 1 to 200 letters, digits, '.', '_', '-'"
        )


def _check_trigger(trigger: str) -> None:
    """Validate a trigger, which sets when micro-batches start."""
    if trigger != AVAILABLE_NOW and interval_ms(trigger) is None:
        raise BadPlan(
            "pipeline.trigger",
            f"{trigger!r} is invalid; use {AVAILABLE_NOW}, or an interval such as 10 seconds",
        )
