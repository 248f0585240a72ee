"""The notation for Kafka's messages in messages/, and its parser.

A line has fields, separated by commas; the fields of a struct follow it, indented:

    brokers []
      node_id i32, host string, port i32, rack string 1+ ?1+ =null
    topics [] ?1+
      topic_id uuid 10+, name string ?10+

A field is its name and type, then in any order
    3+  8-10  7     the versions that have it (all, if none are named)
    ?  ?10+         may be null, in all versions or in these
    @2              is tagged field 2, in all versions that have it
    =-1  =null      the default (without it 0, false, "", no elements, no id)
Types: bool i8 i16 u16 i32 u32 i64 f64 string uuid bytes records; {} a struct, [] an array of
structs, []T an array of the plain type T.

Invariant: fields are in the order of the wire, except tagged fields, which come last in their
struct, by tag.
"""

from collections.abc import Iterator
from struct import calcsize
from typing import NamedTuple, TypeAlias

from tidelog.core.wire.primitives import NO_ID

STRUCT = "{}"
ARRAY = "[]"
VERSION_MAX = 32767

FORMATS = {
    "bool": "?",
    "i8": "b",
    "i16": "h",
    "u16": "H",
    "i32": "i",
    "u32": "I",
    "i64": "q",
    "f64": "d",
    "uuid": "16s",
}
"""The types of fixed size, with their format in the struct module."""

Default: TypeAlias = int | float | bool | str | bytes | tuple[()] | None

_DEFAULTS: dict[str, Default] = {
    "bool": False,
    "f64": 0.0,
    "string": "",
    "uuid": NO_ID,
    "bytes": b"",
    "records": None,
    STRUCT: None,
}


class Versions(NamedTuple):
    """A range of versions, both ends included."""

    first: int
    last: int

    def hold(self, version: int) -> bool:
        return self.first <= version <= self.last


ALL = Versions(0, VERSION_MAX)
NEVER = Versions(1, 0)


class Field(NamedTuple):
    """One field of a struct, in all its versions."""

    name: str
    type: str
    """A plain type, STRUCT, or ARRAY followed by its element's plain type, if it has one."""
    versions: Versions
    nullable: Versions
    tag: int | None
    default: Default
    fields: tuple["Field", ...]
    """The fields of the struct, or of the structs in the array."""


def parse_fields(lines: list[str]) -> tuple[Field, ...]:
    """Parse the fields of one message."""
    numbered = [(len(line) - len(line.lstrip()), line.strip()) for line in lines if line.strip()]
    fields, rest = _parse_block(numbered, 0, numbered[0][0] if numbered else 0)
    assert rest == len(numbered), f"wrong indentation: {numbered[rest]}"
    return fields


def _parse_block(
    lines: list[tuple[int, str]], at: int, indent: int
) -> tuple[tuple[Field, ...], int]:
    fields: list[Field] = []
    while at < len(lines) and lines[at][0] == indent:
        here = [_parse_field(text) for text in lines[at][1].split(", ")]
        at += 1
        if at < len(lines) and lines[at][0] > indent:
            inner, at = _parse_block(lines, at, lines[at][0])
            here[-1] = here[-1]._replace(fields=inner)
        fields += here
    return tuple(fields), at


def _parse_field(text: str) -> Field:
    name, kind, *marks = text.split()
    versions, nullable, tag = ALL, NEVER, None
    default: Default = () if kind.startswith(ARRAY) else _DEFAULTS.get(kind, 0)
    for mark in marks:
        sign, rest = mark[0], mark[1:]
        if sign == "?":
            nullable = _parse_versions(rest) if rest else ALL
        elif sign == "@":
            tag = int(rest)
        elif sign == "=":
            default = _parse_default(kind, rest)
        else:
            versions = _parse_versions(mark)
    return Field(name, kind, versions, nullable, tag, default, ())


def _parse_versions(text: str) -> Versions:
    if text.endswith("+"):
        return Versions(int(text[:-1]), VERSION_MAX)
    first, _, last = text.partition("-")
    return Versions(int(first), int(last or first))


def _parse_default(kind: str, text: str) -> Default:
    if text == "null":
        return None
    if kind == "bool":
        return text == "true"
    return text if kind == "string" else int(text, 0)


def shape(fields: tuple[Field, ...], version: int) -> tuple[list[Field], list[Field]]:
    """A struct in one version: its plain fields in order, and its tagged ones by tag."""
    here = [field for field in fields if field.versions.hold(version)]
    tagged = sorted((f for f in here if f.tag is not None), key=lambda f: f.tag or 0)
    return [field for field in here if field.tag is None], tagged


def runs(plain: list[Field]) -> Iterator[list[Field]]:
    """Group neighbouring fields of fixed size, which are read and written together; every other
    field is a group of its own."""
    run: list[Field] = []
    for field in plain:
        if field.type in FORMATS:
            run.append(field)
            continue
        if run:
            yield run
            run = []
        yield [field]
    if run:
        yield run


def size_min(field: Field, version: int, *, flexible: bool) -> int:
    """The smallest number of bytes of a field."""
    if field.type in FORMATS:
        return calcsize(">" + FORMATS[field.type])
    if field.type == STRUCT:
        return (
            1
            if field.nullable.hold(version)
            else struct_size_min(field.fields, version, flexible=flexible)
        )
    return 1 if flexible else 2 if field.type == "string" else 4


def struct_size_min(fields: tuple[Field, ...], version: int, *, flexible: bool) -> int:
    """The smallest number of bytes of a struct."""
    plain, _ = shape(fields, version)
    return flexible + sum(size_min(field, version, flexible=flexible) for field in plain)
