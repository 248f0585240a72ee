"""The metrics listener: GET and HEAD; no client can block the listener or the broker."""

import base64
import http.client
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tidelog.shell.clock import Clock
from tidelog.shell.metrics import endpoint, http_connection
from tidelog.shell.metrics.credentials import (
    Credentials,
    UnusableCredentials,
    read_credentials,
)
from tidelog.shell.metrics.endpoint import CONNECTIONS_MAX, HttpListener
from tidelog.shell.metrics.http_connection import Page
from tidelog.shell.net.event_loop import EventLoop
from tidelog.shell.net.listener import bind
from tidelog.shell.net.transport import SocketTransport

OK, PLAIN = "200 OK", "text/plain"
LARGE = 64 * 1024
PATIENCE_S = 120


class Server:
    """An HTTP listener on a loop that runs in its own thread."""

    def __init__(self, credentials: Credentials | None = None) -> None:
        self.loop = EventLoop(Clock())
        (sock,) = bind("127.0.0.1", 0)
        self.port: int = sock.getsockname()[1]
        self.refused: list[str] = []
        guard = (SocketTransport, credentials, self.refused.append)
        self.door = HttpListener(self.loop, sock, self.page, *guard)
        self.made = 0
        self._thread = threading.Thread(target=self.loop.run)
        self._thread.start()

    def page(self, path: str) -> Page | None:
        if path in ("/", "/healthz"):
            return Page(OK, PLAIN, iter(["one\n", "", "two\n"]))
        if path == "/large":
            return Page(OK, PLAIN, self._large())
        return None

    def _large(self) -> Iterator[str]:
        for _ in range(1000):
            self.made += 1
            yield "x" * LARGE

    def connect(self, source: str = "127.0.0.1") -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), PATIENCE_S, (source, 0))

    def close(self) -> None:
        self.loop.call_from_thread(self.door.close)
        self.loop.call_from_thread(self.loop.stop)
        self._thread.join(PATIENCE_S)
        self.loop.close()


@pytest.fixture
def server() -> Iterator[Server]:
    server = Server()
    yield server
    server.close()


@pytest.fixture
def client(server: Server) -> Iterator[http.client.HTTPConnection]:
    client = http.client.HTTPConnection("127.0.0.1", server.port, timeout=PATIENCE_S)
    yield client
    client.close()


def exchange(server: Server, request: bytes) -> bytes:
    """Return all bytes until the server closes the connection."""
    with server.connect() as sock:
        sock.sendall(request)
        answer = b""
        while data := sock.recv(65536):
            answer += data
        return answer


def test_one_connection_serves_several_requests(client: http.client.HTTPConnection) -> None:
    for _ in range(3):
        client.request("GET", "/?collect[]=all")
        answer = client.getresponse()
        assert (answer.status, answer.read()) == (200, b"one\ntwo\n")
        assert answer.getheader("Content-Type") == PLAIN


def test_head_returns_headers_without_a_body(client: http.client.HTTPConnection) -> None:
    client.request("HEAD", "/")
    answer = client.getresponse()
    assert (answer.status, answer.read()) == (200, b"")
    client.request("GET", "/")
    assert client.getresponse().read() == b"one\ntwo\n"


def test_a_missing_page_is_404(client: http.client.HTTPConnection) -> None:
    client.request("GET", "/nothing")
    answer = client.getresponse()
    assert (answer.status, answer.read()) == (404, b"no page at /nothing\n")


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "FOO"])
def test_only_get_and_head(client: http.client.HTTPConnection, method: str) -> None:
    client.request(method, "/")
    answer = client.getresponse()
    assert (answer.status, answer.getheader("Allow")) == (405, "GET, HEAD")
    assert answer.getheader("Connection") == "close"


def test_a_request_with_a_body_is_refused(client: http.client.HTTPConnection) -> None:
    client.request("GET", "/", body=b"x")
    assert client.getresponse().status == 413


def test_http_1_0_ends_with_the_connection(server: Server) -> None:
    answer = exchange(server, b"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 OK\r\n")
    assert b"chunked" not in head
    assert body == b"one\ntwo\n"


