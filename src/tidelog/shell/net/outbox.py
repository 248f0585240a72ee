"""The data that a connection has to send: bytes, and parts of files.

Adjacent bytes are sent in one call. A large part of a file is sent by the transport, if possible
with sendfile. A small part is read into memory: one more system call costs more than the copy.

Invariant: a file that is being sent is kept open, so it may be renamed or deleted.
"""

import errno
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

from tidelog.core.record.crc32c import Buffer
from tidelog.core.storage.disk import DiskError, Region, read_region
from tidelog.shell.net.transport import Transport
from tidelog.shell.os_disk import FileSource

SENDFILE_MIN = 16 * 1024
JOINED_MAX = 16 * 1024
"""Up to this size, joining the bytes costs less than sendmsg."""
GATHER_MAX = 64


class FilePart:
    """Part of a file that is being sent; the file is kept open."""

    __slots__ = ("fd", "left", "path", "position", "release")

    def __init__(self, disk: FileSource, region: Region) -> None:
        file = disk.lease(region)
        self.fd = file.fd
        self.path = region.path
        self.position = region.position
        self.left = region.length
        self.release = file.release


Chunk: TypeAlias = Buffer | Region


class FileEnded(OSError):
    """A file is shorter than the response announced: the connection must be closed."""


def open_region(disk: FileSource, region: Region) -> Buffer | FilePart:
    """Read a small region, or open the file of a large one, so that a rename does no harm."""
    if region is _last_read.region:
        return _last_read.records
    try:
        if region.length >= SENDFILE_MIN:
            return FilePart(disk, region)
        records = read_region(disk, region) if region.length else b""
        if len(records) < region.length:
            raise FileEnded(
                f"{region.path} is shorter than {region.position + region.length} bytes"
            )
    except (DiskError, FileEnded):
        disk.on_unreadable(region.path)
        raise
    _last_read.region, _last_read.records = region, records
    return records


class _LastRead:
    """The region that was read last, and its bytes.

    A node gives two followers at the same offset the same region object. It stands for the bytes
    as they were when the response was made, even if the file changed since.
    """

    __slots__ = ("records", "region")

    def __init__(self) -> None:
        self.region: Region | None = None
        self.records = b""


_last_read = _LastRead()


class Outbox:
    """A queue of chunks."""

    __slots__ = ("_chunks", "_disk", "in_files", "size")

    def __init__(self, disk: FileSource) -> None:
        self._disk = disk
        self._chunks: deque[Buffer | FilePart] = deque()
        self.size = 0
        """Unsent bytes."""
        self.in_files = 0
        """Unsent bytes that are in files, not in memory."""

    def __bool__(self) -> bool:
        return bool(self._chunks)

    def put(self, chunks: Iterable[Chunk | FilePart]) -> None:
        for chunk in chunks:
            if type(chunk) is bytes and chunk:  # nearly all are
                self._chunks.append(chunk)
                self.size += len(chunk)
                continue
            if isinstance(chunk, Region):
                chunk = open_region(self._disk, chunk)
            if isinstance(chunk, FilePart):
                self._chunks.append(chunk)
                self.size += chunk.left
                self.in_files += chunk.left
            elif len(chunk):  # an empty chunk would never leave the queue
                self._chunks.append(chunk)
                self.size += len(chunk)

    def hold_files(self, chunks: Sequence[Chunk | FilePart]) -> Sequence[Chunk | FilePart]:
        """Replace regions by bytes or open files, before their files are replaced by others."""
        if not any(isinstance(chunk, Region) for chunk in chunks):
            return chunks
        found: list[Chunk | FilePart] = []
        try:
            for chunk in chunks:
                if isinstance(chunk, Region):
                    chunk = open_region(self._disk, chunk)
                found.append(chunk)
        except (OSError, DiskError):
            for chunk in found:
                if isinstance(chunk, FilePart):
                    chunk.release()
            raise
        return found

    def send_lone(self, transport: Transport, chunks: Sequence[Chunk | FilePart] | None) -> bool:
        """Send a small response with nothing queued before it: the usual case.

        False: nothing was sent. True: the part that was not accepted is in the queue.
        """
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
        """Send as much as the transport accepts; return whether that is everything."""
        chunks = self._chunks
        try:
            if self.size <= JOINED_MAX and chunks and not self.in_files:
                return self._send_joined(transport, chunks)
            while chunks:
                first = chunks[0]
                if isinstance(first, FilePart):
                    self._send_file(transport, first)
                elif len(chunks) == 1:
                    self._sent(transport.send(first))
                elif isinstance(chunks[1], FilePart):
                    self._sent(transport.send_before_file(first))
                else:
                    self._sent(transport.send_many(self._bytes_before_file()))
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
            if isinstance(chunk, FilePart):
                chunk.release()
        self._chunks.clear()
        self.size = self.in_files = 0

    def _bytes_before_file(self) -> list[Buffer]:
        """The chunks of bytes before the next file."""
        run: list[Buffer] = []
        for chunk in self._chunks:
            if isinstance(chunk, FilePart) or len(run) == GATHER_MAX:
                break
            run.append(chunk)
        return run

    def _sent(self, count: int) -> None:
        self.size -= count
        chunks = self._chunks
        while count:
            first = chunks[0]
            assert not isinstance(first, FilePart), "bytes were sent"
            if count < len(first):
                chunks[0] = memoryview(first)[count:]
                return
            count -= len(first)
            chunks.popleft()

    def _send_file(self, transport: Transport, part: FilePart) -> None:
        try:
            count = transport.send_file(part.fd, part.position, part.left)
            if count == 0:
                raise FileEnded(f"{part.path} is {part.left} bytes shorter than expected")
        except OSError as error:
            if isinstance(error, FileEnded) or error.errno == errno.EIO:
                self._disk.on_unreadable(part.path)
            raise
        part.position += count
        part.left -= count
        self.size -= count
        self.in_files -= count
        if part.left == 0:
            self._chunks.popleft()
            part.release()
