"""The connection to one other broker's internal listener.

The connection is opened for the first request, and again after it broke. Every request gets a
number of this link; its response carries the same number, and responses arrive in any order. When
the link breaks, each request without a response fails at once, without waiting for its time-out.

Invariant: until the peer has proved that it is the expected broker, only the messages of the
handshake are sent (core/api/handshake.py), after those of SASL if the listener uses it; requests
wait. A peer that does not prove itself within `HANDSHAKE_MS` is disconnected.
"""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, NamedTuple

from tidelog.core.api.handshake import MESSAGE_MAX, ConnectingHandshake, HandshakeFailed
from tidelog.core.api_table import CONTROLLER_CALL, HELLO, HELLO_VERSION
from tidelog.core.node.messages import AddPartitionsToTxn, Fetch, WriteTxnMarkers
from tidelog.core.sasl.mechanism import SaslFailed
from tidelog.core.wire.codec import decode_response, encode_request
from tidelog.core.wire.controller_calls import UnknownCall, decode_call, encode_call
from tidelog.core.wire.follower_fetch import FollowerFetches
from tidelog.core.wire.primitives import MalformedRequest
from tidelog.core.wire.transaction_calls import (
    decode_markers_response,
    decode_partitions_response,
    encode_transaction_call,
)
from tidelog.shell.net.event_loop import READABLE, WRITABLE, EventLoop, Timer
from tidelog.shell.net.frame_buffer import PREFIX, SMALL, FrameBuffer, FrameRefused
from tidelog.shell.net.outbox import Outbox
from tidelog.shell.net.transport import Address, Transport, TransportFailed, connect
from tidelog.shell.os_disk import FileSource

if TYPE_CHECKING:
    from tidelog.core.api.sasl_login import SaslLogin

FRAME_MAX = 256 * 1024 * 1024
HANDSHAKE_MS = 5000
HANDSHAKE_FRAME_MAX = 2 * MESSAGE_MAX
NUMBER_MAX = 2**31 - 1
RECEIVES_PER_TURN = 64
KEPT_BYTES_MAX = 12 * 1024 * 1024
"""Larger receive buffers are released after use. Usual responses are smaller
(`replica.fetch.response.max.bytes`); one large record must not cost memory for ever."""


_FAILURES = (OSError, FrameRefused, MalformedRequest, UnknownCall, HandshakeFailed, SaslFailed)


class LinkEvents(NamedTuple):
    """The callbacks of a link."""

    answered: Callable[[int, object], None]
    """Called with the request's number and the response, which is valid until this returns."""
    failed: Callable[[int], None]
    broken: Callable[[], None]
    unproven: Callable[[str], None] = lambda _reason: None
    """The peer failed the handshake; called once for each reason until a peer is proved."""


