"""TLS over a socket, as a transport (transport.py).

OpenSSL reads and writes memory, not the socket: so one system call carries many TLS records, and
OpenSSL never has to read in order to write. The transport moves the encrypted bytes.

A handshake costs about a millisecond of CPU. `Handshakes` carries out a few of them in each turn
of the loop, so that hundreds of new connections do not delay the others.

Invariants: the owner is called only after the handshake; a handshake ends within `HANDSHAKE_MS`;
at most `UNSENT_MAX` encrypted bytes wait for the socket.
"""

import os
import socket
import ssl
from collections.abc import Callable, Sequence
from contextlib import suppress
from time import monotonic_ns
from typing import TypeAlias

from tidelog.core.record.crc32c import Buffer
from tidelog.shell.net.event_loop import READABLE, WRITABLE, EventLoop, SocketHandler, Timer
from tidelog.shell.net.transport import TransportFailed, copy_file

HANDSHAKE_MS = 10_000
HANDSHAKES_NS = 5_000_000
"""The time for handshakes in one turn of the loop."""
SEND_MAX = 128 * 1024
"""Bytes that are encrypted in one call."""
UNSENT_MAX = 256 * 1024
_READ_BYTES = 128 * 1024
_HANDSHAKE_RECORD = 22
"""The first byte of a TLS client."""
_received = bytearray(_READ_BYTES)
"""A buffer for encrypted bytes from the socket to OpenSSL; it is not used after a call."""
_NOT_TLS = "the peer does not use TLS, and this listener requires it"
_REASONS = {
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": "the client sent no certificate, and ssl.client.auth"
    " requires one",
    "TLSV1_ALERT_UNKNOWN_CA": "the peer does not trust the certificate authority of our"
    " certificate (its truststore)",
    "SSLV3_ALERT_CERTIFICATE_UNKNOWN": "the peer refused our certificate (its truststore)",
    "SSLV3_ALERT_BAD_CERTIFICATE": "the peer refused our certificate",
    "SSLV3_ALERT_CERTIFICATE_EXPIRED": "the peer refused our certificate: it has expired",
    "TLSV13_ALERT_CERTIFICATE_REQUIRED": "the peer requires a certificate: set"
    " ssl.keystore.location",
    "SSLV3_ALERT_HANDSHAKE_FAILURE": "the peer shares no protocol version or cipher suite with us",
    "NO_SHARED_CIPHER": "the peer shares no cipher suite with ssl.cipher.suites",
    "UNSUPPORTED_PROTOCOL": "the peer's TLS versions are not in ssl.enabled.protocols",
    "WRONG_VERSION_NUMBER": "the peer does not use TLS",
    "UNEXPECTED_EOF_WHILE_READING": "the peer closed the connection; does its listener use TLS?",
}


Proof: TypeAlias = Callable[[SocketHandler, bytes], None]
"""Tells the owner of a connection which certificate in DER its peer has proved to have. Raises
ValueError if no peer with this certificate may connect."""


class Handshakes:
    """Carries out the handshakes of one loop, a few milliseconds of them in each turn."""

    def __init__(self, loop: EventLoop) -> None:
        self._loop = loop
        self._waiting: dict[TlsTransport, None] = {}

    def add(self, transport: "TlsTransport") -> None:
        """Continue this handshake soon: bytes have arrived."""
        if not self._waiting:
            self._loop.next_turn(self._run)
        self._waiting[transport] = None

    def discard(self, transport: "TlsTransport") -> None:
        self._waiting.pop(transport, None)

    def __contains__(self, transport: "TlsTransport") -> bool:
        return transport in self._waiting

    def _run(self) -> None:
        until_ns = monotonic_ns() + HANDSHAKES_NS
        while self._waiting:
            transport = next(iter(self._waiting))
            del self._waiting[transport]
            transport.continue_handshake()
            if self._waiting and monotonic_ns() >= until_ns:
                self._loop.next_turn(self._run)
                return


