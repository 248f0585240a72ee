"""Print records on stdout unchanged; on a terminal, with control characters escaped.

Invariant: when the reader of stdout ends (`| head`), the next write or flush raises `Closed`, and
nothing is printed on stderr.
"""

import os
import re
import select
import sys
from collections.abc import Callable

from tidelog.apps.cli.records import envelope
from tidelog.apps.cli.records.format_string import compile_format
from tidelog.shell.client.consumer import Chunk

_UNSAFE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\udc80-\udcff]")

Render = Callable[[Chunk, int], bytes]


class Closed(Exception):
    """The reader of stdout has ended."""


class Printer:
    """Writes chunks to stdout, formatted by one of the functions below."""

    def __init__(self, render: Render) -> None:
        self._render = render
        self._output = sys.stdout.buffer
        self._terminal = sys.stdout.isatty()
        self._poll = _watch(sys.stdout)
        self.count = 0

    def write(self, chunk: Chunk) -> None:
        """Write a chunk of records. Raises Closed."""
        data = self._render(chunk, self.count)
        self.count += len(chunk.records)
        try:
            self._output.write(readable(data) if self._terminal else data)
        except BrokenPipeError:
            raise self._closed() from None

    def flush(self) -> None:
        """Flush stdout. Raises Closed if the reader has ended, even if nothing was written."""
        try:
            self._output.flush()
        except BrokenPipeError:
            raise self._closed() from None
        if self._poll is not None and any(
            event & (select.POLLERR | select.POLLHUP) for _, event in self._poll.poll(0)
        ):
            raise self._closed()

    def _closed(self) -> Closed:
        """Redirect stdout, because Python would fail to flush it at exit."""
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return Closed()


def _watch(stream: object) -> "select.poll | None":
    """Return a poll object that detects a closed pipe; None if not supported."""
    try:
        file = stream.fileno()  # type: ignore[attr-defined]
        watch = select.poll()
    except (OSError, AttributeError, ValueError):
        return None
    watch.register(file, 0)
    return watch


def readable(data: bytes) -> bytes:
    """Escape control characters and invalid UTF-8, for a terminal."""
    text = data.decode(errors="surrogateescape")
    if text.isprintable():
        return data
    return _UNSAFE.sub(lambda found: f"\\x{ord(found[0]) & 0xFF:02x}", text).encode()


def json_lines(chunk: Chunk, _number: int) -> bytes:
    """Return a line of JSON for each record."""
    topic, partition = chunk.key
    return b"".join(
        [envelope.dump(topic, partition, record, chunk.broker) for record in chunk.records]
    )


def formatted(template: str, null: bytes) -> Render:
    """Return a function that formats records by a format string. Raises ValueError."""
    render = compile_format(template, null)
    return lambda chunk, number: render(*chunk.key, chunk.records, number)
