"""Encode and decode any message of any API as a dict, by the tables in messages/.

A struct is a dict with Kafka's field names in snake_case, an array a list, an id sixteen bytes;
records are a slice of the frame. When a key is missing, Kafka's default is encoded; a key that a
version does not have is ignored. A tagged struct that was not sent is decoded as None.

A message's table is parsed and its function built on first use, so a broker loads only the
messages that it receives. Produce and Fetch have faster codecs of their own.
"""

from typing import Any, TypeAlias

from tidelog.core.api_table import (
    ACCESS,
    APIS,
    CLUSTER,
    GROUPS,
    PRIVATE,
    RECORDS,
    TRANSACTIONS,
    is_flexible,
)
from tidelog.core.record.crc32c import Buffer
from tidelog.core.wire.frames import begin_request, begin_response, finish, parse_response_header
from tidelog.core.wire.generator import Decoder, Encoder, make_decoder, make_encoder
from tidelog.core.wire.notation import Field, parse_fields
from tidelog.core.wire.primitives import UNREADABLE, MalformedRequest

Struct: TypeAlias = dict[str, Any]

REQUEST = "request"
RESPONSE = "response"
_PRIVATE_MESSAGE = """
request
  document bytes
response
  document bytes
"""

_texts: dict[int, str] = {}
_decoders: dict[tuple[int, int, str], Decoder] = {}
_encoders: dict[tuple[int, int, str], Encoder] = {}


def decode_request(api_key: int, version: int, frame: Buffer, position: int) -> Struct:
    """Decode the body that starts at `position`. Raises MalformedRequest."""
    return _decode(api_key, version, REQUEST, frame, position)


def decode_response(api_key: int, version: int, frame: Buffer) -> tuple[int, Struct]:
    """Decode a response: correlation id and body. Raises MalformedRequest."""
    correlation_id, position = parse_response_header(api_key, version, frame)
    return correlation_id, _decode(api_key, version, RESPONSE, frame, position)


def encode_request(
    api_key: int, version: int, correlation_id: int, client_id: str | None, struct: Struct
) -> bytes:
    """Encode a whole frame, with its length in front."""
    frame = begin_request(api_key, version, correlation_id, client_id)
    _encoder(api_key, version, REQUEST)(frame, struct)
    return finish(frame)


def encode_response(api_key: int, version: int, correlation_id: int, struct: Struct) -> bytes:
    """Encode a whole frame, with its length in front."""
    frame = begin_response(api_key, version, correlation_id)
    _encoder(api_key, version, RESPONSE)(frame, struct)
    return finish(frame)


def _decode(api_key: int, version: int, kind: str, frame: Buffer, position: int) -> Struct:
    key = (api_key, version, kind)
    decoder = _decoders.get(key)
    if decoder is None:
        name, fields = _message(api_key, version, kind)
        flexible = is_flexible(api_key, version)
        decoder = _decoders[key] = make_decoder(name, fields, version, flexible=flexible)
    try:
        return decoder(frame, position)[0]
    except UNREADABLE as reason:
        raise MalformedRequest(f"{APIS[api_key].name} {kind} {version}: {reason}") from reason


def _encoder(api_key: int, version: int, kind: str) -> Encoder:
    key = (api_key, version, kind)
    encoder = _encoders.get(key)
    if encoder is None:
        name, fields = _message(api_key, version, kind)
        flexible = is_flexible(api_key, version)
        encoder = _encoders[key] = make_encoder(name, fields, version, flexible=flexible)
    return encoder


def message_fields(api_key: int, version: int, kind: str) -> tuple[Field, ...]:
    """The fields of a message in all its versions, for tests and the fuzzer."""
    return _message(api_key, version, kind)[1]


def _message(api_key: int, version: int, kind: str) -> tuple[str, tuple[Field, ...]]:
    """The message's name for error texts, and its fields in all versions."""
    api = APIS.get(api_key)
    if api is None or version not in api.codec_versions:
        raise MalformedRequest(f"version {version} of API {api_key} is unknown")
    text = _text(api_key, api.messages)
    request, _, response = text.partition("\nresponse\n")
    lines = response if kind == RESPONSE else request.removeprefix("\nrequest\n")
    return f"{api.name} {kind} {version}", parse_fields(lines.splitlines())


def _text(api_key: int, family: str) -> str:
    """The message's text; its module is imported on first use."""
    if api_key not in _texts:
        _texts.update(_load(family))
    return _texts[api_key]


def _load(family: str) -> dict[int, str]:
    if family == CLUSTER:
        from tidelog.core.wire.messages.cluster import MESSAGES
    elif family == RECORDS:
        from tidelog.core.wire.messages.records import MESSAGES
    elif family == GROUPS:
        from tidelog.core.wire.messages.groups import MESSAGES
    elif family == TRANSACTIONS:
        from tidelog.core.wire.messages.transactions import MESSAGES
    elif family == ACCESS:
        from tidelog.core.wire.messages.access import MESSAGES
    else:
        MESSAGES = dict.fromkeys(PRIVATE, _PRIVATE_MESSAGE)
    return MESSAGES
