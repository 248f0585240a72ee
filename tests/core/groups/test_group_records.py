"""Records of `__consumer_offsets`: Kafka's own bytes, older versions, and damage."""

import json
import re
import tarfile
from base64 import urlsafe_b64decode
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.core.coordinator.shard import DamagedRecord
from tidelog.core.groups.records import (
    GroupKey,
    GroupValue,
    MemberValue,
    OffsetKey,
    OffsetValue,
    decode_group_value,
    decode_key,
    decode_offset_value,
    encode_group_value,
    encode_key,
    encode_offset_value,
)
from tidelog.core.record.decoder import LogRecord, decode
from tidelog.core.record.record_batch import batches

DATA = Path(__file__).parents[2] / "data" / "kafka-4.3.1"

TEXTS = st.text(max_size=20)
NUMBERS_32 = st.integers(0, 2**31 - 1)
NUMBERS_64 = st.integers(0, 2**63 - 1)
OFFSET_VALUES = st.builds(
    OffsetValue,
    NUMBERS_64,
    st.none() | NUMBERS_32,
    st.text(max_size=300),
    NUMBERS_64,
    expire_timestamp=st.none(),
    topic_id=st.none() | st.binary(min_size=16, max_size=16).filter(any),
)
MEMBERS = st.builds(
    MemberValue,
    TEXTS,
    st.none() | TEXTS,
    TEXTS,
    TEXTS,
    NUMBERS_32,
    NUMBERS_32,
    st.binary(max_size=20),
    st.binary(max_size=20),
)
GROUP_VALUES = st.builds(
    GroupValue,
    TEXTS,
    NUMBERS_32,
    st.none() | TEXTS,
    st.none() | TEXTS,
    st.none() | NUMBERS_64,
    st.lists(MEMBERS, max_size=3),
)
DECODERS: list[Any] = [decode_key, decode_offset_value, decode_group_value]


def real_records() -> list[LogRecord]:
    """Return all records that Kafka wrote, of every broker and partition."""
    found = []
    with tarfile.open(DATA / "clean.tar.gz") as archive:
        for member in archive:
            if "/__consumer_offsets-" in member.name and member.name.endswith(".log"):
                file = archive.extractfile(member)
                assert file is not None
                for batch in batches(bytearray(file.read())):
                    found += [one for one in decode(batch) if one.control is None]
    return found


REAL = real_records()


def dumped() -> list[tuple[Any, Any]]:
    """Keys and values as Kafka's own tool reads them on broker 1."""
    paths = sorted((DATA / "dumps").glob("__consumer_offsets-*.txt"))
    pairs = re.findall(
        r"key: (\{.*\}) payload: (.*)$", "\n".join(path.read_text() for path in paths), re.MULTILINE
    )
    return [(json.loads(key), json.loads(value)) for key, value in pairs]


def test_kafkas_own_bytes_decode_and_encode_back() -> None:
    kinds = set()
    for record in REAL:
        assert record.key is not None
        key = decode_key(record.key)
        assert key is not None
        kinds.add(type(key))
        assert encode_key(key) == record.key
        if record.value is None:
            continue
        if isinstance(key, OffsetKey):
            assert encode_offset_value(decode_offset_value(record.value)) == record.value
        else:
            assert encode_group_value(decode_group_value(record.value)) == record.value
    assert kinds == {OffsetKey, GroupKey}
    assert len(REAL) >= 15


def test_decoded_records_match_kafkas_own_tool() -> None:
    ours = {(record.key, record.value): record for record in REAL if record.value is not None}
    told = []
    for raw_key, raw_value in ours:
        assert raw_key is not None
        assert raw_value is not None
        key = decode_key(raw_key)
        if isinstance(key, OffsetKey):
            told.append(as_dumped_offset(key, decode_offset_value(raw_value)))
        else:
            assert isinstance(key, GroupKey)
            told.append(as_dumped_group(key, decode_group_value(raw_value)))
    expected = [without_assignments(*pair) for pair in dumped()]
    assert len(expected) >= 5
    for pair in expected:
        assert pair in told


