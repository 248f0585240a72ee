"""One HTTP connection: GET and HEAD, one request at a time, without request bodies.

A response is produced in slices, one in a turn of the loop, and the next one only when the last
one is sent. So a page about thousands of partitions does not block the broker, and a peer that
does not read costs one slice of memory.

Invariants: a connection is closed if a request or a response is not completed in time; a request
that is too long or invalid gets one error response, then the connection is closed.
"""

import select
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from tidelog.shell.net.event_loop import READABLE, WRITABLE, EventLoop, Timer
from tidelog.shell.net.transport import Transport

if TYPE_CHECKING:
    from tidelog.shell.metrics.credentials import Credentials

HEAD_MAX = 8192
REQUEST_MS = 10_000
"""Time limit for a complete request, from its first byte or the start of the connection."""
ANSWER_MS = 30_000
IDLE_MS = 150_000
"""Time limit between requests: a little longer than usual scrape intervals."""
_DISCONNECTED = select.POLLERR | select.POLLHUP
_PLAIN = "text/plain; charset=utf-8"
_METHODS = ("GET", "HEAD")
_UNAUTHORIZED = "401 Unauthorized"
OPEN_PATH = "/healthz"


class Page(NamedTuple):
    """The response for one path; its text is produced while it is sent."""

    status: str
    content_type: str
    slices: Iterator[str]


Pages: TypeAlias = Callable[[str], Page | None]
"""Returns the page at a path; None if the path has no page."""


class Access(NamedTuple):
    """What clients of a listener with credentials need."""

    credentials: "Credentials"
    refused: Callable[[], None]
    """Called for each request without them."""


class _Refused(Exception):
    """A request is refused: the status and the reason."""