def test_a_connection_is_closed_on_request(server: Server) -> None:
    answer = exchange(server, b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    assert answer.endswith(b"4\r\none\n\r\n4\r\ntwo\n\r\n0\r\n\r\n")


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (b"\x00\x12\x00\x03\x00\x00\x00\x01\r\n\r\n", b"400"),
        (b"GET\r\n\r\n", b"400"),
        (b"GET / HTTP/2\r\n\r\n", b"400"),
        (b"GET http://elsewhere/ HTTP/1.1\r\n\r\n", b"400"),
        (b"GET / HTTP/1.1\r\nX: " + b"x" * 9000 + b"\r\n\r\n", b"431"),
        (b"x" * 9000, b"431"),
        (b"GET / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n", b"413"),
    ],
)
def test_nonsense_is_answered_once(server: Server, request_: bytes, status: bytes) -> None:
    answer = exchange(server, request_)
    assert answer.startswith(b"HTTP/1.1 " + status)
    assert answer.count(b"HTTP/1.1 ") == 1


def test_a_request_may_arrive_byte_by_byte(server: Server) -> None:
    with server.connect() as sock:
        for byte in b"GET / HTTP/1.0\r\n\r\n":
            sock.send(bytes([byte]))
        assert sock.recv(100).startswith(b"HTTP/1.1 200")


def test_two_requests_at_once_are_answered_in_turn(server: Server) -> None:
    last = b"GET /nothing HTTP/1.1\r\nConnection: close\r\n\r\n"
    answer = exchange(server, b"GET / HTTP/1.1\r\n\r\n" + last)
    assert answer.index(b"200 OK") < answer.index(b"two\n") < answer.index(b"404 Not Found")


