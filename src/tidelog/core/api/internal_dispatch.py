"""The requests that brokers send to each other: follower fetches, and calls to the controller.

A connection begins with the handshake (handshake.py); every request before it closes the
connection. Responses carry the request's number and leave as soon as they are ready: a long poll
delays nothing behind it.
"""

import json
from collections.abc import Callable
from typing import Any, Protocol

from tidelog.core.api.dispatch import Dispatch, Refused
from tidelog.core.api.exchange import Chunks
from tidelog.core.api.handshake import HandshakeFailed, ListeningHandshake
from tidelog.core.api.peer_session import PeerSession
from tidelog.core.node import events as on
from tidelog.core.wire.apis import CONTROLLER_CALL, FETCH, HELLO, HELLO_VERSION, SET_FAULTS
from tidelog.core.wire.codec import decode_request, encode_response
from tidelog.core.wire.controller_calls import UnknownCall, decode_call, encode_call
from tidelog.core.wire.fetch_request import decode_fetch
from tidelog.core.wire.frames import RequestHeader, parse_request_header
from tidelog.core.wire.primitives import MalformedRequest


class PeerLine(Protocol):
    """A connection whose answers need no order."""

    session: PeerSession

    def send_now(self, chunks: Chunks) -> None: ...

    def refuse(self, reason: str) -> None: ...


class _Unordered:
    """An answer that waits for nobody."""

    __slots__ = ("_line",)

    def __init__(self, line: PeerLine) -> None:
        self._line = line

    @property
    def abandoned(self) -> bool:
        return False  # a follower's fetch is always answered

    def fill(self, chunks: Chunks) -> None:
        self._line.send_now(chunks)

    def refuse(self, reason: str) -> None:
        self._line.refuse(reason)


class ControllerExchange:
    """A call to this broker's controller."""

    __slots__ = ("_correlation_id", "_line")

    def __init__(self, line: PeerLine, correlation_id: int) -> None:
        self._line = line
        self._correlation_id = correlation_id

    def respond(self, _number: int, response: object) -> None:
        document = {"document": encode_call(response)}
        self._line.send_now([encode_response(CONTROLLER_CALL, 0, self._correlation_id, document)])

    def refuse(self, reason: str) -> None:
        self._line.refuse(reason)


class InternalDispatch:
    """All requests of other brokers."""

    def __init__(
        self,
        dispatch: Dispatch,
        new_handshake: Callable[[], ListeningHandshake],
        names: dict[bytes, str],
        step: Callable[[on.Event], None],
        now_ms: Callable[[], int],
        set_faults: Callable[[dict[str, Any]], dict[str, Any]] | None = None,
    ) -> None:
        self._dispatch = dispatch
        self._new_handshake = new_handshake
        self._names = names
        self._step = step
        self._now_ms = now_ms
        self._set_faults = set_faults
        """None unless this broker was started with fault switches."""

    def frame(self, line: PeerLine, frame: memoryview) -> None:
        """Take a broker's request in."""
        try:
            self._take(line, frame)
        except (MalformedRequest, UnknownCall) as malformed:
            line.refuse(f"malformed request of a broker: {malformed}")
        except HandshakeFailed as failed:
            line.refuse(f"failed handshake: {failed}")
        except Refused as refused:
            line.refuse(str(refused))

    def _take(self, line: PeerLine, frame: memoryview) -> None:
        header = parse_request_header(frame)
        key, correlation_id = header.api_key, header.correlation_id
        if key == FETCH and line.session.broker is not None:
            self._fetch(line, header.api_version, correlation_id, frame, header.position)
        elif key == HELLO:
            self._shake_hands(line, header, frame)
        elif key == SET_FAULTS and self._set_faults is not None:
            told = json.dumps(self._set_faults(self._document(header, frame))).encode()
            line.send_now([encode_response(SET_FAULTS, 0, correlation_id, {"document": told})])
        elif line.session.broker is None:
            raise Refused("a request before the handshake")
        elif key == CONTROLLER_CALL:
            body = decode_request(key, 0, frame, header.position)["document"]
            exchange = ControllerExchange(line, correlation_id)
            self._step(on.RequestReceived(exchange, 0, decode_call(body), self._now_ms()))
        else:
            raise Refused(f"API {key} is not for brokers")

    def _shake_hands(self, line: PeerLine, header: RequestHeader, frame: memoryview) -> None:
        if line.session.broker is not None:
            raise HandshakeFailed(f"broker {line.session.broker} is proved already")
        if header.api_version != HELLO_VERSION:
            raise HandshakeFailed(f"version {header.api_version}, not {HELLO_VERSION}")
        body = decode_request(HELLO, HELLO_VERSION, frame, header.position)["document"]
        session = line.session
        if session.handshake is not None:
            session.broker = session.handshake.accept(body)
            session.handshake = None
            return
        session.handshake = self._new_handshake()
        challenge = {"document": session.handshake.challenge(body)}
        line.send_now([encode_response(HELLO, HELLO_VERSION, header.correlation_id, challenge)])

    def _fetch(
        self, line: PeerLine, version: int, correlation_id: int, frame: memoryview, at: int
    ) -> None:
        request = decode_fetch(version, frame, at, self._names)
        if request.replica != line.session.broker:
            raise Refused(f"broker {line.session.broker} fetches as replica {request.replica}")
        self._dispatch.fetch(_Unordered(line), request, version, correlation_id)

    def _document(self, header: RequestHeader, frame: memoryview) -> dict[str, Any]:
        body = decode_request(header.api_key, 0, frame, header.position)["document"]
        try:
            document = json.loads(bytes(body))
        except (ValueError, RecursionError) as error:
            raise Refused(f"not a JSON document: {error}") from error
        if not isinstance(document, dict):
            raise Refused("not a JSON object")
        return document
