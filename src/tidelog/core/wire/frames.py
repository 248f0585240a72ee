"""The headers of requests and responses.

A frame is sent with its length in front, four bytes. The encoders here return frames with the
length, ready to be sent; the decoders get frames without it.

Requests have header 2 in flexible versions of an API and header 1 before; responses 1 and 0. The
response to ApiVersions always has header 0: the client does not know yet which versions the broker
supports. The header of an unknown API is parsed as header 1, so that the error can name the
API.
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
"""Creates a named tuple in half the time of its own constructor."""


class RequestHeader(NamedTuple):
    """The fields of a request header, and the position of the body."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None
    position: int


def parse_request_header(frame: Buffer) -> RequestHeader:
    """Parse a request header. Raises MalformedRequest."""
    try:
        api_key, version, correlation_id, length = _REQUEST.unpack_from(frame)
        position = _REQUEST.size
        client_id = None
        if length >= 0:
            position += length
            client_id = str(frame[_REQUEST.size : position], "utf-8")
        elif length < -1:
            raise MalformedRequest(f"client id has invalid length {length}")
        if version >= _FLEXIBLE.get(api_key, NEVER):
            position = position + 1 if frame[position] == 0 else skip_tags(frame, position)
    except UNREADABLE as reason:
        raise MalformedRequest(f"request header: {reason}") from reason
    if position > len(frame):
        raise MalformedRequest("client id extends past the end of the frame")
    return new(RequestHeader, (api_key, version, correlation_id, client_id, position))


def parse_response_header(api_key: int, version: int, frame: Buffer) -> tuple[int, int]:
    """Return the correlation id and the position of the body. Raises MalformedRequest."""
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
    """Start a frame; the caller appends the body, and `finish` sets the length."""
    frame = bytearray(_LENGTH_AND_REQUEST.pack(0, api_key, version, correlation_id))
    frame += optional_string(client_id)
    if is_flexible(api_key, version):
        frame.append(0)
    return frame


def begin_response(api_key: int, version: int, correlation_id: int) -> bytearray:
    """Start a frame; the caller appends the body, and `finish` sets the length."""
    frame = bytearray(_LENGTH_AND_CORRELATION.pack(0, correlation_id))
    if _response_is_tagged(api_key, version):
        frame.append(0)
    return frame


def finish(frame: bytearray, more: int = 0) -> bytes:
    """Set the frame's length, including `more` bytes that will be sent after it."""
    _CORRELATION.pack_into(frame, 0, len(frame) - LENGTH_SIZE + more)
    return bytes(frame)


def _response_is_tagged(api_key: int, version: int) -> bool:
    return api_key != API_VERSIONS and is_flexible(api_key, version)
