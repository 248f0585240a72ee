"""Generates the functions that decode and encode one version of a message, as Python source.

A decoder is `function(data, position) -> (struct, position)`. Nested structs are inlined as loops,
and neighbouring fields of fixed size are unpacked together. An encoder is `function(output,
struct)`, which appends to a bytearray. A key that is missing in the struct gets its default; a key
that the version does not have is ignored. A tagged field with its default value is left out, as in
Kafka.

Invariant: a decoder checks every count before it loops (primitives.py), so work and memory are
bounded by the received bytes. Unknown tagged fields are skipped.
"""

from collections.abc import Callable
from struct import Struct
from typing import Any, TypeAlias

from tidelog.core.record.crc32c import Buffer
from tidelog.core.wire import primitives
from tidelog.core.wire.notation import (
    ARRAY,
    FORMATS,
    NEVER,
    STRUCT,
    Field,
    runs,
    shape,
    struct_size_min,
)
from tidelog.core.wire.primitives import MalformedRequest


class Source:
    """The source of one generated function."""

    def __init__(self, signature: str, version: int, *, flexible: bool) -> None:
        self.version = version
        self.flexible = flexible
        self._lines = [signature]
        self._depth = 1
        self._names = 0
        self._known: dict[str, Any] = {}

    def line(self, text: str) -> None:
        self._lines.append("    " * self._depth + text)

    def indent(self) -> None:
        self._depth += 1

    def dedent(self) -> None:
        self._depth -= 1

    def name(self, stem: str) -> str:
        """A unique variable name."""
        self._names += 1
        return f"{stem}{self._names}"

    def use(self, function: Callable[..., Any]) -> str:
        """Make a function available to the source under its own name."""
        self._known[function.__name__] = function
        return function.__name__

    def layout(self, run: list[Field]) -> tuple[str, Struct]:
        """The Struct of these neighbouring fields, and its name in the source."""
        format_ = "".join(FORMATS[field.type] for field in run)
        name = "layout_" + format_.replace("?", "t")
        layout = self._known.setdefault(name, Struct(">" + format_))
        return name, layout

    def compile(self, name: str) -> Any:
        """Compile the lines and return the function."""
        exec(compile("\n".join(self._lines), f"<{name}>", "exec"), self._known)
        return self._known["function"]


Decoder: TypeAlias = Callable[[Buffer, int], tuple[dict[str, Any], int]]

_TEXT_READERS = {
    # whether flexible, whether it may be null
    (False, False): primitives.read_string,
    (False, True): primitives.read_optional_string,
    (True, False): primitives.read_compact_string,
    (True, True): primitives.read_optional_compact_string,
}
_BYTES_READERS = {
    (False, False): primitives.read_bytes,
    (False, True): primitives.read_optional_bytes,
    (True, False): primitives.read_compact_bytes,
    (True, True): primitives.read_optional_compact_bytes,
}
_COUNT_READERS = {
    (False, False): primitives.read_count,
    (False, True): primitives.read_optional_count,
    (True, False): primitives.read_compact_count,
    (True, True): primitives.read_optional_compact_count,
}


def make_decoder(name: str, fields: tuple[Field, ...], version: int, *, flexible: bool) -> Decoder:
    """Build the decoder of one version of a message."""
    source = Source("def function(data, position):", version, flexible=flexible)
    struct = _read_struct(source, fields)
    source.line(f"return {struct}, position")
    decoder: Decoder = source.compile(name)
    return decoder


def _read_struct(source: Source, fields: tuple[Field, ...]) -> str:
    """Generate code that reads a struct; return the expression for its dict."""
    plain, tagged = shape(fields, source.version)
    names = {field.name: source.name(field.name) for field in plain + tagged}
    for run in runs(plain):
        if run[0].type in FORMATS:
            layout, form = source.layout(run)
            targets = ", ".join(names[field.name] for field in run)
            source.line(f"{targets}, = {layout}.unpack_from(data, position)")
            source.line(f"position += {form.size}")
        else:
            _read_field(source, run[0], names[run[0].name])
    if tagged:
        _read_tagged(source, tagged, names)
    elif source.flexible:
        skip = source.use(primitives.skip_tags)
        source.line("if data[position]:")
        source.line(f"    position = {skip}(data, position)")
        source.line("else:")
        source.line("    position += 1")
    return "{" + ", ".join(f"{key!r}: {variable}" for key, variable in names.items()) + "}"


