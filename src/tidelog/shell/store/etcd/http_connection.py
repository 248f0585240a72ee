"""One HTTP/1.1 connection to an etcd node: POST requests, one after the other, or one stream.

The standard library's client would add 25 ms to the start of a broker, mostly for its parser of
headers. etcd's gateway needs little of it: a status, a length or chunks, and no redirects.

Invariant: a failure says whether the node may have received the request (`NoAnswer`) or certainly
not (`NotSent`). After a failure the connection is closed.
"""

import select
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from ssl import SSLContext

_READ_BYTES = 1 << 16
_HEAD_MAX = 1 << 16
_BODY_MAX = 64 << 20
_CONNECT_S = 0.5


class Endpoint(NamedTuple):
    """The address of a node's client port."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class NotSent(Exception):
    """The node has certainly not received the request."""


class NoAnswer(Exception):
    """The node may have received the request, and may still carry it out."""


class Answer(NamedTuple):
    """A complete response."""

    status: int
    body: bytes


class HttpConnection:
    """A connection that is opened with the first request and kept. Not thread-safe.

    `addresses` returns the node's addresses, as `socket.getaddrinfo` does, within a time limit.
    """

    __slots__ = ("_addresses", "_buffer", "_chunks", "_sock", "_tls", "endpoint")

    def __init__(
        self,
        endpoint: Endpoint,
        tls: "SSLContext | None",
        addresses: Callable[[Endpoint, float], list[tuple[Any, Any, int, str, Any]]],
    ) -> None:
        self.endpoint = endpoint
        self._addresses = addresses
        self._tls = tls
        self._sock: socket.socket | None = None
        self._buffer = bytearray()
        self._chunks: _Chunks | None = None

    def post(self, path: str, body: bytes, headers: str, give_up_s: float) -> Answer:
        """Send a request and wait for its response. Raises NotSent, NoAnswer."""
        self._send(path, body, headers, give_up_s)
        try:
            status, fields = self._read_head(give_up_s)
            answer = Answer(status, self._read_body(fields, give_up_s))
        except (OSError, ValueError) as error:
            self.close()
            raise NoAnswer(_text(error)) from error
        if fields.get("connection", "").lower() == "close":
            self.close()
        return answer

    def open_stream(self, path: str, body: bytes, headers: str, give_up_s: float) -> Answer | None:
        """Send a request whose response is a stream; return None, or another response.

        Afterwards only `read_lines` and `close` may be called.
        """
        self.close()
        self._send(path, body, headers, give_up_s)
        try:
            status, fields = self._read_head(give_up_s)
            if status != 200 or "chunked" not in fields.get("transfer-encoding", ""):
                return Answer(status, self._read_body(fields, give_up_s))
        except (OSError, ValueError) as error:
            self.close()
            raise NoAnswer(_text(error)) from error
        self._chunks = _Chunks()
        self._chunks.feed(bytes(self._buffer))
        self._buffer.clear()
        return None

    def fileno(self) -> int:
        """The socket's descriptor, to wait for."""
        assert self._sock is not None, "the connection is open"
        return self._sock.fileno()

    def read_lines(self) -> list[bytes]:
        """The complete lines of the stream that have arrived. Raises NoAnswer at its end."""
        assert self._sock is not None
        assert self._chunks is not None
        self._sock.settimeout(0.0)
        while True:
            try:
                data = self._sock.recv(_READ_BYTES)
            except (BlockingIOError, InterruptedError):
                break
            except OSError as error:
                if type(error).__name__ in ("SSLWantReadError", "SSLWantWriteError"):
                    break
                self.close()
                raise NoAnswer(_text(error)) from error
            try:
                if not data or self._chunks.feed(data):
                    raise ValueError("the node closed the stream")
            except ValueError as error:
                self.close()
                raise NoAnswer(_text(error)) from error
        return self._chunks.take_lines()

    def close(self) -> None:
        """Close the connection; the next request opens it again."""
        if self._sock is not None:
            with suppress(OSError):
                self._sock.close()
        self._sock = None
        self._chunks = None
        self._buffer.clear()

    # -- sending ---------------------------------------------------------------------------

    def _send(self, path: str, body: bytes, headers: str, give_up_s: float) -> None:
        if self._sock is not None and self._is_stale():
            self.close()
        try:
            if self._sock is None:
                self._connect(give_up_s)
        except (OSError, ValueError) as error:
            self.close()
            raise NotSent(_text(error)) from error
        head = (
            f"POST {path} HTTP/1.1\r\nHost: {self.endpoint}\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(body)}\r\n{headers}\r\n"
        )
        assert self._sock is not None
        try:
            self._sock.settimeout(_left(give_up_s))
            self._sock.sendall(head.encode("latin-1") + body)
        except OSError as error:
            self.close()
            raise NoAnswer(_text(error)) from error

    def _connect(self, give_up_s: float) -> None:
        sock = self._open_socket(give_up_s)
        try:
            if sock.getsockname() == sock.getpeername():
                raise ConnectionRefusedError("the connection leads to itself")
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self._tls is not None:
                sock = self._tls.wrap_socket(sock, server_hostname=self.endpoint.host)
        except BaseException:
            sock.close()
            raise
        self._sock = sock

    def _open_socket(self, give_up_s: float) -> socket.socket:
        """Connect to the first of the node's addresses that accepts."""
        failure = OSError("the node has no address")
        for family, kind, protocol, _, place in self._addresses(self.endpoint, give_up_s):
            sock = socket.socket(family, kind, protocol)
            try:
                sock.settimeout(min(_CONNECT_S, _left(give_up_s)))
                sock.connect(place)
            except OSError as error:
                sock.close()
                failure = error
            else:
                return sock
        raise failure

    def _is_stale(self) -> bool:
        """Whether the node closed the idle connection, so that a request would be lost."""
        assert self._sock is not None
        poll = select.poll()
        poll.register(self._sock, select.POLLIN)
        return bool(poll.poll(0))

    # -- receiving -------------------------------------------------------------------------

    def _read_head(self, give_up_s: float) -> tuple[int, dict[str, str]]:
        while (end := self._buffer.find(b"\r\n\r\n")) < 0:
            if len(self._buffer) > _HEAD_MAX:
                raise ValueError("the response's header is too long")
            self._receive(give_up_s)
        lines = self._buffer[:end].decode("latin-1").split("\r\n")
        del self._buffer[: end + 4]
        if not lines[0].startswith("HTTP/1."):
            raise ValueError("the response is not HTTP")
        pairs = (line.partition(":") for line in lines[1:])
        return int(lines[0].split()[1]), {k.strip().lower(): v.strip() for k, _, v in pairs}

    def _read_body(self, fields: dict[str, str], give_up_s: float) -> bytes:
        if "chunked" in fields.get("transfer-encoding", ""):
            chunks = _Chunks()
            ended = chunks.feed(bytes(self._buffer))
            self._buffer.clear()
            while not ended:
                self._receive(give_up_s)
                ended = chunks.feed(bytes(self._buffer))
                self._buffer.clear()
            return bytes(chunks.data)
        length = int(fields.get("content-length", "0"))
        if length > _BODY_MAX:
            raise ValueError("the response is too long")
        while len(self._buffer) < length:
            self._receive(give_up_s)
        body = bytes(self._buffer[:length])
        del self._buffer[:length]
        return body

    def _receive(self, give_up_s: float) -> None:
        assert self._sock is not None
        self._sock.settimeout(_left(give_up_s))
        data = self._sock.recv(_READ_BYTES)
        if not data:
            raise ValueError("the node closed the connection")
        self._buffer += data