def test_a_response_is_produced_only_as_fast_as_it_is_read(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only as much is produced as the system's buffers accept; then the reader is disconnected."""
    monkeypatch.setattr(http_connection, "ANSWER_MS", 500)
    with server.connect() as sock:
        sock.sendall(b"GET /large HTTP/1.1\r\n\r\n")
        until = time.monotonic() + PATIENCE_S
        while server.door.connections or not server.made:
            assert time.monotonic() < until, "it is still there"
            time.sleep(0.02)
        assert server.made * LARGE < 16 * 1024 * 1024


@pytest.mark.parametrize("begun", [b"", b"GET / HT"])
def test_a_connection_without_a_complete_request_is_closed(
    server: Server, monkeypatch: pytest.MonkeyPatch, begun: bytes
) -> None:
    monkeypatch.setattr(http_connection, "REQUEST_MS", 200)
    assert exchange(server, begun) == b""


@pytest.fixture
def patient_server(monkeypatch: pytest.MonkeyPatch) -> None:
    """The server closes no connection because the test is slow."""
    for name in ("REQUEST_MS", "ANSWER_MS"):
        monkeypatch.setattr(http_connection, name, 600_000)


@pytest.mark.usefixtures("patient_server")
def test_http_connections_are_limited(server: Server) -> None:
    socks = [server.connect() for _ in range(CONNECTIONS_MAX + 5)]
    try:
        until = time.monotonic() + PATIENCE_S
        while _closed(socks) < 5:
            assert time.monotonic() < until
        assert len(server.door.connections) == CONNECTIONS_MAX
    finally:
        for sock in socks:
            sock.close()


@pytest.mark.usefixtures("patient_server")
@pytest.mark.parametrize("begun", [b"", b"GET / HT", b"GET / HTTP/1.1\r\n\r\n"])
def test_idle_connections_keep_no_scraper_out(server: Server, begun: bytes) -> None:
    """Connections without a request, with half of one, and idle after one."""
    socks = []
    try:
        for _ in range(CONNECTIONS_MAX):
            socks.append(server.connect())
            socks[-1].sendall(begun)
            if begun.endswith(b"\n"):
                _read_response(socks[-1])
        for _ in range(3):
            answer = exchange(server, b"GET / HTTP/1.0\r\n\r\n")
            assert answer.endswith(b"one\ntwo\n")
        assert _closed(socks[:1]) == 1, "the oldest makes room"
        assert _closed(socks[3:]) == 0
    finally:
        for sock in socks:
            sock.close()


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has 127.0.0.2")
@pytest.mark.usefixtures("patient_server")
@pytest.mark.parametrize("request_", [b"", b"GET /large HTTP/1.1\r\n\r\n"])
def test_many_connections_of_an_address_close_none_of_another(
    server: Server, request_: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither idle ones nor those that read slowly."""
    monkeypatch.setattr(endpoint, "STALLED_MS", 600_000)
    scraper = server.connect("127.0.0.2")
    socks = [scraper]
    try:
        scraper.sendall(b"GET / HTTP/1.1\r\n\r\n")
        _read_response(scraper)  # the oldest from now on
        for _ in range(CONNECTIONS_MAX - 1):
            socks.append(server.connect())
            socks[-1].sendall(request_)
        if request_:
            _wait(
                lambda: (
                    sum(one.answering for one in list(server.door.connections)) == len(socks) - 1
                )
            )
        socks.extend(server.connect() for _ in range(3))
        _wait(lambda: _closed(socks) == 3)
        assert _closed([scraper]) == 0
        scraper.settimeout(PATIENCE_S)
        scraper.sendall(b"GET / HTTP/1.1\r\n\r\n")
        _read_response(scraper)
    finally:
        for sock in socks:
            sock.close()


@pytest.mark.usefixtures("patient_server")
def test_scrapers_that_do_not_read_keep_no_other_out(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    socks = [server.connect() for _ in range(CONNECTIONS_MAX)]
    try:
        for sock in socks:
            sock.sendall(b"GET /large HTTP/1.1\r\n\r\n")
        monkeypatch.setattr(endpoint, "STALLED_MS", 600_000)
        _wait(lambda: sum(one.answering for one in list(server.door.connections)) == len(socks))
        assert exchange(server, b"") == b"", "all are being answered"
        monkeypatch.setattr(endpoint, "STALLED_MS", 0)
        assert exchange(server, b"GET / HTTP/1.0\r\n\r\n").endswith(b"one\ntwo\n")
    finally:
        for sock in socks:
            sock.close()


def _read_response(sock: socket.socket) -> None:
    answer = b""
    while not answer.endswith(b"0\r\n\r\n"):
        answer += sock.recv(65536)


def _wait(done: Callable[[], bool]) -> None:
    until = time.monotonic() + PATIENCE_S
    while not done():
        assert time.monotonic() < until
        time.sleep(0.01)


def _closed(socks: list[Any]) -> int:
    found = 0
    for sock in socks:
        sock.settimeout(0.01)
        try:
            found += sock.recv(1) == b""
        except TimeoutError:
            continue
        except ConnectionResetError:
            found += 1
    return found


# -- credentials ---------------------------------------------------------------------------


def basic(text: str) -> str:
    return f"Basic {base64.b64encode(text.encode()).decode()}"


@pytest.mark.parametrize(
    ("line", "right", "wrong"),
    [
        (
            "prometheus:pass word:ü",
            [basic("prometheus:pass word:ü"), basic("prometheus:pass word:ü").replace("B", "b", 1)],
            [basic("prometheus:pass"), basic("prometheus:"), basic(""), "Basic !", "Basic"],
        ),
        (
            "a-long-token",
            ["Bearer a-long-token", "bearer a-long-token"],
            ["Bearer a-long-toke", "Bearer", "a-long-token", basic("a-long-token"), "Bearer ü"],
        ),
    ],
    ids=["password", "token"],
)
def test_pages_need_the_credentials(line: str, right: list[str], wrong: list[str]) -> None:
    credentials = Credentials(line)
    assert line not in repr(credentials)
    server = Server(credentials)

    def status(headers: dict[str, str], path: str = "/") -> tuple[int, str | None]:
        client = http.client.HTTPConnection("127.0.0.1", server.port, timeout=10)
        client.request("GET", path, headers=headers)
        answer = client.getresponse()
        body = answer.read()
        assert (b"one" in body) == (answer.status == 200)
        client.close()
        return answer.status, answer.getheader("WWW-Authenticate")

    try:
        for header in right:
            assert status({"Authorization": header}) == (200, None)
        assert server.refused == []
        asked = (401, f'{credentials.scheme} realm="metrics"')
        assert status({}) == status({}, "/nothing") == asked
        for header in wrong:
            assert status({"Authorization": header}) == asked
        assert len(server.refused) == 2 + len(wrong)
        assert server.refused[0].startswith("127.0.0.1:")
        assert status({}, "/healthz") == (200, None)
    finally:
        server.close()


@pytest.mark.parametrize("text", ["", "\n", "a:b\nc:d\n", "user:", "x" * 5000])
def test_a_file_has_one_line_of_credentials(tmp_path: Path, text: str) -> None:
    file = tmp_path / "credentials"
    file.write_text(text)
    with pytest.raises(UnusableCredentials, match="must have one line") as unusable:
        read_credentials(str(file))
    assert "x" * 10 not in str(unusable.value)
    with pytest.raises(UnusableCredentials, match="No such file"):
        read_credentials(str(tmp_path / "missing"))
    file.write_text(" user:password\n")
    assert read_credentials(str(file)).accept(basic("user:password"))
