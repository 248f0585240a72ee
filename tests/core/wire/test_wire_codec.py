"""Every message of every version: encoded messages are decoded again; invalid bytes are refused."""

from typing import Any

import pytest
from hypothesis import given, settings
from wire_structs import MESSAGES, encoded, fields_of, messages

from tidelog.core.api_table import APIS, PRIVATE, known_versions
from tidelog.core.wire.codec import (
    REQUEST,
    decode_request,
    decode_response,
    encode_request,
    encode_response,
)
from tidelog.core.wire.frames import LENGTH_SIZE, parse_request_header
from tidelog.core.wire.generator import make_decoder, make_encoder
from tidelog.core.wire.notation import Field, Versions, parse_fields
from tidelog.core.wire.primitives import NO_ID, MalformedRequest

METADATA, SYNC_GROUP, API_VERSIONS, CREATE_TOPICS, DESCRIBE_TOPIC_PARTITIONS = 3, 14, 18, 19, 75


def decoded(api_key: int, version: int, kind: str, frame: bytes) -> dict[str, Any]:
    body = frame[LENGTH_SIZE:]
    assert int.from_bytes(frame[:LENGTH_SIZE]) == len(body)
    if kind == REQUEST:
        header = parse_request_header(body)
        assert header[:4] == (api_key, version, 7, "client")
        return decode_request(api_key, version, body, header.position)
    correlation_id, struct = decode_response(api_key, version, body)
    assert correlation_id == 7
    return struct


@settings(max_examples=300, deadline=None)
@given(messages())
def test_round_trip(message: tuple[int, int, str, dict[str, Any]]) -> None:
    api_key, version, kind, struct = message
    assert decoded(api_key, version, kind, encoded(*message)) == struct


@pytest.mark.parametrize("message", MESSAGES, ids=lambda m: f"{APIS[m[0]].name}-{m[2]}-{m[1]}")
def test_empty_struct_gets_defaults(message: tuple[int, int, str]) -> None:
    api_key, version, kind = message
    struct = decoded(api_key, version, kind, encoded(api_key, version, kind, {}))
    for field in fields_of(*message):
        if not field.versions.hold(version):
            assert field.name not in struct
        elif field.type != "{}":
            expected: object = [] if field.default == () else field.default
            assert struct[field.name] == expected, field


def test_fields_of_other_versions_are_ignored() -> None:
    struct = {"topics": None, "allow_auto_topic_creation": "nonsense", "no_such_field": object()}
    frame = encode_request(METADATA, 1, 7, "client", struct)
    assert decoded(METADATA, 1, REQUEST, frame) == {"topics": None}


def test_a_default_in_a_tagged_field_is_left_out() -> None:
    told = {"error_code": 0, "finalized_features_epoch": 0, "supported_features": []}
    silent = {"error_code": 0, "finalized_features_epoch": -1}
    longer = encode_response(API_VERSIONS, 3, 7, told)
    shorter = encode_response(API_VERSIONS, 3, 7, silent)
    assert len(longer) - len(shorter) == len(b"\1\x08") + 8
    assert shorter == encode_response(API_VERSIONS, 3, 7, {})


def test_unknown_tagged_fields_are_skipped() -> None:
    frame = bytearray(encode_request(API_VERSIONS, 3, 7, "client", {"client_software_name": "x"}))
    frame[-1:] = b"\2\0\1a\x7f\0"  # tags 0 and 127, one of them empty
    del frame[:LENGTH_SIZE]
    struct = decode_request(API_VERSIONS, 3, frame, parse_request_header(frame).position)
    assert struct == {"client_software_name": "x", "client_software_version": ""}
    response = encode_response(API_VERSIONS, 3, 7, {})[LENGTH_SIZE:]
    assert response.endswith(b"\0")
    with_tags = response[:-1] + b"\3\4\1a" + b"\1\x08" + bytes(7) + b"\5" + b"\x7f\0"
    assert decode_response(API_VERSIONS, 3, with_tags)[1]["finalized_features_epoch"] == 5


def test_a_tagged_field_of_the_wrong_length_is_refused() -> None:
    response = encode_response(API_VERSIONS, 3, 7, {})[LENGTH_SIZE:-1]
    with pytest.raises(MalformedRequest, match="wrong length"):
        decode_response(API_VERSIONS, 3, response + b"\1\1\x09" + bytes(9))
    with pytest.raises(MalformedRequest, match="past the end"):
        decode_response(API_VERSIONS, 3, response + b"\1\1\x09" + bytes(8))


def test_a_struct_may_be_null() -> None:
    cursor = {"topic_name": "orders", "partition_index": 3}
    for value in (None, cursor):
        frame = encode_request(DESCRIBE_TOPIC_PARTITIONS, 0, 7, "client", {"cursor": value})
        assert decoded(DESCRIBE_TOPIC_PARTITIONS, 0, REQUEST, frame)["cursor"] == value


@pytest.mark.parametrize("api_key", PRIVATE)
def test_private_apis_carry_a_document(api_key: int) -> None:
    version = APIS[api_key].codec_versions[-1]
    request = encode_request(api_key, version, 7, "client", {"document": b'{"a":1}'})
    assert request.endswith(b"\0\0\0\x07" + b'{"a":1}')
    assert decoded(api_key, version, REQUEST, request) == {"document": b'{"a":1}'}
    response = encode_response(api_key, version, 7, {"document": b"{}"})
    assert response.hex() == "0000000a" + "00000007" + "00000002" + b"{}".hex()