class PeerLink:
    """The link to one broker; connects when there is a request."""

    def __init__(
        self,
        loop: EventLoop,
        disk: FileSource,
        client_id: str,
        new_handshake: Callable[[Address], ConnectingHandshake],
        address_of: Callable[[], Address | None],
        events: LinkEvents,
        connect: Callable[[Address], Transport | None] = connect,
        new_login: "Callable[[], SaslLogin] | None" = None,
    ) -> None:
        self._loop = loop
        self._disk = disk
        self._client_id = client_id
        self._new_handshake = new_handshake
        self._address_of = address_of
        self._callbacks = events
        self._connect_to = connect
        self._new_login = new_login
        self._transport: Transport | None = None
        self._buffer = FrameBuffer(FRAME_MAX)
        self._outbox = Outbox(disk)
        self._fetches = FollowerFetches(client_id)
        self._open: dict[int, tuple[int, Callable[[memoryview], object]]] = {}
        """By number: the request's correlation, and the decoder of its response."""
        self._dropped: list[int] = []
        self._next = 0
        self._connecting = False
        self._handshake: ConnectingHandshake | None = None
        """None once the peer is proved."""
        self._login: SaslLogin | None = None
        """None once this broker is authenticated, or if the listener has no SASL."""
        self._unproven_requests: list[bytes] = []
        """Requests that wait for the proof. Until then the outbox has only the handshake."""
        self._deadline: Timer | None = None
        self._reported = ""
        """The last reason that was passed to `unproven`."""
        self._events = 0
        self._flush_soon = self._flush
        self.silent = False
        """A fault switch: drop everything that is sent and received."""

    def send(self, correlation: int, request: object) -> None:
        """Send a request; `answered` or `failed` is called once with this correlation."""
        if self.silent:
            self._dropped.append(correlation)
            return
        if self._transport is None and not self._connect():
            self._loop.at_end_of_turn(lambda: self._callbacks.failed(correlation))
            return
        number = self._next
        self._next = 0 if number == NUMBER_MAX else number + 1
        decode = self._decode_fetch
        if isinstance(request, Fetch):
            frame = self._fetches.encode(number, request)
        elif isinstance(request, WriteTxnMarkers | AddPartitionsToTxn):
            markers = isinstance(request, WriteTxnMarkers)
            decode = decode_markers_response if markers else decode_partitions_response
            frame = encode_transaction_call(number, self._client_id, request)
        else:
            decode = _decode_call
            document = {"document": encode_call(request)}
            frame = encode_request(CONTROLLER_CALL, 0, number, self._client_id, document)
        self._open[number] = (correlation, decode)
        if self._handshake is not None:
            self._unproven_requests.append(frame)
            return
        self._outbox.put([frame])
        self._loop.at_end_of_turn(self._flush_soon)

    def ready(self, events: int) -> None:
        transport = self._transport
        if transport is None:
            return
        if self._connecting:
            try:
                transport.finish_connect()
            except OSError as error:
                self._connecting = not isinstance(error, TransportFailed)
                self._drop(str(error))
                return
            self._connecting = False
            if self._login is not None:
                self._send_first(self._login.first())
            elif self._handshake is not None:
                self._send_handshake(self._handshake.hello())
        elif events & WRITABLE:
            self._flush()
        if self._transport is not None and events & ~WRITABLE:
            self._read()

    def heal(self) -> None:
        """Turn `silent` off: fail the dropped requests and reconnect."""
        self.silent = False
        self.close()
        dropped, self._dropped = self._dropped, []
        for correlation in dropped:
            self._callbacks.failed(correlation)

    def close(self) -> None:
        """Close the connection and fail its pending requests."""
        if self._transport is None:
            return
        if self._deadline is not None:
            self._deadline.cancel()
        self._transport.close()
        self._transport = None
        self._unproven_requests.clear()
        self._buffer = FrameBuffer(FRAME_MAX)
        self._outbox.close()
        unanswered, self._open = self._open, {}
        for correlation, _ in unanswered.values():
            self._callbacks.failed(correlation)
        self._callbacks.broken()

    def _connect(self) -> bool:
        address = self._address_of()
        if address is None:
            return False
        try:
            login = None if self._new_login is None else self._new_login()
        except SaslFailed:
            return False  # no access token yet; whoever fetches it reports why
        transport = self._connect_to(address)
        if transport is None:
            return False
        self._transport = transport
        self._connecting = True
        self._handshake = self._new_handshake(address)
        self._login = login
        self._buffer.frame_max = HANDSHAKE_FRAME_MAX
        self._deadline = self._loop.after(HANDSHAKE_MS, self._handshake_overdue)
        self._events = READABLE | WRITABLE
        transport.attach(self._loop, self, self._events)
        return True

    # -- the handshake ---------------------------------------------------------------------

    def _send_handshake(self, document: bytes) -> None:
        body = {"document": document}
        self._send_first(encode_request(HELLO, HELLO_VERSION, 0, self._client_id, body))

    def _send_first(self, frame: bytes) -> None:
        """Send a message of SASL or of the handshake, before all requests."""
        self._outbox.put([frame])
        self._flush()

    def _log_in(self, login: "SaslLogin", frame: memoryview) -> None:
        """Go on with SASL, then begin the handshake."""
        token = login.receive(frame)
        if token is not None:
            self._send_first(token)
            return
        assert self._handshake is not None, "SASL comes before the handshake"
        self._login = None
        self._send_handshake(self._handshake.hello())

    def _check_proof(self, frame: memoryview) -> None:
        assert self._handshake is not None, "the first frame of a peer is its Challenge"
        transport = self._transport
        _, challenge = decode_response(HELLO, HELLO_VERSION, frame)
        self._send_handshake(self._handshake.prove(challenge["document"]))
        if self._transport is not transport:
            return  # the send failed, and the retry of a failed request may have reconnected
        self._handshake = None
        self._reported = ""
        self._buffer.frame_max = FRAME_MAX
        if self._deadline is not None:
            self._deadline.cancel()
        self._outbox.put(self._unproven_requests)
        self._unproven_requests.clear()
        self._flush()

    def _handshake_overdue(self) -> None:
        self._drop(f"no answer to the handshake within {HANDSHAKE_MS} ms")

    def _drop(self, reason: str) -> None:
        """Close a connection that failed; report the reason if the peer is not proved."""
        if self._handshake is not None and not self._connecting and reason != self._reported:
            self._reported = reason
            self._callbacks.unproven(reason)
        self.close()

    # -- requests and responses ------------------------------------------------------------

    def _flush(self) -> None:
        transport = self._transport
        if transport is None or self._connecting:
            return
        try:
            self._outbox.send(transport)
        except OSError:
            self._drop("the connection broke during the handshake")
            return
        events = READABLE | WRITABLE if self._outbox else READABLE
        if events != self._events:
            self._events = events
            transport.want(events)

    def _read(self) -> None:
        buffer = self._buffer
        try:
            for _ in range(RECEIVES_PER_TURN):
                transport = self._transport
                if transport is None:
                    return
                receive = buffer.receive if buffer.partial else buffer.receive_lone
                got = receive(transport)
                if isinstance(got, memoryview):
                    self._loop.lone_request = len(got) <= SMALL
                    frames: Iterable[memoryview] = (got,)
                elif got:
                    frames = buffer.frames()
                else:
                    if got == 0:
                        self._drop("the peer closed the connection during the handshake")
                    return
                for frame in frames:
                    self._answer(frame)
                    if self._transport is not transport:
                        return
                if not buffer.waiting_for:
                    if buffer.size > KEPT_BYTES_MAX:
                        buffer.shrink()
                    return
        except _FAILURES as error:
            self._drop(str(error))

    def _answer(self, frame: memoryview) -> None:
        if self.silent:
            return
        if self._login is not None:
            self._log_in(self._login, frame)
            return
        if self._handshake is not None:
            self._check_proof(frame)
            return
        (number,) = PREFIX.unpack_from(frame) if len(frame) >= PREFIX.size else (-1,)
        waiting = self._open.pop(number, None)
        if waiting is None:
            return
        correlation, decode = waiting
        self._callbacks.answered(correlation, decode(frame))

    def _decode_fetch(self, frame: memoryview) -> object:
        return self._fetches.decode(frame)[1]


def _decode_call(frame: memoryview) -> object:
    return decode_call(decode_response(CONTROLLER_CALL, 0, frame)[1]["document"])
