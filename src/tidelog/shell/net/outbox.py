"""What a connection has to send: bytes, and stretches of files.

Bytes that follow each other leave in one call. A long stretch of a file goes from the page
cache to the socket without passing through here (sendfile); a short one is read, for a
system call more costs more than the copy.

Always true: a file that is being sent is held open, so it may be renamed or deleted.
"""

import errno
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

from tidelog.core.record.crc32c import Buffer
from tidelog.core.storage.disk import DiskError, Region, read_region
from tidelog.shell.net.transport import Transport
from tidelog.shell.os_disk import OsDisk

SENDFILE_MIN = 16 * 1024
JOINED_MAX = 16 * 1024
"""So few bytes are copied for less than the system takes to gather them."""
GATHER_MAX = 64


class Stretch:
    """Part of a file on its way; the file is held open."""

    __slots__ = ("fd", "left", "path", "position", "release")

    def __init__(self, disk: OsDisk, region: Region) -> None:
        file = disk.lease(region)
        self.fd = file.fd
        self.path = region.path
        self.position = region.position
        self.left = region.length
        self.release = file.release


Chunk: TypeAlias = Buffer | Region


class FileEnded(OSError):
    """A file ended before the stretch that was promised: only closing the connection is left."""


def held(disk: OsDisk, region: Region) -> Buffer | Stretch:
    """The bytes if they are few, else a hold on the file: whatever becomes of its name."""
    if region is _last_read.region:
        return _last_read.records
    try:
        if region.length >= SENDFILE_MIN:
            return Stretch(disk, region)
        records = read_region(disk, region) if region.length else b""
        if len(records) < region.length:
            raise FileEnded(f"{region.path} ended before {region.position + region.length}")
    except (DiskError, FileEnded):
        disk.on_unreadable(region.path)
        raise
    _last_read.region, _last_read.records = region, records
    return records


class _LastRead:
    """What was read last. A node gives two followers at the same place the very same region:
    that object means the bytes as they were promised, whatever becomes of the file."""

    __slots__ = ("records", "region")

    def __init__(self) -> None:
        self.region: Region | None = None
        self.records = b""


_last_read = _LastRead()


class Outbox:
    """Chunks in order."""

    __slots__ = ("_chunks", "_disk", "in_files", "size")

    def __init__(self, disk: OsDisk) -> None:
        self._disk = disk
        self._chunks: deque[Buffer | Stretch] = deque()
        self.size = 0
        """Bytes that wait."""
        self.in_files = 0
        """How many of them are not in memory."""

    def __bool__(self) -> bool:
        return bool(self._chunks)

    def put(self, chunks: Iterable[Chunk | Stretch]) -> None:
        for chunk in chunks:
            if type(chunk) is bytes and chunk:  # nearly all are
                self._chunks.append(chunk)
                self.size += len(chunk)
                continue
            if isinstance(chunk, Region):
                chunk = held(self._disk, chunk)
            if isinstance(chunk, Stretch):
                self._chunks.append(chunk)
                self.size += chunk.left
                self.in_files += chunk.left
            elif len(chunk):  # an empty one could never be sent off
                self._chunks.append(chunk)
                self.size += len(chunk)

    def hold_files(self, chunks: Sequence[Chunk | Stretch]) -> Sequence[Chunk | Stretch]:
        """The same, good for later as well: by then a name may be another file's."""
        if not any(isinstance(chunk, Region) for chunk in chunks):
            return chunks
        found: list[Chunk | Stretch] = []
        try:
            for chunk in chunks:
                if isinstance(chunk, Region):
                    chunk = held(self._disk, chunk)
                found.append(chunk)
        except (OSError, DiskError):
            for chunk in found:
                if isinstance(chunk, Stretch):
                    chunk.release()
            raise
        return found

    def send_lone(self, transport: Transport, chunks: Sequence[Chunk | Stretch] | None) -> bool:
        """Send an answer that is small and has nothing before it: the usual case. False: nothing
        was sent; else what the socket did not take is here."""
        if self._chunks or chunks is None or len(chunks) != 1:
            return False
        chunk = chunks[0]
        if type(chunk) is not bytes or len(chunk) > JOINED_MAX:
            return False
        try:
            left = len(chunk) - transport.send(chunk)
        except BlockingIOError:
            return False
        if left:
            self._chunks.append(memoryview(chunk)[-left:])
            self.size = left
        return True

    def send(self, transport: Transport) -> bool:
        """Send as much as the socket takes; whether that is all."""
        chunks = self._chunks
        try:
            if self.size <= JOINED_MAX and chunks and not self.in_files:
                return self._send_joined(transport, chunks)
            while chunks:
                first = chunks[0]
                if isinstance(first, Stretch):
                    self._send_file(transport, first)
                elif len(chunks) == 1:
                    self._sent(transport.send(first))
                elif isinstance(chunks[1], Stretch):
                    self._sent(transport.send_before_file(first))
                else:
                    self._sent(transport.send_many(self._run()))
        except BlockingIOError:
            return False
        return True

    def _send_joined(self, transport: Transport, chunks: deque[Any]) -> bool:
        data: Buffer = chunks[0] if len(chunks) == 1 else b"".join(chunks)
        left = self.size - transport.send(data)
        chunks.clear()
        if left:
            chunks.append(memoryview(data)[-left:])
        self.size = left
        return not left

    def close(self) -> None:
        for chunk in self._chunks:
            if isinstance(chunk, Stretch):
                chunk.release()
        self._chunks.clear()
        self.size = self.in_files = 0

    def _run(self) -> list[Buffer]:
        """The bytes up to the next file."""
        run: list[Buffer] = []
        for chunk in self._chunks:
            if isinstance(chunk, Stretch) or len(run) == GATHER_MAX:
                break
            run.append(chunk)
        return run

    def _sent(self, count: int) -> None:
        self.size -= count
        chunks = self._chunks
        while count:
            first = chunks[0]
            assert not isinstance(first, Stretch), "bytes were sent"
            if count < len(first):
                chunks[0] = memoryview(first)[count:]
                return
            count -= len(first)
            chunks.popleft()

    def _send_file(self, transport: Transport, stretch: Stretch) -> None:
        try:
            count = transport.send_file(stretch.fd, stretch.position, stretch.left)
            if count == 0:
                raise FileEnded(f"a segment ended {stretch.left} bytes before its promised end")
        except OSError as error:
            if isinstance(error, FileEnded) or error.errno == errno.EIO:
                self._disk.on_unreadable(stretch.path)
            raise
        stretch.position += count
        stretch.left -= count
        self.size -= count
        self.in_files -= count
        if stretch.left == 0:
            self._chunks.popleft()
            stretch.release()
