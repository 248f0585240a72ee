"""Generates the function that encodes one version of a message.

The function is `function(output, struct)`, which appends to a bytearray. A key that is missing in
the struct gets its default; a key that the version does not have is ignored. A tagged field with
its default value is left out, as in Kafka.
"""

from collections.abc import Callable
from typing import Any, TypeAlias

from tidelog.core.wire import primitives
from tidelog.core.wire.schema.notation import ARRAY, FORMATS, NEVER, STRUCT, Field, runs, shape
from tidelog.core.wire.schema.source import Source

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
