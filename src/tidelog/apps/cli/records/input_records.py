"""Parse records from stdin or files: lines, format strings, or lines of JSON.

Invariants: complete records are returned within PAUSE_S, so that records typed by hand are written
as they are typed. At most one piece of input and one unfinished record are in memory.
"""

import base64
import binascii
import os
import re
import select
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import BinaryIO, NamedTuple

from tidelog.apps.cli.records import envelope
from tidelog.apps.cli.records.format_string import Field, parse
from tidelog.apps.cli.records.points_in_time import TIME_MAX
from tidelog.core.record.record import Header

PIECE_BYTES = 256 * 1024
RECORD_BYTES_MAX = 256 * 1024 * 1024
PAUSE_S = 0.02


class InputRecord(NamedTuple):
    """A record of the input; None for fields that the input does not contain."""

    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...] = ()
    timestamp: int | None = None
    partition: int | None = None


class BadInput(ValueError):
    """The input does not have the expected format."""


Parse = Callable[[bytes], InputRecord]


def pieces(source: BinaryIO) -> Iterator[bytes | None]:
    """Yield input as it arrives; None after a pause of PAUSE_S."""
    try:
        file = source.fileno()
    except (OSError, AttributeError):
        while piece := source.read(PIECE_BYTES):
            yield piece
        return
    while True:
        if os.name == "posix" and not select.select([file], [], [], PAUSE_S)[0]:
            yield None
            select.select([file], [], [])
        piece = os.read(file, PIECE_BYTES)
        if not piece:
            return
        yield piece


def split(source: BinaryIO, delimiter: bytes) -> Iterator[list[bytes]]:
    """Yield the records of a source in lists, as they arrive; an empty list means a pause.

    Raises BadInput.
    """
    begun: list[bytes] = []
    """The pieces of the unfinished record, joined only once: there may be hundreds."""
    size = 0
    held = b""
    """Its last bytes, which may be the start of a delimiter."""
    for piece in pieces(source):
        if piece is None:
            yield []
            continue
        *whole, rest = (held + piece).split(delimiter)
        if whole:
            whole[0] = b"".join([*begun, whole[0]])
            begun, size = [], 0
        cut = max(len(rest) - len(delimiter) + 1, 0)
        held = rest[cut:]
        begun.append(rest[:cut])
        size += cut
        if size > RECORD_BYTES_MAX:
            raise BadInput(f"no delimiter within {size} bytes; set it with -D")
        yield whole
    if last := b"".join([*begun, held]):
        yield [last]


def plain(key: bytes | None, key_delimiter: bytes | None) -> Parse:
    """Return a parser of lines: the value, or with a key delimiter key and value."""

    def parse_record(line: bytes) -> InputRecord:
        if key_delimiter is None:
            return InputRecord(key, line)
        found, delimiter, value = line.partition(key_delimiter)
        return InputRecord(found, value) if delimiter else InputRecord(key, line)

    return parse_record


def parse_json(line: bytes) -> InputRecord:
    """Parse kcat's envelope, as `tidelog consume -J` prints it. Raises BadInput."""
    try:
        return InputRecord(*envelope.load(line)[:4])
    except ValueError as error:
        raise BadInput(str(error)) from None


def by_format(text: str, key: bytes | None) -> tuple[Parse, bytes]:
    """Return a parser for a format, and the text at its end, which delimits records.

    Raises ValueError.
    """
    form = parse(text)
    delimiter = b"\n"
    if form and isinstance(form[-1], bytes):
        delimiter = form.pop()  # type: ignore[assignment]
    letters = [piece.letter for piece in form if isinstance(piece, Field)]
    unknown = sorted(set(letters) - set("ktsphoT"))
    if unknown or len(set(letters)) < len(letters) or not letters:
        raise ValueError(
            f"{text!r} is not a valid input format; use each of %k, %s, %p, %h, %T, %t, %o at"
            " most once"
        )
    for one, two in pairwise(form):
        if isinstance(one, Field) and isinstance(two, Field):
            raise ValueError(f"%{one.letter}%{two.letter}: a delimiter between them is missing")
    encodings = {piece.letter: piece.encoding for piece in form if isinstance(piece, Field)}
    pattern = re.compile(
        b"".join(
            re.escape(piece) if isinstance(piece, bytes) else b"(?P<%b>.*?)" % piece.letter.encode()
            for piece in form
        ),
        re.DOTALL,
    )

    def parse_record(line: bytes) -> InputRecord:
        found = pattern.fullmatch(line)
        if found is None:
            raise BadInput(f"{line[:60]!r} does not match the format {text!r}")
        fields = found.groupdict()
        decoded = {letter: _decoded(fields[letter], encodings[letter]) for letter in fields}
        return InputRecord(
            decoded.get("k", key),
            decoded.get("s", b""),
            parse_headers(fields.get("h", b"")),
            _number(fields, "T"),
            _number(fields, "p"),
        )

    return parse_record, delimiter


def _decoded(data: bytes, encoding: str) -> bytes:
    try:
        if encoding == "hex":
            return binascii.unhexlify(data)
        return base64.b64decode(data, validate=True) if encoding else data
    except binascii.Error:
        raise BadInput(f"{data[:60]!r} is not {encoding}") from None


def _number(fields: dict[str, bytes], letter: str) -> int | None:
    if letter not in fields:
        return None
    if not fields[letter].isdigit() or len(fields[letter]) > len(str(TIME_MAX)):
        raise BadInput(f"{fields[letter][:60]!r} is not a valid number for %{letter}")
    return min(int(fields[letter]), TIME_MAX)


def parse_headers(text: bytes) -> tuple[Header, ...]:
    """Parse `name=value,name=value`; a name alone has a null value."""
    return tuple(parse_header(part) for part in text.split(b",") if part)


def parse_header(text: bytes) -> Header:
    """Parse `name=value`; a name alone has a null value."""
    name, equals, value = text.partition(b"=")
    return Header.of(name, value if equals else None)
