"""Read a file while a broker may write to it.

Invariant: it is opened for reading only, so nothing is changed or created.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType

WHOLE_BYTES_MAX = 64 * 1024 * 1024


class CannotRead(Exception):
    """A file can't be opened or read, or is much too large for its kind."""

    def __init__(self, path: str, why: str) -> None:
        super().__init__(f"can't read {path}: {why}")
        self.why = why


class Vanished(CannotRead):
    """The file no longer exists: a broker deleted or renamed it."""


@contextmanager
def _reading(path: str) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError:
        raise Vanished(path, "no such file") from None
    except OSError as error:
        raise CannotRead(path, (error.strerror or str(error)).lower()) from error


class ReadOnlyFile:
    """Reads bytes by position. The size is read each time, because a live file grows."""

    def __init__(self, path: str) -> None:
        self.path = path
        with _reading(path):
            self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    def __enter__(self) -> "ReadOnlyFile":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        os.close(self._fd)

    def size(self) -> int:
        return os.fstat(self._fd).st_size

    def read(self, position: int, length: int) -> bytes:
        """Read bytes; returns fewer than `length` only at the end of the file."""
        parts = []
        while length > 0:
            with _reading(self.path):
                part = os.pread(self._fd, length, position)
            if not part:
                break
            parts.append(part)
            position += len(part)
            length -= len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)


def read_whole(path: str) -> bytes:
    """Read a small file at once; a file replaced meanwhile is read as it was. Raises CannotRead."""
    with ReadOnlyFile(path) as file:
        size = file.size()
        if size > WHOLE_BYTES_MAX:
            raise CannotRead(path, f"{size} bytes; files of this kind are small")
        return file.read(0, size)
