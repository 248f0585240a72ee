"""What a cleaning is told, and what it tells: plain values, which can go to another process.

A plan is made from the log as it is at one moment. It names segments that were closed then
and lie below the high watermark, so that nothing but a truncation or a deletion can change
them; whoever made the plan looks for that before it puts anything in place.
"""

from typing import NamedTuple, TypeAlias

from tidelog.core.lineage.transaction_index import AbortedTransaction
from tidelog.core.storage.log_config import LogConfig
from tidelog.core.types import Offset, TopicPartition


class SourceSegment(NamedTuple):
    """A segment that is read."""

    base_offset: Offset
    size: int


class LastBatch(NamedTuple):
    """The latest that is known of a producer: it must stay known, or its retries would be
    taken for new records."""

    producer_epoch: int
    last_offset: Offset | None
    """Of its last batch of records; None if only a transaction marker was seen."""


class CleaningPlan(NamedTuple):
    """One cleaning of one log."""

    partition: TopicPartition
    directory: str
    config: LogConfig
    segments: tuple[SourceSegment, ...]
    """From the log's first to the last that may be cleaned."""
    first_dirty_offset: Offset
    """Below, every key but those that come again further on stands once."""
    end_offset: Offset
    """The first that may not be cleaned: where the segment after the last one begins."""
    aborted: tuple[AbortedTransaction, ...]
    producers: dict[int, LastBatch]
    earliest_ms: int
    """The time that delete horizons are compared with."""
    latest_ms: int
    """The time that new delete horizons are counted from. The two differ while the clock is in
    doubt (wall_clock.py), so that tombstones stay for long enough whichever is right."""
    map_bytes: int
    """How large the map of keys may be."""
    all_in_sync: bool
    """Whether all replicas of the partition have what is cleaned. One that is away may hold a
    key's old value: it has to find the tombstone when it is back."""


class CleanedGroup(NamedTuple):
    """Segments that may be replaced by the one `.cleaned` segment with the base offset of the
    first; it is complete and on disk."""

    base_offsets: tuple[Offset, ...]
    size: int
    """Of the replacement's `.log`."""


class CleaningResult(NamedTuple):
    """The end of a cleaning, after its last group."""

    end_offset: Offset
    """The next cleaning's first dirty offset."""
    bytes_read: int
    bytes_written: int
    """What is left of them, also in segments that stay as they are."""
    records_read: int
    records_kept: int
    keys: int
    """In the map."""


CleaningMessage: TypeAlias = CleanedGroup | CleaningResult | str
"""What is said of a cleaning; a text is why it failed."""
