"""Flushes of one log, and its recovery point: the offset below which records are durable.

Records below `recovery_point` survive a power failure. A flush has two parts, so that the host can
sync in another thread and serve requests meanwhile: `start` returns the files to sync, `completed`
advances the recovery point. A truncation in between may replace bytes that the sync did not cover,
so a flush from before it is ignored; the generation shows that.

Guarantees by setting (M06): with Kafka's defaults a killed process loses nothing; a power failure
loses the records that the operating system had not written since the last roll. With
`flush.messages` = 1 and acknowledgements that wait for the flush, no acknowledged record is lost.
`flush.ms` limits the loss by time.
"""

from typing import NamedTuple

from tidelog.core.types import Offset


class Flush(NamedTuple):
    """A flush that was started: sync these files, then call `flush_completed`."""

    offset: Offset
    """Records below this offset are durable afterwards."""
    files: tuple[str, ...]
    directories: tuple[str, ...]
    generation: int


class Closing(NamedTuple):
    """A clean stop that was started: sync these files, then call `closed`."""

    indexes: list[str]
    flush: Flush | None

    @property
    def files(self) -> list[str]:
        return self.indexes if self.flush is None else [*self.indexes, *self.flush.files]

    @property
    def directories(self) -> tuple[str, ...]:
        return () if self.flush is None else self.flush.directories


class FlushState:
    """The recovery point of one log, and the flushes that were started."""

    __slots__ = (
        "generation",
        "new_files",
        "oldest_unflushed_ms",
        "recovery_point",
        "requested",
    )

    def __init__(self, recovery_point: Offset, new_files: list[str]) -> None:
        self.recovery_point = recovery_point
        self.new_files = new_files
        """Files created since the last flush; their directory must be synced too."""
        self.requested = recovery_point
        """The end of the last flush that was started."""
        self.generation = 0
        """A counter that grows with every truncation."""
        self.oldest_unflushed_ms: int | None = None

    def grew(self, path: str) -> None:
        """Sync this file with the next flush: recovery trusts it up to the recovery point."""
        if path not in self.new_files:
            self.new_files.append(path)

    def appended(self, now_ms: int) -> None:
        if self.oldest_unflushed_ms is None:
            self.oldest_unflushed_ms = now_ms

    def start(self, offset: Offset, files: list[str], directory: str, everything: bool) -> Flush:
        directories = (directory,) if self.new_files else ()
        files = list(dict.fromkeys(files + self.new_files))
        self.new_files = []
        self.requested = max(self.requested, offset)
        if everything:
            self.oldest_unflushed_ms = None
        return Flush(offset, tuple(files), directories, self.generation)

    def completed(self, flush: Flush) -> None:
        if flush.generation == self.generation:
            self.recovery_point = max(self.recovery_point, flush.offset)

    def truncated(self, end: Offset) -> None:
        """Lower the recovery point to `end`, and ignore flushes that were started before."""
        self.recovery_point = min(self.recovery_point, end)
        self.requested = self.recovery_point
        self.generation += 1
        self.oldest_unflushed_ms = 0 if end > self.recovery_point else None

    def restarted(self, offset: Offset) -> None:
        """Set the recovery point of a log that is empty and starts at `offset`."""
        self.truncated(offset)
        self.recovery_point = self.requested = offset
        self.oldest_unflushed_ms = None