def as_dumped_offset(key: OffsetKey, value: OffsetValue) -> tuple[Any, Any]:
    return key._asdict(), {
        "offset": value.offset,
        "leaderEpoch": value.leader_epoch,
        "metadata": value.metadata,
        "commitTimestamp": value.commit_timestamp,
        "topicId": value.topic_id,
    }


def as_dumped_group(key: GroupKey, value: GroupValue) -> tuple[Any, Any]:
    return key._asdict(), {
        "protocolType": value.protocol_type,
        "generation": value.generation,
        "protocol": value.protocol,
        "leader": value.leader,
        "currentStateTimestamp": value.current_state_timestamp,
        "members": [
            {
                "memberId": member.member_id,
                "groupInstanceId": member.group_instance_id,
                "clientId": member.client_id,
                "clientHost": member.client_host,
                "rebalanceTimeout": member.rebalance_timeout,
                "sessionTimeout": member.session_timeout,
            }
            for member in value.members
        ],
    }


def without_assignments(key: Any, value: Any) -> tuple[Any, Any]:
    """Kafka's tool decodes metadata that brokers treat as bytes."""
    data = value["data"]
    for member in data.get("members", []):
        del member["subscription"], member["assignment"]
    if "topicId" in data:
        data["topicId"] = urlsafe_b64decode(data["topicId"] + "==")
    return key["data"], data


@given(TEXTS, TEXTS, NUMBERS_32)
def test_keys(group: str, topic: str, partition: int) -> None:
    for key in (OffsetKey(group, topic, partition), GroupKey(group)):
        assert decode_key(encode_key(key)) == key


@given(OFFSET_VALUES)
def test_offsets(value: OffsetValue) -> None:
    assert decode_offset_value(encode_offset_value(value)) == value


def test_an_offset_that_expires_has_no_leader_epoch() -> None:
    value = OffsetValue(5, 3, "note", 1000, 2000, bytes(range(16)))
    encoded = encode_offset_value(value)
    assert encoded[:2] == b"\0\1"
    assert decode_offset_value(encoded) == OffsetValue(5, None, "note", 1000, 2000)


@given(GROUP_VALUES)
def test_groups(value: GroupValue) -> None:
    assert decode_group_value(encode_group_value(value)) == value


def i16(number: int) -> bytes:
    return number.to_bytes(2, "big", signed=True)


def i32(number: int) -> bytes:
    return number.to_bytes(4, "big", signed=True)


def i64(number: int) -> bytes:
    return number.to_bytes(8, "big", signed=True)


def text(words: str) -> bytes:
    return i16(len(words)) + words.encode()


@pytest.mark.parametrize(
    ("version", "body", "expected"),
    [
        (0, i64(9) + text("m") + i64(7), OffsetValue(9, None, "m", 7)),
        (1, i64(9) + text("m") + i64(7) + i64(8), OffsetValue(9, None, "m", 7, 8)),
        (1, i64(9) + text("m") + i64(7) + i64(-1), OffsetValue(9, None, "m", 7)),
        (2, i64(9) + text("") + i64(7), OffsetValue(9, None, "", 7)),
        (3, i64(9) + i32(4) + text("m") + i64(7), OffsetValue(9, 4, "m", 7)),
        (3, i64(9) + i32(-1) + text("m") + i64(7), OffsetValue(9, None, "m", 7)),
        (4, i64(9) + i32(4) + b"\2m" + i64(7) + b"\0", OffsetValue(9, 4, "m", 7)),
        (
            4,
            i64(9) + i32(4) + b"\2m" + i64(7) + b"\2\0\x10" + bytes(range(16)) + b"\5\2??",
            OffsetValue(9, 4, "m", 7, None, bytes(range(16))),
        ),
        (4, i64(9) + i32(4) + b"\1" + i64(7) + b"\1\0\x10" + bytes(16), OffsetValue(9, 4, "", 7)),
    ],
)
def test_offsets_of_all_versions(version: int, body: bytes, expected: OffsetValue) -> None:
    assert decode_offset_value(i16(version) + body) == expected