def _read_field(source: Source, field: Field, target: str) -> None:
    how = (source.flexible, field.nullable.hold(source.version))
    if field.type == "string":
        source.line(f"{target}, position = {source.use(_TEXT_READERS[how])}(data, position)")
    elif field.type in ("bytes", "records"):
        source.line(f"{target}, position = {source.use(_BYTES_READERS[how])}(data, position)")
        if field.type == "bytes":
            source.line(f"{target} = {target} if {target} is None else bytes({target})")
    elif field.type == STRUCT:
        _read_inner_struct(source, field, target, nullable=how[1])
    elif field.type.startswith(ARRAY):
        _read_array(source, field, target, _COUNT_READERS[how])
    else:
        layout, form = source.layout([field])
        source.line(f"{target}, = {layout}.unpack_from(data, position)")
        source.line(f"position += {form.size}")


def _read_inner_struct(source: Source, field: Field, target: str, *, nullable: bool) -> None:
    if not nullable:
        source.line(f"{target} = {_read_struct(source, field.fields)}")
        return
    present = source.name("present")
    source.line(f"{present} = data[position] < 128")  # a byte: -1 is null
    source.line("position += 1")
    source.line(f"{target} = None")
    source.line(f"if {present}:")
    source.indent()
    source.line(f"{target} = {_read_struct(source, field.fields)}")
    source.dedent()


def _read_array(
    source: Source, field: Field, target: str, reader: Callable[[Buffer, int, int], Any]
) -> None:
    element = field.type.removeprefix(ARRAY)
    count = source.name("count")
    size = _element_size_min(source, field, element)
    source.line(f"{count}, position = {source.use(reader)}(data, position, {size})")
    source.line(f"{target} = None if {count} < 0 else []")
    if element == "i32":
        source.line(f"if {count} > 0:")
        read = source.use(primitives.read_int32s)
        source.line(f"    {target} = {read}(data, position, {count})")
        source.line(f"    position += 4 * {count}")
        return
    source.line(f"for _ in range({count}):")
    source.indent()
    if element:
        inner = source.name("element")
        never_null = field._replace(type=element, nullable=field.nullable._replace(first=1, last=0))
        _read_field(source, never_null, inner)
        source.line(f"{target}.append({inner})")
    else:
        source.line(f"{target}.append({_read_struct(source, field.fields)})")
    source.dedent()


def _element_size_min(source: Source, field: Field, element: str) -> int:
    if not element:
        smallest = struct_size_min(field.fields, source.version, flexible=source.flexible)
        return max(1, smallest)
    if element in FORMATS:
        return source.layout([field._replace(type=element)])[1].size
    return 1 if source.flexible else 2 if element == "string" else 4


def _read_tagged(source: Source, tagged: list[Field], names: dict[str, str]) -> None:
    read = source.use(primitives.read_uvarint)
    malformed = source.use(MalformedRequest)
    for field in tagged:
        empty = "[]" if field.default == () else repr(field.default)
        source.line(f"{names[field.name]} = {empty}")
    count, tag, end = source.name("count"), source.name("tag"), source.name("end")
    source.line(f"{count}, position = {read}(data, position)")
    source.line(f"for _ in range({count}):")
    source.indent()
    source.line(f"{tag}, position = {read}(data, position)")
    source.line(f"{end}, position = {read}(data, position)")
    source.line(f"{end} += position")
    source.line(f"if {end} > len(data):")
    source.line(f"    raise {malformed}('tagged field extends past the end of the message')")
    for field in tagged:
        source.line(f"if {tag} == {field.tag}:")
        source.indent()
        _read_field(source, field, names[field.name])
        source.line(f"if position != {end}:")
        source.line(f"    raise {malformed}('tagged field {field.name} has a wrong length')")
        source.dedent()
    source.line(f"position = {end}")
    source.dedent()


Encoder: TypeAlias = Callable[[bytearray, dict[str, Any]], None]

_TEXT_WRITERS = {
    # whether flexible, whether it may be null
    (False, False): primitives.string,
    (False, True): primitives.optional_string,
    (True, False): primitives.compact_string,
    (True, True): primitives.optional_compact_string,
}


