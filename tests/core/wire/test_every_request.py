"""Every request of every version of every API: round trips succeed, truncated frames are refused,
and damaged frames are decoded or refused, with little work."""

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from wire_structs import MESSAGES, encoded, fields_of, structs

from tidelog.core.api_table import APIS, FETCH, PRODUCE
from tidelog.core.wire.codec import REQUEST, decode_request
from tidelog.core.wire.fetch_request import decode_fetch
from tidelog.core.wire.frames import LENGTH_SIZE, parse_request_header
from tidelog.core.wire.primitives import MalformedRequest
from tidelog.core.wire.produce import decode_produce
from tidelog.lab.fuzz.effort import Effort

REQUESTS = [message for message in MESSAGES if message[2] == REQUEST]
IDS = [f"{APIS[key].name}-{version}" for key, version, _ in REQUESTS]
CALLS_MAX = 20_000
"""Far more than a few hundred bytes can cost, and far less than a hang."""
ODD_BYTES = st.sampled_from([0, 1, 2, 0x7F, 0x80, 0xFE, 0xFF]) | st.integers(0, 255)


def read(frame: bytes) -> Any:
    """Decode as a broker does; with both decoders if there are two."""
    header = parse_request_header(frame)
    key, version, position = header.api_key, header.api_version, header.position
    if key == PRODUCE:
        decode_produce(version, frame, position, {})
    elif key == FETCH:
        decode_fetch(version, frame, position, {})
    return decode_request(key, version, frame, position)


def damaged(data: st.DataObject, frame: bytes, first: int) -> bytes:
    """Change, remove or insert bytes after the API key and version."""
    raw = bytearray(frame)
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(first, max(first, len(raw) - 1)))
        how = data.draw(st.sampled_from(["change", "change", "remove", "insert"]))
        if how == "change":
            raw[at : at + 1] = bytes([data.draw(ODD_BYTES)])
        elif how == "remove":
            del raw[at : at + data.draw(st.integers(1, 5))]
        else:
            raw[at:at] = bytes(data.draw(st.lists(ODD_BYTES, min_size=1, max_size=5)))
    return bytes(raw)


@pytest.mark.parametrize("message", REQUESTS, ids=IDS)
@settings(max_examples=8, deadline=None)
@given(data=st.data())
def test_round_trip_truncated_and_damaged_messages(
    message: tuple[int, int, str], data: st.DataObject
) -> None:
    api_key, version, kind = message
    struct = data.draw(structs(fields_of(*message), version))
    frame = encoded(api_key, version, kind, struct)[LENGTH_SIZE:]
    assert read(frame) == struct
    for end in {*range(min(len(frame), 40)), *range(max(len(frame) - 40, 0), len(frame))}:
        with pytest.raises(MalformedRequest):
            read(frame[:end])
    effort = Effort()
    for _ in range(3):
        other = damaged(data, frame, 4)
        with suppress(MalformedRequest), effort:
            read(other)
    assert effort.calls < CALLS_MAX
