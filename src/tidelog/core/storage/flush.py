"""What is on disk for sure, and when to make it more.

`recovery_point` is the end of what survives a power failure. A flush is split in two so
that the host can sync elsewhere and serve others meanwhile: `start` says which files to
sync, `completed` moves the recovery point. A truncation in between may have replaced bytes
that the sync did not see, so a flush begun before it proves nothing any more; the
generation tells.

What each setting survives (M06): with Kafka's defaults a killed process loses nothing, a
power failure what the operating system had not written since the last roll; with
`flush.messages` = 1 and acknowledgements that wait for it, nothing acknowledged; `flush.ms`
bounds the loss by time.
"""

from typing import NamedTuple

from tidelog.core.storage.log_config import LogConfig
from tidelog.core.types import Offset


class Flush(NamedTuple):
    """A flush under way: sync these, then say that it is completed."""

    offset: Offset
    """Everything below is on disk afterwards."""
    files: tuple[str, ...]
    directories: tuple[str, ...]
    generation: int


class Closing(NamedTuple):
    """A clean stop under way: sync these, then it is done."""

    indexes: list[str]
    flush: Flush | None

    @property
    def files(self) -> list[str]:
        return self.indexes if self.flush is None else [*self.indexes, *self.flush.files]

    @property
    def directories(self) -> tuple[str, ...]:
        return () if self.flush is None else self.flush.directories


class FlushState:
    """The recovery point of one log, and what is asked of it."""

    __slots__ = (
        "_oldest_unflushed_ms",
        "_requested",
        "generation",
        "new_files",
        "recovery_point",
    )

    def __init__(self, recovery_point: Offset, new_files: list[str]) -> None:
        self.recovery_point = recovery_point
        self.new_files = new_files
        """Created since the last flush, so that their names have to be made durable too."""
        self._requested = recovery_point
        self.generation = 0
        """Grows with every truncation."""
        self._oldest_unflushed_ms: int | None = None

    def grew(self, path: str) -> None:
        """A file beside the batches, which is believed as far as they are: it goes with them."""
        if path not in self.new_files:
            self.new_files.append(path)

    def appended(self, now_ms: int) -> None:
        if self._oldest_unflushed_ms is None:
            self._oldest_unflushed_ms = now_ms

    def due(
        self, config: LogConfig, log_end_offset: Offset, active_base: Offset, now_ms: int
    ) -> Offset | None:
        """Up to where to flush now: all, if the settings say so; else what was rolled."""
        if log_end_offset - self._requested >= config.flush_messages:
            return log_end_offset
        oldest = self._oldest_unflushed_ms
        if oldest is not None and now_ms - oldest >= config.flush_ms:
            return log_end_offset
        return active_base if active_base > self._requested else None

    def start(self, offset: Offset, files: list[str], directory: str, everything: bool) -> Flush:
        directories = (directory,) if self.new_files else ()
        files = list(dict.fromkeys(files + self.new_files))
        self.new_files = []
        self._requested = max(self._requested, offset)
        if everything:
            self._oldest_unflushed_ms = None
        return Flush(offset, tuple(files), directories, self.generation)

    def completed(self, flush: Flush) -> None:
        if flush.generation == self.generation:
            self.recovery_point = max(self.recovery_point, flush.offset)

    def truncated(self, end: Offset) -> None:
        """Bytes above `end` are gone; flushes under way prove nothing."""
        self.recovery_point = min(self.recovery_point, end)
        self._requested = self.recovery_point
        self.generation += 1
        self._oldest_unflushed_ms = 0 if end > self.recovery_point else None

    def restarted(self, offset: Offset) -> None:
        """The log is empty and begins at `offset`: there is nothing that could be lost."""
        self.truncated(offset)
        self.recovery_point = self._requested = offset
        self._oldest_unflushed_ms = None