def make_encoder(name: str, fields: tuple[Field, ...], version: int, *, flexible: bool) -> Encoder:
    """Build the encoder of one version of a message."""
    source = Source("def function(output, struct):", version, flexible=flexible)
    _write_struct(source, "output", "struct", fields)
    source.line("return")
    encoder: Encoder = source.compile(name)
    return encoder


def _write_struct(source: Source, output: str, struct: str, fields: tuple[Field, ...]) -> None:
    plain, tagged = shape(fields, source.version)
    get = source.name("get")
    source.line(f"{get} = {struct}.get")
    for run in runs(plain):
        if run[0].type in FORMATS:
            layout, _ = source.layout(run)
            values = ", ".join(f"{get}({field.name!r}, {field.default!r})" for field in run)
            source.line(f"{output} += {layout}.pack({values})")
        else:
            value = source.name(run[0].name)
            source.line(f"{value} = {get}({run[0].name!r}, {_default(run[0])})")
            _write_field(source, output, value, run[0])
    if tagged:
        _write_tagged(source, output, get, tagged)
    elif source.flexible:
        source.line(f"{output}.append(0)")


def _default(field: Field) -> str:
    return "{}" if field.type == STRUCT and field.nullable == NEVER else repr(field.default)


def _write_field(source: Source, output: str, value: str, field: Field) -> None:
    nullable = field.nullable.hold(source.version)
    if field.type == "string":
        writer = source.use(_TEXT_WRITERS[source.flexible, nullable])
        source.line(f"{output} += {writer}({value})")
    elif field.type in FORMATS:
        layout, _ = source.layout([field])
        source.line(f"{output} += {layout}.pack({value})")
    elif field.type == STRUCT:
        _write_inner_struct(source, output, value, field, nullable=nullable)
    else:
        _write_sized(source, output, value, field, nullable=nullable)


def _write_inner_struct(
    source: Source, output: str, value: str, field: Field, *, nullable: bool
) -> None:
    if not nullable:
        _write_struct(source, output, value, field.fields)
        return
    source.line(f"{output}.append(255 if {value} is None else 1)")
    source.line(f"if {value} is not None:")
    source.indent()
    _write_struct(source, output, value, field.fields)
    source.dedent()


def _write_sized(source: Source, output: str, value: str, field: Field, *, nullable: bool) -> None:
    """Generate code that writes bytes or an array, with the length in front."""
    prefix = source.use(
        primitives.compact_length_prefix if source.flexible else primitives.length_prefix
    )
    if nullable:
        source.line(f"if {value} is None:")
        source.line(f"    {output} += {prefix}(-1)")
        source.line("else:")
        source.indent()
    element = field.type.removeprefix(ARRAY)
    if element == "i32":
        writer = source.use(primitives.compact_int32s if source.flexible else primitives.int32s)
        source.line(f"{output} += {writer}({value})")
    elif field.type in ("bytes", "records"):
        source.line(f"{output} += {prefix}(len({value}))")
        source.line(f"{output} += {value}")
    else:
        source.line(f"{output} += {prefix}(len({value}))")
        inner = source.name("element")
        source.line(f"for {inner} in {value}:")
        source.indent()
        if element:
            _write_field(source, output, inner, field._replace(type=element, nullable=NEVER))
        else:
            _write_struct(source, output, inner, field.fields)
        source.dedent()
    if nullable:
        source.dedent()


def _write_tagged(source: Source, output: str, get: str, tagged: list[Field]) -> None:
    uvarint = source.use(primitives.uvarint)
    count, section = source.name("count"), source.name("section")
    source.line(f"{count}, {section} = 0, bytearray()")
    for field in tagged:
        value, body = source.name(field.name), source.name("body")
        source.line(f"{value} = {get}({field.name!r}, {field.default!r})")
        is_set = value if field.default == () else f"{value} != {field.default!r}"
        source.line(f"if {is_set}:")
        source.indent()
        source.line(f"{count} += 1")
        source.line(f"{body} = bytearray()")
        _write_field(source, body, value, field)
        source.line(f"{section} += {uvarint}({field.tag}) + {uvarint}(len({body})) + {body}")
        source.dedent()
    source.line(f"{output} += {uvarint}({count}) + {section}")
