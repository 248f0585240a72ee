"""The internal listener: requests of other brokers (follower fetches, calls to the controller,
and requests between transaction coordinators and leaders).

A connection starts with the handshake (handshake.py); any other request before it closes the
connection. Responses carry the request's number and are sent as soon as they are ready: a long
poll delays no response behind it.
"""

import json
from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

from tidelog.core.api.context import Struct
from tidelog.core.api.dispatch import Dispatch, Refused
from tidelog.core.api.exchange import Chunks, CloseCode
from tidelog.core.api.handshake import HandshakeFailed, ListeningHandshake
from tidelog.core.api.peer_session import PeerSession
from tidelog.core.api_table import (
    ADD_PARTITIONS_TO_TXN,
    CONTROLLER_CALL,
    FETCH,
    HELLO,
    HELLO_VERSION,
    SET_FAULTS,
    WRITE_TXN_MARKERS,
)
from tidelog.core.node import events as on
from tidelog.core.node.messages import AddPartitionsToTxn, WriteTxnMarkers
from tidelog.core.wire.codec import decode_request, encode_response
from tidelog.core.wire.controller_calls import UnknownCall, decode_call, encode_call
from tidelog.core.wire.fetch_request import decode_fetch
from tidelog.core.wire.frames import RequestHeader, parse_request_header
from tidelog.core.wire.primitives import MalformedRequest
from tidelog.core.wire.transaction_calls import (
    MARKERS,
    PARTITIONS,
    TransactionApi,
    markers_from_struct,
    markers_response_to_struct,
    partitions_from_struct,
    partitions_response_to_struct,
)


class PeerConnection(Protocol):
    """A broker's connection. Its responses may be sent in any order."""

    session: PeerSession

    def send_now(self, chunks: Chunks) -> None:
        """Send a response."""
        ...

    def refuse(self, reason: str, code: CloseCode = CloseCode.REFUSED) -> None:
        """Close the connection."""
        ...


class _UnorderedReply:
    """A response that does not wait for the responses to earlier requests."""

    __slots__ = ("_peer",)

    def __init__(self, peer: PeerConnection) -> None:
        self._peer = peer

    @property
    def abandoned(self) -> bool:
        return False  # a follower's fetch is always answered

    def fill(self, chunks: Chunks) -> None:
        self._peer.send_now(chunks)

    def refuse(self, reason: str, code: CloseCode = CloseCode.REFUSED) -> None:
        self._peer.refuse(reason, code)


class ControllerExchange:
    """A call to this broker's controller."""

    __slots__ = ("_correlation_id", "_peer")

    def __init__(self, peer: PeerConnection, correlation_id: int) -> None:
        self._peer = peer
        self._correlation_id = correlation_id

    def respond(self, _number: int, response: object) -> None:
        document = {"document": encode_call(response)}
        self._peer.send_now([encode_response(CONTROLLER_CALL, 0, self._correlation_id, document)])

    def refuse(self, reason: str, code: CloseCode = CloseCode.REFUSED) -> None:
        self._peer.refuse(reason, code)


class TransactionExchange:
    """A request between a transaction coordinator and a leader."""

    __slots__ = ("_api", "_correlation_id", "_peer", "_to_struct")

    def __init__(
        self,
        peer: PeerConnection,
        correlation_id: int,
        api: TransactionApi,
        to_struct: Callable[[Any], Struct],
    ) -> None:
        self._peer = peer
        self._correlation_id = correlation_id
        self._api = api
        self._to_struct = to_struct

    def respond(self, _number: int, response: object) -> None:
        body = self._to_struct(response)
        self._peer.send_now([encode_response(*self._api, self._correlation_id, body)])

    def refuse(self, reason: str, code: CloseCode = CloseCode.REFUSED) -> None:
        self._peer.refuse(reason, code)