def member(version: int) -> bytes:
    parts = [text("m-1")]
    parts += [text("fixed")] if version >= 3 else []
    parts += [text("m"), text("/::1")]
    parts += [i32(300)] if version >= 1 else []
    return b"".join([*parts, i32(100), i32(2) + b"ab", i32(0)])


@pytest.mark.parametrize("version", [0, 1, 2, 3])
def test_groups_of_fixed_versions(version: int) -> None:
    changed = i64(55) if version >= 2 else b""
    body = text("consumer") + i32(7) + text("range") + text("m-1") + changed + i32(1)
    instance = "fixed" if version >= 3 else None
    rebalance_timeout = 300 if version >= 1 else 100
    expected = MemberValue("m-1", instance, "m", "/::1", rebalance_timeout, 100, b"ab", b"")
    assert decode_group_value(i16(version) + body + member(version)) == GroupValue(
        "consumer", 7, "range", "m-1", 55 if version >= 2 else None, [expected]
    )


def test_a_flexible_group() -> None:
    head = b"\x09consumer" + i32(7) + b"\x06range" + b"\0" + i64(55) + b"\2"
    one = b"\4m-1" + b"\0" + b"\2m" + b"\5/::1" + i32(300) + i32(100) + b"\3ab" + b"\1" + b"\0"
    assert decode_group_value(i16(4) + head + one + b"\1\x07\3???") == GroupValue(
        "consumer",
        7,
        "range",
        None,
        55,
        [MemberValue("m-1", None, "m", "/::1", 300, 100, b"ab", b"")],
    )


@pytest.mark.parametrize("kind", [-1, 3, 15, 32767])
def test_keys_of_unknown_kinds_are_ignored(kind: int) -> None:
    assert decode_key(i16(kind) + b"whatever") is None


def test_the_oldest_keys() -> None:
    key = i16(0) + text("g") + text("t") + i32(3)
    assert decode_key(key) == OffsetKey("g", "t", 3)


@pytest.mark.parametrize("version", [-1, 5, 99])
def test_values_of_unknown_versions_are_damage(version: int) -> None:
    for decoder in (decode_offset_value, decode_group_value):
        with pytest.raises(DamagedRecord, match=f"version {version}"):
            decoder(i16(version) + bytes(50))


@given(st.sampled_from(DECODERS), st.integers(-1, 5), st.binary(max_size=80))
def test_any_bytes_decode_or_are_damaged(decoder: Any, version: int, body: bytes) -> None:
    for data in (body, i16(version) + body):
        with suppress(DamagedRecord):
            decoder(data)


@given(GROUP_VALUES, OFFSET_VALUES, st.data())
def test_truncated_records_are_damaged(
    group: GroupValue, offset: OffsetValue, data: st.DataObject
) -> None:
    whole: list[tuple[Any, bytes]] = [
        (decode_group_value, encode_group_value(group)),
        (decode_offset_value, encode_offset_value(offset)),
        (decode_key, encode_key(OffsetKey("group", "topic", 0))),
        (decode_key, encode_key(GroupKey("group"))),
    ]
    for decoder, encoded in whole:
        cut = data.draw(st.integers(0, len(encoded) - 1))
        with pytest.raises(DamagedRecord):
            decoder(encoded[:cut])


def test_a_string_that_is_too_long_is_not_encoded() -> None:
    encode_key(GroupKey("g" * 32767))
    with pytest.raises(ValueError, match="32768 bytes"):
        encode_key(GroupKey("g" * 32768))