def test_records_are_a_view_and_bytes_are_a_copy() -> None:
    records = {"topic_data": [{"name": "t", "partition_data": [{"index": 0, "records": b"abc"}]}]}
    frame = bytearray(encode_request(0, 9, 7, "client", records)[LENGTH_SIZE:])
    struct = decode_request(0, 9, memoryview(frame), parse_request_header(frame).position)
    view = struct["topic_data"][0]["partition_data"][0]["records"]
    view[0] = ord("z")
    assert b"zbc" in frame
    private = memoryview(encode_response(32000, 0, 7, {"document": b"{}"}))[LENGTH_SIZE:]
    assert type(decode_response(32000, 0, private)[1]["document"]) is bytes


@pytest.mark.parametrize(("api_key", "version"), [(4, 0), (METADATA, 14), (CREATE_TOPICS, 1)])
def test_unknown_versions_are_refused(api_key: int, version: int) -> None:
    with pytest.raises(MalformedRequest, match="is unknown"):
        decode_request(api_key, version, b"", 0)
    with pytest.raises(MalformedRequest, match="is unknown"):
        encode_response(api_key, version, 0, {})


def test_known_versions() -> None:
    assert known_versions(METADATA) == (0, 13)
    assert known_versions(4) is None


LENGTHY = {
    "an array longer than the frame": (CREATE_TOPICS, 2, "7fffffff"),
    "a null array": (CREATE_TOPICS, 2, "ffffffff"),
    "a negative array": (METADATA, 1, "fffffffe"),
    "a compact array longer than the frame": (CREATE_TOPICS, 5, "ffffffff0f"),
    "a null compact array": (CREATE_TOPICS, 5, "00"),
    "a varint that never ends": (CREATE_TOPICS, 5, "ffffffffffff"),
    "a varint of more than 32 bits": (CREATE_TOPICS, 5, "ffffffff7f"),
    "a string longer than the frame": (CREATE_TOPICS, 2, "000000017fff" + "00" * 20),
    "a null string": (CREATE_TOPICS, 2, "00000001ffff" + "00" * 20),
    "a negative string": (CREATE_TOPICS, 2, "00000001fffe" + "00" * 20),
    "a compact string longer than the frame": (CREATE_TOPICS, 5, "027f" + "00" * 20),
    "a null compact string": (CREATE_TOPICS, 5, "0200" + "00" * 20),
    "no text": (CREATE_TOPICS, 5, "0203ffff" + "00" * 20),
    "bytes longer than the frame": (32000, 0, "7fffffff"),
    "null bytes": (32000, 0, "ffffffff"),
    "negative bytes": (32000, 0, "fffffffe"),
    "compact bytes longer than the frame": (SYNC_GROUP, 4, "01 00000001 01 00 02 01 7f 0000"),
    "null compact bytes": (SYNC_GROUP, 4, "01 00000001 01 00 02 01 00 0000"),
    "nothing": (METADATA, 1, ""),
}


@pytest.mark.parametrize(("api_key", "version", "body"), LENGTHY.values(), ids=LENGTHY)
def test_damage_is_refused(api_key: int, version: int, body: str) -> None:
    with pytest.raises(MalformedRequest):
        decode_request(api_key, version, bytes.fromhex(body), 0)


@pytest.mark.parametrize("count", [0, 1, 7, 8, 127, 128])
@pytest.mark.parametrize("version", [1, 2])
def test_arrays_short_and_long(version: int, count: int) -> None:
    """ElectLeaders before and after its first flexible version."""
    topics = [{"topic": f"t{i}", "partitions": list(range(i))} for i in (count, 0)]
    struct = {"election_type": 1, "topic_partitions": topics * (1 + count // 2), "timeout_ms": 9}
    frame = encode_request(43, version, 7, "client", struct)
    assert decoded(43, version, REQUEST, frame) == struct


def test_plain_bytes_that_may_be_null() -> None:
    """Only Produce and Fetch have such fields in versions before compact lengths."""
    fields = parse_fields(["data bytes ?, ids []uuid, port u16, share f64"])
    for flexible in (False, True):
        encode = make_encoder("test", fields, 0, flexible=flexible)
        decode = make_decoder("test", fields, 0, flexible=flexible)
        for data in (None, b"", b"abc"):
            struct = {"data": data, "ids": [NO_ID, b"i" * 16], "port": 65535, "share": 0.5}
            output = bytearray()
            encode(output, struct)
            assert decode(output, 0) == (struct, len(output))


def test_schema_notation() -> None:
    fields = parse_fields(
        [
            "  brokers [] ?1+",
            "    node_id i32, rack string 1-3 ? =null",
            "  epoch i64 3+ @2 =0x10",
        ]
    )
    forever = 32767
    assert fields == (
        Field(
            "brokers",
            "[]",
            Versions(0, forever),
            Versions(1, forever),
            None,
            (),
            (
                Field("node_id", "i32", Versions(0, forever), Versions(1, 0), None, 0, ()),
                Field("rack", "string", Versions(1, 3), Versions(0, forever), None, None, ()),
            ),
        ),
        Field("epoch", "i64", Versions(3, forever), Versions(1, 0), 2, 16, ()),
    )
    with pytest.raises(AssertionError, match="indentation"):
        parse_fields(["    a i8", "  b i8"])
