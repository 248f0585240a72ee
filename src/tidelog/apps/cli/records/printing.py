"""Records on stdout, exactly as their bytes are; on a terminal what would upset it is escaped.

Always true: when nobody reads stdout any more (`| head`), `Closed` is raised at the next write,
or at the next look if nothing is written, and nothing is said on stderr.
"""

import os
import re
import select
import sys
from collections.abc import Callable

from tidelog.apps.cli.records import envelope
from tidelog.apps.cli.records.format_string import compile_format
from tidelog.shell.client.consuming.consumer import Chunk

_UNSAFE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\udc80-\udcff]")

Render = Callable[[Chunk, int], bytes]


class Closed(Exception):
    """Nobody reads what is printed any more."""


class Printer:
    """Writes chunks to stdout as one of the renderers below has them."""

    def __init__(self, render: Render) -> None:
        self._render = render
        self._output = sys.stdout.buffer
        self._terminal = sys.stdout.isatty()
        self._poll = _watch(sys.stdout)
        self.count = 0

    def write(self, chunk: Chunk) -> None:
        """Raises Closed."""
        data = self._render(chunk, self.count)
        self.count += len(chunk.records)
        try:
            self._output.write(readable(data) if self._terminal else data)
        except BrokenPipeError:
            raise self._closed() from None

    def flush(self) -> None:
        """What was written is out; or nobody wants it, also if nothing was written."""
        try:
            self._output.flush()
        except BrokenPipeError:
            raise self._closed() from None
        if self._poll is not None and any(
            event & (select.POLLERR | select.POLLHUP) for _, event in self._poll.poll(0)
        ):
            raise self._closed()

    def _closed(self) -> Closed:
        """Python would try to write the rest at its end, and complain."""
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return Closed()


def _watch(stream: object) -> "select.poll | None":
    """Tells of the other end's closing; None where there is no such thing."""
    try:
        file = stream.fileno()  # type: ignore[attr-defined]
        watch = select.poll()
    except (OSError, AttributeError, ValueError):
        return None
    watch.register(file, 0)
    return watch


def readable(data: bytes) -> bytes:
    """For a terminal: no control characters, no bytes that are no text."""
    text = data.decode(errors="surrogateescape")
    if text.isprintable():
        return data
    return _UNSAFE.sub(lambda found: f"\\x{ord(found[0]) & 0xFF:02x}", text).encode()


def json_lines(chunk: Chunk, _number: int) -> bytes:
    """A line of JSON for each record."""
    topic, partition = chunk.key
    return b"".join(
        [envelope.dump(topic, partition, record, chunk.broker) for record in chunk.records]
    )


def formatted(template: str, null: bytes) -> Render:
    """Each record as a format string has it. Raises ValueError."""
    render = compile_format(template, null)
    return lambda chunk, number: render(*chunk.key, chunk.records, number)
