"""What one pass over a stretch of a segment leaves behind: small, whatever the stretch holds.

It travels as JSON from Spark's tasks to the driver, where the summaries of a log are put
together in order. Digests of windows and the state of producers stay in Spark's columns:
there can be many.
"""

import json
from typing import Any, NamedTuple

LIST_MAX = 2000
"""Entries of one list; a stretch that has more is in such a state that no list helps."""


class Run(NamedTuple):
    """Batches whose offsets follow on one another without a gap."""

    first: int
    last: int
    position: int
    end: int
    batches: int
    file: str = ""
    """Set where summaries are put together."""


class EpochRun(NamedTuple):
    """Batches of one leader epoch that stand together."""

    epoch: int
    first: int
    last: int
    position: int
    batches: int
    file: str = ""


class Hole(NamedTuple):
    """Bytes that are no batches."""

    position: int
    end: int
    reason: str
    zeros: bool
    old_format: int
    """0 or 1 where sound records of that format stand, else -1."""
    torn: bool
    """The beginning of a batch that goes on beyond the end of the file."""
    file: str = ""


class Remark(NamedTuple):
    """Something wrong that a single stretch shows by itself."""

    kind: str
    file: str
    position: int
    first: int
    last: int
    text: str


class SequenceBreak(NamedTuple):
    """A producer's batch whose sequence number does not follow on the one before."""

    producer_id: int
    epoch: int
    sequence: int
    epoch_before: int
    sequence_before: int
    offset_before: int
    offset: int
    last_offset: int
    position: int
    waited_ms: int
    file: str = ""


class Aborted(NamedTuple):
    """A transaction that an abort marker ends."""

    producer_id: int
    first: int
    """Its first offset in the stretch; -1: only the marker is there."""
    marker: int
    stable: int
    """The last stable offset at the marker, of transactions that began in the stretch."""
    earlier: bool
    """It may have begun before the stretch."""


class StretchSummary(NamedTuple):
    """Of `[start, end)` of a segment's file."""

    start: int
    end: int
    """Where the walk ended."""
    size: int
    """Of the file, as it was when it was read."""
    batches: int = 0
    records: int = 0
    first: int = -1
    last: int = -1
    """Highest offset."""
    max_timestamp: int = -1
    thinned: int = 0
    """Batches with fewer records than offsets: a cleaner was here."""
    runs: list[Run] = []  # noqa: RUF012 - a default of a NamedTuple, never changed
    epochs: list[EpochRun] = []  # noqa: RUF012
    holes: list[Hole] = []  # noqa: RUF012
    remarks: list[Remark] = []  # noqa: RUF012
    breaks: list[SequenceBreak] = []  # noqa: RUF012
    aborted: list[Aborted] = []  # noqa: RUF012
    bad: list[tuple[int, int]] = []  # noqa: RUF012
    """Offsets of batches whose checksum differs, or whose header can't be right."""
    open: list[tuple[int, int]] = []  # noqa: RUF012
    """Transactions that do not end in it: producer and first offset."""
    ended: list[tuple[int, int]] = []  # noqa: RUF012
    """By producer, the first marker of a transaction."""
    time_last: tuple[int, int] | None = None
    """Last entry of the time index: timestamp and offset."""
    offset_last: int = -1
    """Last offset that the offset index names."""
    marks: list[tuple[int, int]] = []  # noqa: RUF012
    """Offset and position of batches that begin where the log may have ended."""
    index_gap: int = -1
    """The fewest bytes between entries of the offset index; -1 where it has none."""
    index_bare: int = 0
    """The most bytes from a batch back to the entry before it."""
    indexes_missing: list[str] = []  # noqa: RUF012
    indexes_reserved: list[tuple[str, int]] = []  # noqa: RUF012
    """Indexes with a tail of zeros, and where it begins."""
    digest: int = 0
    """Of all its batches, put together with exclusive or."""
    producers: int = 0
    """How many producers wrote in it."""
    vanished: bool = False
    error: str = ""
    crowded: bool = False
    """A list was cut short."""

    def to_json(self) -> str:
        return json.dumps(self, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> "StretchSummary":
        values: list[Any] = json.loads(text)
        made = cls(*values)
        return made._replace(
            runs=[Run(*each) for each in made.runs],
            epochs=[EpochRun(*each) for each in made.epochs],
            holes=[Hole(*each) for each in made.holes],
            remarks=[Remark(*each) for each in made.remarks],
            breaks=[SequenceBreak(*each) for each in made.breaks],
            aborted=[Aborted(*each) for each in made.aborted],
            open=[(each[0], each[1]) for each in made.open],
            ended=[(each[0], each[1]) for each in made.ended],
            marks=[(each[0], each[1]) for each in made.marks],
            bad=[(each[0], each[1]) for each in made.bad],
            indexes_reserved=[(each[0], each[1]) for each in made.indexes_reserved],
        )
