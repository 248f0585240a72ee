"""The input and output of a cleaning, as plain values that can be sent to another process.

A plan is created from the current state of a log. It names closed segments below the high
watermark, which only a truncation or a deletion can change; the broker checks for that before it
replaces a segment.
"""

from typing import NamedTuple, TypeAlias

from tidelog.core.lineage.transaction_index import AbortedTransaction
from tidelog.core.storage.log_config import LogConfig
from tidelog.core.types import Offset, TopicPartition


class SourceSegment(NamedTuple):
    """A segment to read."""

    base_offset: Offset
    size: int


class LastBatch(NamedTuple):
    """The last batch of a producer. It must stay in the log, or retries would be appended as new
    records."""

    producer_epoch: int
    last_offset: Offset | None
    """The last offset of its last data batch; None if it wrote only a transaction marker."""


class CleaningPlan(NamedTuple):
    """The plan of one cleaning of one log."""

    partition: TopicPartition
    directory: str
    config: LogConfig
    segments: tuple[SourceSegment, ...]
    """All segments from the first of the log to the last that may be cleaned."""
    first_dirty_offset: Offset
    """Below this offset, each key occurs once, unless it occurs again above."""
    end_offset: Offset
    """The end of the last segment (exclusive): records from here on may not be cleaned."""
    aborted: tuple[AbortedTransaction, ...]
    producers: dict[int, LastBatch]
    earliest_ms: int
    """The time with which delete horizons are compared."""
    latest_ms: int
    """The time from which new delete horizons are computed. The two differ while the clock is not
    trusted (wall_clock.py), so that tombstones stay long enough in any case."""
    map_bytes: int
    """The maximum size of the offset map."""
    all_in_sync: bool
    """Whether all replicas have the records to be cleaned. An offline replica may have an old value
    of a key, and needs the tombstone when it returns."""


class CleanedGroup(NamedTuple):
    """Segments that can be replaced with the `.cleaned` segment of the first one's base offset,
    which is complete and on disk."""

    base_offsets: tuple[Offset, ...]
    size: int
    """The size of the replacement's `.log` file."""


class CleaningResult(NamedTuple):
    """The result of a cleaning, after its last group."""

    end_offset: Offset
    """The next cleaning's first dirty offset."""
    bytes_read: int
    bytes_written: int
    """The size of the kept batches, including those of unchanged segments."""
    records_read: int
    records_kept: int
    keys: int
    """The number of keys in the offset map."""


CleaningMessage: TypeAlias = CleanedGroup | CleaningResult | str
"""A report of a cleaning: a finished group, the result, or the text of an error."""
