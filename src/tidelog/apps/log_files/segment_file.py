"""Read the batches of a `.log` file, and find where they are damaged.

A batch with a wrong checksum still has a length, so the walk continues after it. Bytes that are
not a batch end the walk: the position of the next batch is unknown.

Invariant: memory is bounded by one batch (`BATCH_BYTES_MAX`), for any content of the file. A
broker may append meanwhile: the walk ends at the initial size of the file, after waiting for a
batch that was just being written.
"""

import time
from collections.abc import Iterator
from struct import Struct
from typing import NamedTuple

from tidelog.apps.log_files.read_only_file import CannotRead, ReadOnlyFile
from tidelog.core.record.record_batch import (
    HEADER_SIZE,
    PREFIX_SIZE,
    CorruptRecord,
    RecordBatch,
    parse,
)

BATCH_BYTES_MAX = 128 * 1024 * 1024
WRITER_PAUSE_S = 0.05
"""How long a broker may take to write the second half of a batch."""
_CHUNK = 1024 * 1024
_PREFIX = Struct(">qi")


class Seen(NamedTuple):
    """The batch at a position, and its problems."""

    position: int
    batch: RecordBatch | None
    """None if there is no batch here; then the walk ends."""
    problems: tuple[str, ...]


class SegmentFile:
    """One `.log` file, read from start to end."""

    def __init__(self, file: ReadOnlyFile, base_offset: int | None) -> None:
        self._file = file
        self._end = file.size()
        self._next_offset = base_offset
        """The smallest valid offset of the next batch; None if unknown."""
        self._chunk = b""
        self._chunk_at = 0

    def walk(self) -> Iterator[Seen]:
        """Yield every batch in order; an item without a batch is the last."""
        position = 0
        while position < self._end:
            seen = self._look(position)
            if seen.batch is None:
                if position < self._file.size():  # else a live file was truncated to here
                    yield seen
                return
            yield seen
            position += seen.batch.size

    def _look(self, position: int) -> Seen:
        try:
            problem = self._load(position)
        except CannotRead as error:
            problem = error.why  # a failing disk: keep what was read so far
        if problem is not None:
            return Seen(position, None, (problem,))
        try:
            batch = parse(self._chunk, position - self._chunk_at)
        except CorruptRecord as error:
            return Seen(position, None, (error.reason,))
        problems = []
        if not batch.crc_ok():
            problems.append("checksum differs")
        if self._next_offset is not None and batch.base_offset < self._next_offset:
            problems.append(f"offset {batch.base_offset} after {self._next_offset - 1}")
        self._next_offset = batch.next_offset
        return Seen(position, batch, tuple(problems))

    def _load(self, position: int) -> str | None:
        """Load the batch at `position` into the chunk; return the problem if that fails."""
        if self._have(position) < HEADER_SIZE:
            self._read(position, min(_CHUNK, self._end - position))
        if self._have(position) < PREFIX_SIZE:
            self._await_writer(position, HEADER_SIZE)
        if self._have(position) < PREFIX_SIZE:
            return f"{self._have(position)} bytes are too few for a batch header"
        size = _PREFIX.unpack_from(self._chunk, position - self._chunk_at)[1] + PREFIX_SIZE
        if size == PREFIX_SIZE and self._only_zeros(position):
            return f"{self._end - position} bytes of zeros: reserved space, or lost in a crash"
        if size > BATCH_BYTES_MAX:
            return f"batch of {size} bytes is larger than the maximum of {BATCH_BYTES_MAX}"
        if size > self._end - position:
            self._await_writer(position, size)
        elif size > self._have(position):
            self._read(position, size)
        return None

    def _have(self, position: int) -> int:
        """Return how many bytes from `position` on are in memory."""
        return len(self._chunk) - (position - self._chunk_at)

    def _read(self, position: int, length: int) -> None:
        self._chunk, self._chunk_at = self._file.read(position, length), position

    def _await_writer(self, position: int, size: int) -> None:
        """Wait briefly: a broker may just be writing the rest of the batch."""
        if self._file.size() < position + size:
            time.sleep(WRITER_PAUSE_S)
        self._read(position, size)
        self._end = max(self._end, position + len(self._chunk))

    def _only_zeros(self, position: int) -> bool:
        while position < self._end:
            piece = self._file.read(position, min(_CHUNK, self._end - position))
            if not piece:
                break
            if piece.strip(b"\0"):
                return False
            position += len(piece)
        return True
