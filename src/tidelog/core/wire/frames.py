"""What stands before the body of every request and response.

A frame travels with its length in front, four bytes. Whatever encodes here puts the length
there, ready to be sent; whatever decodes is given the frame without it.

Requests have header 2 in flexible versions of an API and header 1 before, responses 1 and 0.
The answer to ApiVersions has always header 0: who asks does not know yet what the broker
speaks. Of an API nobody knows the header is read as header 1, so that one can say so.
"""

from struct import Struct
from typing import NamedTuple

from tidelog.core.api_table import API_VERSIONS, APIS, NEVER, is_flexible
from tidelog.core.record.crc32c import Buffer
from tidelog.core.wire.primitives import (
    UNREADABLE,
    MalformedRequest,
    optional_string,
    skip_tags,
)

LENGTH_SIZE = 4

_REQUEST = Struct(">hhih")
"""Key, version, correlation id, length of the client id."""
_LENGTH_AND_REQUEST = Struct(">ihhi")
_LENGTH_AND_CORRELATION = Struct(">ii")
_CORRELATION = Struct(">i")
_FLEXIBLE = {api_key: api.flexible for api_key, api in APIS.items()}

new = tuple.__new__
"""Makes a named tuple in half the time that its own constructor takes."""


class RequestHeader(NamedTuple):
    """Who asks what, and where the body begins."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None
    position: int


def parse_request_header(frame: Buffer) -> RequestHeader:
    """Raises MalformedRequest."""
    try:
        api_key, version, correlation_id, length = _REQUEST.unpack_from(frame)
        position = _REQUEST.size
        client_id = None
        if length >= 0:
            position += length
            client_id = str(frame[_REQUEST.size : position], "utf-8")
        elif length < -1:
            raise MalformedRequest(f"a client id of length {length}")
        if version >= _FLEXIBLE.get(api_key, NEVER):
            position = position + 1 if frame[position] == 0 else skip_tags(frame, position)
    except UNREADABLE as reason:
        raise MalformedRequest(f"request header: {reason}") from reason
    if position > len(frame):
        raise MalformedRequest("a client id that reaches past the end")
    return new(RequestHeader, (api_key, version, correlation_id, client_id, position))


def parse_response_header(api_key: int, version: int, frame: Buffer) -> tuple[int, int]:
    """The correlation id, and where the body begins. Raises MalformedRequest."""
    try:
        (correlation_id,) = _CORRELATION.unpack_from(frame)
        position = _CORRELATION.size
        if _response_is_tagged(api_key, version):
            position = skip_tags(frame, position)
    except UNREADABLE as reason:
        raise MalformedRequest(f"response header: {reason}") from reason
    return correlation_id, position


def begin_request(
    api_key: int, version: int, correlation_id: int, client_id: str | None
) -> bytearray:
    """A frame to which the body is appended; `finish` sets its length."""
    frame = bytearray(_LENGTH_AND_REQUEST.pack(0, api_key, version, correlation_id))
    frame += optional_string(client_id)
    if is_flexible(api_key, version):
        frame.append(0)
    return frame


def begin_response(api_key: int, version: int, correlation_id: int) -> bytearray:
    """A frame to which the body is appended; `finish` sets its length."""
    frame = bytearray(_LENGTH_AND_CORRELATION.pack(0, correlation_id))
    if _response_is_tagged(api_key, version):
        frame.append(0)
    return frame


def finish(frame: bytearray, more: int = 0) -> bytes:
    """With its length in front; `more` bytes follow that are not in it."""
    _CORRELATION.pack_into(frame, 0, len(frame) - LENGTH_SIZE + more)
    return bytes(frame)


def _response_is_tagged(api_key: int, version: int) -> bool:
    return api_key != API_VERSIONS and is_flexible(api_key, version)