class TlsTransport:
    """One TLS connection, of a client (`server_name`) or of a server."""

    __slots__ = (
        "_connecting",
        "_failure",
        "_first_bytes",
        "_handshakes",
        "_incoming",
        "_loop",
        "_outgoing",
        "_overdue",
        "_owner",
        "_proof",
        "_proved",
        "_scheduled",
        "_sock",
        "_tls",
        "_unsent",
        "_wanted",
        "_watched",
    )

    def __init__(
        self,
        sock: socket.socket,
        context: ssl.SSLContext,
        handshakes: Handshakes,
        server_name: str | None = None,
        proof: Proof | None = None,
    ) -> None:
        """`server_name` is the host that the certificate must name; None on the server's side.
        `proof` gets the certificate of a client."""
        sock.setblocking(False)
        self._sock = sock
        self._handshakes = handshakes
        self._proof = proof
        is_server = server_name is None
        self._connecting = not is_server
        self._first_bytes = is_server
        """Whether a client's first bytes are still expected."""
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(
            self._incoming, self._outgoing, is_server, server_hostname=server_name
        )
        self._proved = False
        """Whether the handshake has succeeded."""
        self._failure: OSError | None = None
        self._unsent = b""
        """Encrypted bytes that the socket did not accept."""
        self._wanted = 0
        self._watched = 0
        self._scheduled = False
        self._loop: EventLoop
        self._owner: SocketHandler
        self._overdue: Timer

    # -- the owner's side ------------------------------------------------------------------

    def attach(self, loop: EventLoop, owner: SocketHandler, events: int = READABLE) -> None:
        self._loop, self._owner, self._wanted = loop, owner, events
        self._watched = WRITABLE if self._connecting else READABLE
        loop.watch(self._sock, self, self._watched)
        self._overdue = loop.after(HANDSHAKE_MS, self._handshake_overdue)

    def want(self, events: int) -> None:
        self._wanted = events
        self._watch()
        if self._proved and events & READABLE and self._has_unread():
            self._serve_soon()

    def finish_connect(self) -> None:
        if self._failure is not None:
            raise self._failure

    def close(self) -> None:
        self._overdue.cancel()
        self._handshakes.discard(self)
        if self._proved and self._failure is None:
            with suppress(OSError):  # also ssl.SSLError
                self._tls.unwrap()
            with suppress(OSError):
                self._push()
        self._loop.unwatch(self._sock)
        self._sock.close()

    def recv_into(self, buffer: memoryview, /) -> int:
        if self._failure is not None:
            raise self._failure
        while True:
            try:
                return self._tls.read(len(buffer), buffer)  # type: ignore[return-value]
            except ssl.SSLWantReadError:
                if not self._receive():
                    return 0
            except ssl.SSLZeroReturnError:
                return 0
            except ssl.SSLError as error:
                raise self._failed(error) from None

    def send(self, data: Buffer, /) -> int:
        if self._unsent:
            self._push()
        view = memoryview(data)[:SEND_MAX]
        count = 0
        try:
            while count < len(view):  # OpenSSL makes one TLS record in each call
                count += self._tls.write(view[count:])
        except ssl.SSLError as error:
            raise self._failed(error) from None
        try:
            self._push()
        except BlockingIOError:
            self._watch()
        return count

    send_before_file = send

    def send_many(self, buffers: Sequence[Buffer], /) -> int:
        """Encrypt small buffers together: each call makes at least one TLS record."""
        first = buffers[0]
        if len(first) >= SEND_MAX:
            return self.send(first)
        joined, size = [], 0
        for each in buffers:
            joined.append(each)
            size += len(each)
            if size >= SEND_MAX:
                break
        return self.send(b"".join(joined))

    def send_file(self, fd: int, position: int, count: int, /) -> int:
        return copy_file(self.send, fd, position, count)

    # -- the loop's side -------------------------------------------------------------------

    def ready(self, events: int) -> None:
        if not self._proved:
            if self._failure is None:
                self._begin_or_continue()
            return
        if self._unsent:
            try:
                self._push()
            except BlockingIOError:
                events &= ~WRITABLE
            except OSError as error:
                self._fail(error)
                return
            self._watch()
        self._call_owner(events & (self._wanted | ~(READABLE | WRITABLE)))

    def continue_handshake(self) -> None:
        """Handle the peer's messages that have arrived, and send ours."""
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            self._push_in_handshake()
            self._watch()
            return
        except ssl.SSLError as error:
            with suppress(OSError):
                self._push()  # the alert tells the peer why
            self._fail(self._failed(error))
            return
        self._overdue.cancel()
        certificate = self._tls.getpeercert(True)
        if self._proof is not None and certificate is not None:
            try:
                self._proof(self._owner, certificate)
            except ValueError as error:
                self._fail(TransportFailed(str(error)))
                return
        self._proved = True
        self._push_in_handshake()
        if self._failure is None:
            self._watch()
            self._call_owner(self._wanted)

    def _begin_or_continue(self) -> None:
        if self._connecting:
            number = self._sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            if number:
                self._fail(OSError(number, os.strerror(number)))
                return
            self._connecting = False
            self._handshakes.add(self)
            self._watch()
            return
        try:
            if self._unsent:
                self._push()
            if not self._receive():
                raise TransportFailed("the peer disconnected during the TLS handshake")
        except BlockingIOError:
            pass
        except OSError as error:
            self._fail(error)
            return
        else:
            self._handshakes.add(self)
        self._watch()

    def _receive(self) -> bool:
        """Pass received bytes to OpenSSL; False at the end of the stream.

        Raises BlockingIOError, and TransportFailed if a client's first byte is not one of TLS.
        """
        count = self._sock.recv_into(_received)
        if not count:
            return False
        if self._first_bytes:
            self._first_bytes = False
            if _received[0] != _HANDSHAKE_RECORD:
                raise TransportFailed(_NOT_TLS)
        self._incoming.write(memoryview(_received)[:count])
        return True

    def _push(self) -> None:
        """Send encrypted bytes. Raises BlockingIOError if some are left."""
        data = self._unsent
        if len(data) < UNSENT_MAX and self._outgoing.pending:
            data += self._outgoing.read()
        if not data:
            return
        self._unsent = data
        self._unsent = data[self._sock.send(data) :]
        if self._unsent:
            raise BlockingIOError

    def _push_in_handshake(self) -> None:
        try:
            self._push()
        except BlockingIOError:
            pass
        except OSError as error:
            self._fail(error)

    def _call_owner(self, events: int) -> None:
        if not events:
            return
        self._owner.ready(events)
        if self._sock.fileno() >= 0 and self._wanted & READABLE and self._has_unread():
            self._serve_soon()

    def _has_unread(self) -> bool:
        """Whether received bytes are left, which no event of the socket announces."""
        return bool(self._incoming.pending or self._tls.pending())

    def _serve_soon(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            self._loop.next_turn(self._serve)

    def _serve(self) -> None:
        self._scheduled = False
        if self._sock.fileno() >= 0:
            self._call_owner(self._wanted & READABLE)

    def _watch(self) -> None:
        if self._sock.fileno() < 0:
            return
        # While its handshake waits for its turn, the peer can't send more.
        in_handshake = 0 if self in self._handshakes else READABLE
        events = self._wanted if self._proved else in_handshake
        if self._unsent:
            events |= WRITABLE
        if events != self._watched:
            self._watched = events
            self._loop.rewatch(self._sock, events)

    def _handshake_overdue(self) -> None:
        self._fail(TransportFailed(f"no TLS handshake within {HANDSHAKE_MS} ms"))

    def _fail(self, error: OSError) -> None:
        """Report the failure to the owner: `recv_into` and `finish_connect` raise it."""
        self._failure = error
        self._overdue.cancel()
        self._handshakes.discard(self)
        self._owner.ready(READABLE)

    def _failed(self, error: ssl.SSLError) -> TransportFailed:
        return TransportFailed(reason(error))


def reason(error: ssl.SSLError) -> str:
    """Return why a handshake failed, in one line."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the peer's certificate was refused: {error.verify_message.rstrip('.')}"
    found = getattr(error, "reason", None)
    return _REASONS.get(str(found)) or f"the TLS connection failed: {found or error}"
