"""The summary of a stretch of a segment: its size is limited, whatever the stretch contains.

Spark's tasks send it as JSON to the driver, which combines the summaries of a log in order.
Digests of windows and the state of producers stay in Spark's columns: there can be many.
"""

import json
from typing import Any, NamedTuple

LIST_MAX = 2000
"""Maximum length of each list; a stretch that exceeds it is too damaged to list everything."""


class Run(NamedTuple):
    """Batches whose offsets follow each other without a gap."""

    first: int
    last: int
    position: int
    end: int
    batches: int
    file: str = ""
    """Set when the driver combines the summaries."""


class EpochRun(NamedTuple):
    """Consecutive batches of one leader epoch."""

    epoch: int
    first: int
    last: int
    position: int
    batches: int
    file: str = ""


class Hole(NamedTuple):
    """Bytes that are not a valid batch."""

    position: int
    end: int
    reason: str
    zeros: bool
    old_format: int
    """0 or 1 if the bytes are valid records of that format, else -1."""
    torn: bool
    """Whether the bytes are the beginning of a batch that extends past the end of the file."""
    file: str = ""


class Remark(NamedTuple):
    """An error that a single file or stretch shows without the rest of the log."""

    kind: str
    file: str
    position: int
    first: int
    last: int
    text: str


class SequenceBreak(NamedTuple):
    """A batch whose sequence number does not follow that of the producer's previous batch."""

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
    """An aborted transaction."""

    producer_id: int
    first: int
    """Its first offset in the stretch; -1 if the stretch has only the marker."""
    marker: int
    stable: int
    """The last stable offset at the marker, from transactions that began in the stretch."""
    earlier: bool
    """Whether it may have begun before the stretch."""


class StretchSummary(NamedTuple):
    """The summary of `[start, end)` of a segment's file."""

    start: int
    end: int
    """Where the walk ended."""
    size: int
    """Size of the file at the time of the scan."""
    batches: int = 0
    records: int = 0
    first: int = -1
    last: int = -1
    """Highest offset."""
    max_timestamp: int = -1
    thinned: int = 0
    """Number of batches with fewer records than offsets: a cleaner removed records."""
    runs: list[Run] = []  # noqa: RUF012 - a default of a NamedTuple, never changed
    epochs: list[EpochRun] = []  # noqa: RUF012
    holes: list[Hole] = []  # noqa: RUF012
    remarks: list[Remark] = []  # noqa: RUF012
    breaks: list[SequenceBreak] = []  # noqa: RUF012
    aborted: list[Aborted] = []  # noqa: RUF012
    bad: list[tuple[int, int]] = []  # noqa: RUF012
    """Offsets of batches with a wrong checksum or an impossible header."""
    open: list[tuple[int, int]] = []  # noqa: RUF012
    """Transactions still open at the end of the stretch: producer id and first offset."""
    ended: list[tuple[int, int]] = []  # noqa: RUF012
    """Producer ids, each with the offset of its first transaction marker."""
    time_last: tuple[int, int] | None = None
    """Last entry of the time index: timestamp and offset."""
    offset_last: int = -1
    """Last offset in the offset index."""
    marks: list[tuple[int, int]] = []  # noqa: RUF012
    """Offset and position of batches that begin at a possible end of the log."""
    index_gap: int = -1
    """Minimum distance in bytes between entries of the offset index; -1 if it is empty."""
    index_bare: int = 0
    """Maximum distance in bytes from a batch back to the entry before it."""
    indexes_missing: list[str] = []  # noqa: RUF012
    indexes_reserved: list[tuple[str, int]] = []  # noqa: RUF012
    """Indexes with zeros at their end, and the position where these begin."""
    digest: int = 0
    """The digests of all batches, combined with exclusive or."""
    producers: int = 0
    """Number of producers with numbered batches in the stretch."""
    vanished: bool = False
    error: str = ""
    crowded: bool = False
    """Whether a list was cut at `LIST_MAX`."""

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
