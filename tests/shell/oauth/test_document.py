"""What is sent to an identity provider, by which way, and how long a response may take."""

import ssl
from contextlib import suppress
from pathlib import Path
from socketserver import StreamRequestHandler, TCPServer
from threading import Event, Thread

import pytest
from certificates import authority, certificate
from issuer import running_provider

from tidelog.core.settings.tls import TlsSettings
from tidelog.shell.oauth import document
from tidelog.shell.oauth.document import CannotRead, Form, read_document

PATIENCE_S = 120
HEAD = b"HTTP/1.1 200 OK\r\n"


def test_http_goes_to_this_machine_and_not_to_a_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    with running_provider() as provider, running_provider() as proxy:
        provider.answers["/token"] = (200, b"the answer")
        for name in ("http_proxy", "all_proxy"):
            monkeypatch.setenv(name, proxy.url(""))
        form = Form("Basic c2VjcmV0", b"grant_type=client_credentials")
        assert read_document(provider.url("/token"), TlsSettings(), form) == b"the answer"
        assert proxy.requests == []


@pytest.mark.parametrize("tls", [False, True])
@pytest.mark.parametrize(
    ("begun", "dripped"),
    [
        (b"", b"H"),
        (HEAD, b"a"),
        (HEAD + b"Content-Length: 99999\r\n\r\n", b"a"),
        (HEAD + b"Transfer-Encoding: chunked\r\n\r\n0\r\n", b"a: b\r\n"),
        (b"HTTP/1.1 400 Bad Request\r\nContent-Length: 99999\r\n\r\n", b"a"),
    ],
    ids=["status", "head", "body", "trailer", "error"],
)
def test_a_response_that_comes_byte_by_byte_has_a_time_limit(
    begun: bytes, dripped: bytes, tls: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A single part never takes long, so a limit for parts does not end the call."""
    monkeypatch.setattr(document, "WHOLE_S", 0.3)
    stop, settings, context = Event(), TlsSettings(), None
    if tls:
        authority(tmp_path)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate(tmp_path, "provider", "/O=provider"))
        settings = TlsSettings(truststore=str(tmp_path / "ca.pem"))

    class Handler(StreamRequestHandler):
        def handle(self) -> None:
            sock = self.connection
            if context is not None:
                sock = context.wrap_socket(sock, server_side=True)
            with sock, suppress(OSError):
                sock.recv(65_536)
                sock.sendall(begun)
                while not stop.wait(0.02):
                    sock.sendall(dripped)

    failures: list[str] = []

    def read(url: str) -> None:
        try:
            read_document(url, settings)
        except CannotRead as failure:
            failures.append(str(failure))

    with TCPServer(("127.0.0.1", 0), Handler) as server:
        url = f"http{'s' if tls else ''}://127.0.0.1:{server.server_address[1]}/keys"
        serving = Thread(target=server.handle_request, daemon=True)
        reading = Thread(target=read, args=(url,), daemon=True)
        serving.start()
        reading.start()
        reading.join(PATIENCE_S)
        ended = not reading.is_alive()
        stop.set()
        serving.join(PATIENCE_S)
        reading.join(PATIENCE_S)
    assert ended
    assert len(failures) == 1