class _Chunks:
    """Decodes a body in chunks."""

    __slots__ = ("_raw", "data")

    def __init__(self) -> None:
        self._raw = bytearray()
        self.data = bytearray()

    def feed(self, data: bytes) -> bool:
        """Add received bytes; return whether the body has ended. Raises ValueError."""
        self._raw += data
        while (line := self._raw.find(b"\r\n")) >= 0:
            size = int(bytes(self._raw[:line]).partition(b";")[0], 16)
            if size < 0:
                raise ValueError("the response is not HTTP")
            if size + len(self.data) > _BODY_MAX:
                raise ValueError("the response is too long")
            end = line + 2 + size
            if len(self._raw) < end + 2:
                return False
            self.data += self._raw[line + 2 : end]
            del self._raw[: end + 2]
            if size == 0:
                return True
        if len(self._raw) > _HEAD_MAX:
            raise ValueError("the response is not HTTP")
        return False

    def take_lines(self) -> list[bytes]:
        """Remove and return the complete lines."""
        end = self.data.rfind(b"\n") + 1
        lines = bytes(self.data[:end]).split(b"\n")
        del self.data[:end]
        return [line for line in lines if line]


def _left(give_up_s: float) -> float:
    left = give_up_s - time.monotonic()
    if left <= 0:
        raise TimeoutError("no response in time")
    return left


def _text(error: BaseException) -> str:
    if isinstance(error, TimeoutError):
        return "no response in time"
    return getattr(error, "strerror", None) or str(error) or type(error).__name__