class HttpConnection:
    """One HTTP client."""

    def __init__(
        self,
        loop: EventLoop,
        transport: Transport,
        pages: Pages,
        closed: Callable[["HttpConnection"], None],
        access: Access | None = None,
    ) -> None:
        self._loop = loop
        self._transport = transport
        self._open = True
        self._pages = pages
        self._closed = closed
        self._access = access
        self._received = b""
        self._unsent = b""
        self._more: Iterator[bytes] | None = None
        """The rest of the current response."""
        self._last = False
        """Whether the connection is closed after this response."""
        self.since_ms = loop.clock.now_ms()
        """When the connection began to wait for a request, or for the peer to read."""
        self._timer = self._give_up_after(REQUEST_MS)
        transport.attach(loop, self)

    @property
    def answering(self) -> bool:
        """Whether a response is in progress."""
        return self._more is not None

    def ready(self, events: int) -> None:
        try:
            if events & WRITABLE:
                self._send()
            elif events & READABLE:
                self._receive()
            elif events & _DISCONNECTED:
                self.close()
        except BlockingIOError:
            return
        except OSError:
            self.close()

    def close(self) -> None:
        if not self._open:
            return
        self._open = False
        self._timer.cancel()
        self._transport.close()
        self._more = None
        self._closed(self)

    def _give_up_after(self, delay_ms: int) -> Timer:
        return self._loop.after(delay_ms, self.close)

    def _restart_timer(self, delay_ms: int) -> None:
        self._timer.cancel()
        self._timer = self._give_up_after(delay_ms)

    # -- the request -----------------------------------------------------------------------

    def _receive(self) -> None:
        buffer = bytearray(HEAD_MAX)
        count = self._transport.recv_into(memoryview(buffer))
        if not count:
            self.close()
            return
        if not self._received:
            self._restart_timer(REQUEST_MS)
        self._received += buffer[:count]
        self._handle_request()

    def _handle_request(self) -> None:
        head, end, rest = self._received.partition(b"\r\n\r\n")
        if not end and len(self._received) <= HEAD_MAX:
            return
        self._received = rest
        try:
            if not end or len(head) > HEAD_MAX:
                raise _Refused("431 Request Header Fields Too Large", "the request is too long")
            self._answer(head.decode("latin-1"))
        except _Refused as refused:
            status, text = refused.args
            self._last = True
            self._begin(Page(status, _PLAIN, iter([f"{text}\n"])), chunked=False, body=True)

    def _answer(self, head: str) -> None:
        first, *lines = head.split("\r\n")
        method, target, version = _request_line(first)
        headers = _headers(lines)
        if headers.get("transfer-encoding") or headers.get("content-length", "0") != "0":
            raise _Refused("413 Content Too Large", "a request must not have a body")
        if method not in _METHODS:
            raise _Refused("405 Method Not Allowed", "only GET and HEAD are allowed")
        options = headers.get("connection", "").lower()
        newer = version == "HTTP/1.1"
        # In HTTP/1.0 the end of the connection is the end of the body.
        self._last = "close" in options or not newer
        path = target.partition("?")[0]
        self._check_access(path, headers.get("authorization", ""))
        page = self._pages(path)
        if page is None:
            page = Page("404 Not Found", _PLAIN, iter([f"no page at {path[:100]}\n"]))
        self._begin(page, chunked=newer, body=method == "GET")

    def _check_access(self, path: str, given: str) -> None:
        """Raise _Refused without the credentials. /healthz needs none: it tells only that the
        broker serves, to programs that restart brokers."""
        access = self._access
        if access is None or path == OPEN_PATH or access.credentials.accept(given):
            return
        access.refused()
        raise _Refused(_UNAUTHORIZED, "missing or wrong credentials")

    # -- the response ----------------------------------------------------------------------

    def _begin(self, page: Page, *, chunked: bool, body: bool) -> None:
        head = [f"HTTP/1.1 {page.status}", f"Content-Type: {page.content_type}"]
        if page.status == _UNAUTHORIZED and self._access is not None:
            head.append(f'WWW-Authenticate: {self._access.credentials.scheme} realm="metrics"')
        if page.status.startswith("405"):
            head.append(f"Allow: {', '.join(_METHODS)}")
        if chunked:
            head.append("Transfer-Encoding: chunked")
        if self._last or not chunked:
            self._last = True
            head.append("Connection: close")
        head += ["Cache-Control: no-store", "X-Content-Type-Options: nosniff", "", ""]
        self._unsent = "\r\n".join(head).encode()
        self._more = _body(page.slices, chunked=chunked) if body else iter(())
        self.since_ms = self._loop.clock.now_ms()
        self._restart_timer(ANSWER_MS)
        self._transport.want(WRITABLE)

    def _send(self) -> None:
        """Send one slice or the rest of it; called again while there is more."""
        if not self._unsent:
            assert self._more is not None, "a response is in progress"
            slice_ = next(self._more, None)
            if slice_ is None:
                self._done()
                return
            self._unsent = slice_
        if self._unsent:
            sent = self._transport.send(self._unsent)
            self._unsent = self._unsent[sent:]
            self.since_ms = self._loop.clock.now_ms()

    def _done(self) -> None:
        self._more = None
        if self._last:
            self.close()
            return
        self.since_ms = self._loop.clock.now_ms()
        self._restart_timer(IDLE_MS)
        self._transport.want(READABLE)
        if self._received:
            self._handle_request()


def _request_line(line: str) -> tuple[str, str, str]:
    words = line.split(" ")
    if len(words) != 3 or not words[2].startswith("HTTP/1.") or not words[1].startswith("/"):
        raise _Refused("400 Bad Request", "invalid HTTP request; send GET /metrics")
    return words[0], words[1], words[2]


def _headers(lines: list[str]) -> dict[str, str]:
    """Return header values by lower-case name; the last one of several counts."""
    return {
        name.strip().lower(): value.strip()
        for name, colon, value in (line.partition(":") for line in lines)
        if colon
    }


def _body(slices: Iterator[str], *, chunked: bool) -> Iterator[bytes]:
    for text in slices:
        data = text.encode()
        if not chunked or not data:
            yield data
        else:
            yield b"%x\r\n%b\r\n" % (len(data), data)
    if chunked:
        yield b"0\r\n\r\n"
