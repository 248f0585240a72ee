"""A strategy for any struct that a message allows, drawn from its fields."""

from typing import Any

from hypothesis import strategies as st

from tidelog.core.api_table import APIS
from tidelog.core.wire import codec
from tidelog.core.wire.notation import ARRAY, STRUCT, Field

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=6) | st.just("long" * 40)
PLAIN: dict[str, st.SearchStrategy[Any]] = {
    "bool": st.booleans(),
    "i8": st.integers(-(2**7), 2**7 - 1),
    "i16": st.integers(-(2**15), 2**15 - 1),
    "u16": st.integers(0, 2**16 - 1),
    "i32": st.integers(-(2**31), 2**31 - 1),
    "u32": st.integers(0, 2**32 - 1),
    "i64": st.integers(-(2**63), 2**63 - 1),
    "f64": st.floats(allow_nan=False),
    "string": TEXT,
    "uuid": st.binary(min_size=16, max_size=16),
    "bytes": st.binary(max_size=200),
    "records": st.binary(max_size=200),
}
MESSAGES = [
    (api_key, version, kind)
    for api_key, api in sorted(APIS.items())
    for version in api.codec_versions
    for kind in (codec.REQUEST, codec.RESPONSE)
]


def fields_of(api_key: int, version: int, kind: str) -> tuple[Field, ...]:
    return codec.message_fields(api_key, version, kind)


def structs(fields: tuple[Field, ...], version: int) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries(
        {field.name: values(field, version) for field in fields if field.versions.hold(version)}
    )


def values(field: Field, version: int) -> st.SearchStrategy[Any]:
    element = field.type.removeprefix(ARRAY)
    value = PLAIN[element] if element in PLAIN else structs(field.fields, version)
    if field.type.startswith(ARRAY):
        value = st.lists(value, max_size=2)
    nullable = field.nullable.hold(version) or (field.type == STRUCT and field.tag is not None)
    return value | st.none() if nullable else value


def messages() -> st.SearchStrategy[tuple[int, int, str, dict[str, Any]]]:
    """An API, a version, request or response, and a struct."""
    return st.sampled_from(MESSAGES).flatmap(
        lambda m: st.tuples(
            st.just(m[0]), st.just(m[1]), st.just(m[2]), structs(fields_of(*m), m[1])
        )
    )


def encoded(api_key: int, version: int, kind: str, struct: dict[str, Any]) -> bytes:
    if kind == codec.REQUEST:
        return codec.encode_request(api_key, version, 7, "client", struct)
    return codec.encode_response(api_key, version, 7, struct)