class InternalDispatch:
    """Dispatches the requests of other brokers."""

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

    def frame(self, peer: PeerConnection, frame: memoryview) -> None:
        """Start a broker's request, or close the connection if it is invalid."""
        try:
            self._dispatch_request(peer, frame)
        except (MalformedRequest, UnknownCall) as malformed:
            peer.refuse(f"malformed request of a broker: {malformed}", CloseCode.MALFORMED)
        except HandshakeFailed as failed:
            peer.refuse(f"failed handshake: {failed}", CloseCode.NOT_A_BROKER)
        except Refused as refused:
            peer.refuse(str(refused), refused.code)

    def _dispatch_request(self, peer: PeerConnection, frame: memoryview) -> None:
        header = parse_request_header(frame)
        key, correlation_id = header.api_key, header.correlation_id
        if key == FETCH and peer.session.broker is not None:
            self._fetch(peer, header.api_version, correlation_id, frame, header.position)
        elif key == HELLO:
            self._handshake(peer, header, frame)
        elif key == SET_FAULTS and self._set_faults is not None:
            self._change_faults(peer, header, frame, self._set_faults)
        elif peer.session.broker is None:
            raise Refused("request before the handshake")
        elif key == CONTROLLER_CALL:
            self._call_controller(peer, header, frame)
        elif key == WRITE_TXN_MARKERS:
            self._write_markers(peer, header, frame)
        elif key == ADD_PARTITIONS_TO_TXN:
            self._add_partitions(peer, header, frame)
        else:
            raise Refused(f"API {key} is not served on the internal listener")

    def _handshake(self, peer: PeerConnection, header: RequestHeader, frame: memoryview) -> None:
        if peer.session.broker is not None:
            raise HandshakeFailed(f"broker {peer.session.broker} has already proved itself")
        if header.api_version != HELLO_VERSION:
            raise HandshakeFailed(
                f"handshake version {header.api_version} instead of {HELLO_VERSION}"
            )
        body = decode_request(HELLO, HELLO_VERSION, frame, header.position)["document"]
        session = peer.session
        if session.handshake is not None:
            session.broker = session.handshake.accept(body)
            session.handshake = None
            return
        session.handshake = self._new_handshake()
        challenge = {"document": session.handshake.challenge(body)}
        peer.send_now([encode_response(HELLO, HELLO_VERSION, header.correlation_id, challenge)])

    def _fetch(
        self, peer: PeerConnection, version: int, correlation_id: int, frame: memoryview, at: int
    ) -> None:
        request = decode_fetch(version, frame, at, self._names)
        if request.replica != peer.session.broker:
            raise Refused(f"broker {peer.session.broker} fetches as replica {request.replica}")
        self._dispatch.fetch(_UnorderedReply(peer), request, version, correlation_id)

    def _call_controller(
        self, peer: PeerConnection, header: RequestHeader, frame: memoryview
    ) -> None:
        body = decode_request(CONTROLLER_CALL, 0, frame, header.position)["document"]
        exchange = ControllerExchange(peer, header.correlation_id)
        self._step(on.RequestReceived(exchange, 0, decode_call(body), self._now_ms()))

    def _write_markers(
        self, peer: PeerConnection, header: RequestHeader, frame: memoryview
    ) -> None:
        request = markers_from_struct(self._struct(MARKERS, header, frame))
        self._step_transaction(peer, header, MARKERS, markers_response_to_struct, request)

    def _add_partitions(
        self, peer: PeerConnection, header: RequestHeader, frame: memoryview
    ) -> None:
        request = partitions_from_struct(self._struct(PARTITIONS, header, frame))
        to_struct = partial(partitions_response_to_struct, request)
        self._step_transaction(peer, header, PARTITIONS, to_struct, request)

    def _struct(self, api: TransactionApi, header: RequestHeader, frame: memoryview) -> Struct:
        if header.api_version != api.version:
            raise Refused(f"API {api.key} version {header.api_version} is not served here")
        return decode_request(*api, frame, header.position)

    def _step_transaction(
        self,
        peer: PeerConnection,
        header: RequestHeader,
        api: TransactionApi,
        to_struct: Callable[[Any], Struct],
        request: WriteTxnMarkers | AddPartitionsToTxn,
    ) -> None:
        exchange = TransactionExchange(peer, header.correlation_id, api, to_struct)
        self._step(on.RequestReceived(exchange, 0, request, self._now_ms()))

    def _change_faults(
        self,
        peer: PeerConnection,
        header: RequestHeader,
        frame: memoryview,
        set_faults: Callable[[dict[str, Any]], dict[str, Any]],
    ) -> None:
        document = json.dumps(set_faults(self._document(header, frame))).encode()
        response = encode_response(SET_FAULTS, 0, header.correlation_id, {"document": document})
        peer.send_now([response])

    def _document(self, header: RequestHeader, frame: memoryview) -> dict[str, Any]:
        body = decode_request(header.api_key, 0, frame, header.position)["document"]
        try:
            document = json.loads(bytes(body))
        except (ValueError, RecursionError) as error:
            raise Refused(f"request is not a JSON document: {error}") from error
        if not isinstance(document, dict):
            raise Refused("request is not a JSON object")
        return document
