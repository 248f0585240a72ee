r"""Format strings in kcat's letters: `%t %p %o %k %s %S %K %T %h %%`, `\n \t \xNN`.

From rpk, the letters that kcat does not have: `%v %V` (as `%s %S`), `%e` the leader epoch, `%H`
the number of headers, `%i` the number of the record. `{hex}` or `{base64}` after a key or a value
encodes its bytes. Where the two differ, kcat's meaning applies.

Invariants: a format is compiled once; a record's bytes are printed unchanged.
"""

import base64
import binascii
import re
from collections.abc import Callable
from typing import NamedTuple, TypeAlias

from tidelog.core.record.decoder import LogRecord
from tidelog.core.record.record import Header

LETTERS = "tpoksSKThvVHei%R"
_FIELD = re.compile(rb"%(.)(?:\{(hex|base64)\})?", re.DOTALL)
_ESCAPE = re.compile(rb"\\(x[0-9a-fA-F]{2}|.)", re.DOTALL)
_SIMPLE = {b"n": b"\n", b"r": b"\r", b"t": b"\t", b"0": b"\0", b"\\": b"\\"}
_ENCODABLE = "kvs"
_NUMBERS = "poTHei"
NULL_LENGTH = b"-1"


class Field(NamedTuple):
    """A letter and the encoding of its bytes: "", "hex" or "base64"."""

    letter: str
    encoding: str = ""


Piece: TypeAlias = bytes | Field
Getter: TypeAlias = Callable[[str, int, LogRecord, int], bytes | int]
"""Maps topic, partition, record and its number to the value of a field."""


def unescape(text: str) -> bytes:
    r"""Replace `\n`, `\t`, `\r`, `\0`, `\\` and `\xNN`. Raises ValueError."""

    def replace(found: re.Match[bytes]) -> bytes:
        code = found[1]
        if code[:1] == b"x" and len(code) == 3:
            return bytes([int(code[1:], 16)])
        if code not in _SIMPLE:
            shown = code.decode(errors="replace")
            raise ValueError(f"\\{shown} is unknown; use \\n, \\t, \\r, \\0, \\\\ or \\xNN")
        return _SIMPLE[code]

    return _ESCAPE.sub(replace, text.encode(errors="surrogateescape"))


def parse(text: str) -> list[Piece]:
    """Split a format into fields and the bytes between them. Raises ValueError."""
    pieces: list[Piece] = []
    raw = text.encode(errors="surrogateescape")
    position = 0
    for found in _FIELD.finditer(raw):
        letter = found[1].decode(errors="replace")
        if letter not in LETTERS:
            raise ValueError(f"%{letter} is unknown; use one of %{' %'.join(LETTERS)}")
        encoding = (found[2] or b"").decode()
        if encoding and letter not in _ENCODABLE:
            raise ValueError(f"%{letter} can't be encoded as {encoding}; only %k, %s and %v can")
        _add(pieces, unescape(raw[position : found.start()].decode(errors="surrogateescape")))
        if letter == "%":
            _add(pieces, b"%")
        else:
            pieces.append(Field("s" if letter == "v" else letter, encoding))
        position = found.end()
    rest = raw[position:].decode(errors="surrogateescape")
    if rest.endswith("%"):
        raise ValueError("single % at the end; write %% for a percent sign")
    _add(pieces, unescape(rest))
    return pieces


def _add(pieces: list[Piece], literal: bytes) -> None:
    if literal and pieces and isinstance(pieces[-1], bytes):
        pieces[-1] += literal
    elif literal:
        pieces.append(literal)


def compile_format(
    text: str, null: bytes = b""
) -> Callable[[str, int, list[LogRecord], int], bytes]:
    """Return a function of topic, partition, records and the first record's number that formats
    records; `null` is printed for null keys and values. Raises ValueError."""
    template = b""
    getters: list[Getter] = []
    for piece in parse(text):
        if isinstance(piece, bytes):
            template += piece.replace(b"%", b"%%")
            continue
        template += b"%d" if piece.letter in _NUMBERS else b"%b"
        getters.append(_getter(piece, null))
    if template == b"%b\n" and parse(text) == [Field("s"), b"\n"]:
        return lambda _topic, _partition, records, _number: b"".join(
            [(null if record.value is None else record.value) + b"\n" for record in records]
        )

    def render(topic: str, partition: int, records: list[LogRecord], number: int) -> bytes:
        return b"".join(
            [
                template % tuple([get(topic, partition, record, at) for get in getters])
                for at, record in enumerate(records, number)
            ]
        )

    return render


def _getter(field: Field, null: bytes) -> Getter:
    encode = _ENCODINGS[field.encoding]
    getters: dict[str, Getter] = {
        "t": lambda topic, _partition, _record, _number: topic.encode(),
        "p": lambda _topic, partition, _record, _number: partition,
        "o": lambda _topic, _partition, record, _number: record.offset,
        "k": lambda _t, _p, record, _n: null if record.key is None else encode(record.key),
        "s": lambda _t, _p, record, _n: null if record.value is None else encode(record.value),
        "S": lambda _topic, _partition, record, _number: _length(record.value),
        "V": lambda _topic, _partition, record, _number: _length(record.value),
        "K": lambda _topic, _partition, record, _number: _length(record.key),
        "R": lambda _topic, _partition, record, _number: _binary_length(record.value),
        "T": lambda _topic, _partition, record, _number: record.timestamp,
        "h": lambda _topic, _partition, record, _number: headers_text(record.headers),
        "H": lambda _topic, _partition, record, _number: len(record.headers),
        "e": lambda _topic, _partition, record, _number: record.leader_epoch,
        "i": lambda _topic, _partition, _record, number: number,
    }
    return getters[field.letter]


def _length(data: bytes | None) -> bytes:
    return NULL_LENGTH if data is None else b"%d" % len(data)


def _binary_length(data: bytes | None) -> bytes:
    """Return kcat's %R: the length as four bytes, big-endian."""
    return (-1 if data is None else len(data)).to_bytes(4, "big", signed=True)


_ENCODINGS: dict[str, Callable[[bytes], bytes]] = {
    "": lambda data: data,
    "hex": binascii.hexlify,
    "base64": base64.b64encode,
}


def headers_text(headers: tuple[Header, ...]) -> bytes:
    """Format headers as `name=value,name=value`, with NULL for a null value."""
    return b",".join(
        [
            header.key_bytes() + b"=" + (b"NULL" if header.value is None else header.value)
            for header in headers
        ]
    )
