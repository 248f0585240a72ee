"""The loss ledger's file: one line for each loss, kept across restarts.

A line is written and synced before the loss that it describes: before a log is truncated, and
before a leader that was elected uncleanly serves. So after a crash the ledger may have a loss that
has not happened yet, but no loss is missing. When it happens, it is written again with the same id.

The file is renamed to `loss-ledger.old` when it is full, which replaces the older one. So the two
files together hold the latest losses and at most twice `FILE_BYTES_MAX`.
"""

from collections.abc import Iterator
from typing import NamedTuple

from tidelog.core.storage import layout
from tidelog.core.storage.disk import Disk, DiskError

FILE_BYTES_MAX = 1_048_576
PAGE_BYTES = 65_536
"""At most this many bytes are read for one page."""
FILES = (layout.OLD_LOSSES, layout.LOSSES)
"""The names of the two files, the older one first."""


class Cursor(NamedTuple):
    """Where the next page begins: the number of the file in `FILES`, and the position in it."""

    file: int = 0
    position: int = 0


class LossPage(NamedTuple):
    """One page of a ledger: some of its lines."""

    lines: list[bytes]
    next: Cursor | None
    """None if there are no more."""


class LossLedger:
    """The ledger in one log directory."""

    def __init__(self, disk: Disk, file_bytes_max: int = FILE_BYTES_MAX) -> None:
        self._disk = disk
        self._file_bytes_max = file_bytes_max
        self._size: int | None = None
        """The size of the file; None before the first write of this process."""

    def add(self, line: bytes) -> None:
        """Write a line, and sync it. Raises DiskError."""
        disk, size = self._disk, self._size
        new = b""
        if size is None:
            size = disk.size(layout.LOSSES) if disk.exists(layout.LOSSES) else 0
            # The end of the last line may be lost.
            if size and disk.read(layout.LOSSES, size - 1, 1) != b"\n":
                new = b"\n"
        new += line + b"\n"
        if size and size + len(new) > self._file_bytes_max:
            disk.rename(layout.LOSSES, layout.OLD_LOSSES)
            size = 0
        self._size = None  # unknown until the write has succeeded
        disk.append(layout.LOSSES, [new])
        disk.sync(layout.LOSSES)
        if not size:
            disk.sync_dir("")
        self._size = size + len(new)


def read_page(disk: Disk, cursor: Cursor) -> LossPage:
    """Read the next lines of a ledger. Raises DiskError."""
    number, position = cursor
    if not 0 <= number < len(FILES):
        return LossPage([], None)
    path, behind = FILES[number], None if number + 1 == len(FILES) else Cursor(number + 1)
    size = disk.size(path) if disk.exists(path) else 0
    if not 0 <= position < size:
        return LossPage([], behind)
    data = disk.read(path, position, PAGE_BYTES)
    complete = data.rfind(b"\n") + 1
    if not complete:
        return LossPage([], behind)  # the last line is incomplete
    lines = data[:complete].splitlines()
    position += complete
    return LossPage(lines, Cursor(number, position) if position < size else behind)


def read_lines(disk: Disk) -> Iterator[bytes]:
    """Yield all lines of a ledger from old to new; none if it can't be read."""
    cursor: Cursor | None = Cursor()
    while cursor is not None:
        try:
            page = read_page(disk, cursor)
        except DiskError:
            return
        yield from page.lines
        cursor = page.next
