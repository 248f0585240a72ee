"""Connections over TLS: frames, files, handshakes that fail, many handshakes at once."""

import os
import socket
import ssl
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from certificates import authority, certificate
from link_peer import LinkStage
from net_stage import PATIENCE_S, Stage, finish, framed

from tidelog.core.controller.events import ListReassignmentsReceived
from tidelog.core.node.messages import Forwarded
from tidelog.core.settings.tls import TlsSettings
from tidelog.core.storage.disk import Region
from tidelog.shell.net import tls_transport
from tidelog.shell.net.outbox import SENDFILE_MIN
from tidelog.shell.net.tls_context import client_context, server_context
from tidelog.shell.net.tls_transport import Handshakes, TlsTransport
from tidelog.shell.net.transport import Address, Transport, connect_by_tcp


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("certificates")
    authority(folder)
    authority(folder, "other")
    certificate(folder, "broker", "/O=broker")
    certificate(folder, "client", "/CN=client")
    certificate(folder, "stranger", "/CN=stranger", "other")
    certificate(folder, "elsewhere", "/O=broker", names="subjectAltName=DNS:example.org")
    return folder


def server(files: Path, **more: Any) -> TlsSettings:
    own = TlsSettings(str(files / "broker.store.pem"), truststore=str(files / "ca.pem"))
    return own._replace(**more)


def client(files: Path, **more: Any) -> TlsSettings:
    return TlsSettings(truststore=str(files / "ca.pem"))._replace(**more)


class TlsStage:
    """A listener with TLS, and clients whose handshakes the test runs itself."""

    def __init__(self, root: Path, settings: TlsSettings, **limits: int) -> None:
        self._context = server_context(settings)
        self.stage = Stage(root, None, None, self._transport, **limits)
        self._handshakes = Handshakes(self.stage.loop)

    def _transport(self, sock: socket.socket) -> TlsTransport:
        return TlsTransport(sock, self._context, self._handshakes)

    def connect(self, settings: TlsSettings, name: str = "127.0.0.1") -> ssl.SSLSocket:
        """Connect and finish the handshake. Raises ssl.SSLError."""
        peer = self.begin(settings, name)
        self.stage.until(lambda: shaken(peer))
        return peer

    def begin(self, settings: TlsSettings, name: str = "127.0.0.1") -> ssl.SSLSocket:
        context = client_context(settings)
        plain = self.stage.connect()
        plain.setblocking(False)
        peer = context.wrap_socket(plain, server_hostname=name, do_handshake_on_connect=False)
        self.stage.peers[-1] = peer
        return peer


def shaken(peer: ssl.SSLSocket) -> bool:
    try:
        peer.do_handshake()
    except ssl.SSLWantReadError:
        return False
    return True


def received(stage: Stage, peer: ssl.SSLSocket, count: int) -> bytes:
    got = bytearray()

    def enough() -> bool:
        with suppress(ssl.SSLWantReadError):
            while len(got) < count:
                more = peer.recv(1 << 16)
                assert more, "the connection was closed"
                got.extend(more)
        return len(got) >= count

    stage.until(enough)
    return bytes(got)


def send(stage: Stage, peer: ssl.SSLSocket, data: bytes) -> None:
    left = memoryview(data)

    def sent() -> bool:
        nonlocal left
        with suppress(ssl.SSLWantWriteError, ssl.SSLWantReadError):
            while left:
                left = left[peer.send(left) :]
        return not left

    stage.until(sent)


@contextmanager
def tls_stage(root: Path, settings: TlsSettings, **limits: int) -> Iterator[TlsStage]:
    stage = TlsStage(root, settings, **limits)
    try:
        yield stage
    finally:
        finish(stage.stage)


@pytest.mark.parametrize("version", ["TLSv1.2", "TLSv1.3"])
def test_frames_of_all_sizes_pass_in_order(tmp_path: Path, files: Path, version: str) -> None:
    sizes = (0, 1, 3, 300, 16_384, 16_385, 100_000, 1, 1_000_000)
    frames = framed(*[os.urandom(size) for size in sizes])
    with tls_stage(tmp_path, server(files, versions=(version,))) as tls:
        peer = tls.connect(client(files))
        assert peer.version() == version
        send(tls.stage, peer, frames)
        assert received(tls.stage, peer, len(frames)) == frames


def test_frames_that_were_read_ahead_are_handled(tmp_path: Path, files: Path) -> None:
    """All frames arrive in one TLS record, so no event of the socket announces the second."""
    with tls_stage(tmp_path, server(files), in_flight_max=1) as tls:
        peer = tls.connect(client(files))
        send(tls.stage, peer, framed(b"1 wait", b"2 wait", b"3 wait"))
        for number in range(3):
            tls.stage.until(lambda number=number: tls.stage.echo.frames == number + 1)  # type: ignore[misc]
            tls.stage.turns(20)
            assert tls.stage.echo.frames == number + 1
            tls.stage.echo.waiting[number].fill([framed(b"%d" % number)])
        expected = framed(b"0", b"1", b"2")
        assert received(tls.stage, peer, len(expected)) == expected


def test_files_are_sent_between_bytes(tmp_path: Path, files: Path) -> None:
    records = os.urandom(SENDFILE_MIN * 40 + 17)
    with tls_stage(tmp_path, server(files)) as tls:
        stage = tls.stage
        stage.disk.append("log", [b"before", records])
        stage.echo.answer = lambda frame: [b"<", Region("log", 6, len(records)), frame + b">"]
        peer = tls.connect(client(files))
        send(stage, peer, framed(b"a", b"b"))
        expected = b"".join(b"<" + records + name + b">" for name in (b"a", b"b"))
        assert received(stage, peer, len(expected)) == expected


def test_a_slow_reader_holds_a_bounded_amount(tmp_path: Path, files: Path) -> None:
    answer = os.urandom(8_000_000)
    with tls_stage(tmp_path, server(files)) as tls:
        tls.stage.echo.answer = lambda _frame: [answer]
        peer = tls.connect(client(files))
        send(tls.stage, peer, framed(b"x"))
        tls.stage.until(lambda: tls.stage.echo.frames == 1)
        tls.stage.turns(200)
        [connection] = tls.stage.listener.connections
        transport = connection._transport
        assert isinstance(transport, TlsTransport)
        assert 0 < len(transport._unsent) <= tls_transport.UNSENT_MAX + tls_transport.SEND_MAX * 2
        assert received(tls.stage, peer, len(answer)) == answer


def why(stage: Stage) -> str:
    """Why the listener closed its only connection."""
    stage.until(lambda: bool(stage.echo.gone))
    return stage.echo.gone[0]


def test_a_client_without_tls_is_closed_with_the_reason(tmp_path: Path, files: Path) -> None:
    with tls_stage(tmp_path, server(files)) as tls:
        tls.stage.connect().sendall(framed(b"a plain request"))
        assert why(tls.stage) == "the peer does not use TLS, and this listener requires it"


def test_a_client_without_a_certificate_is_refused(tmp_path: Path, files: Path) -> None:
    with tls_stage(tmp_path, server(files, client_auth="required")) as tls:
        tls.connect(client(files))  # in TLS 1.3 the client learns it after its handshake
        assert "the client sent no certificate" in why(tls.stage)


def test_a_client_with_a_certificate_of_another_authority_is_refused(
    tmp_path: Path, files: Path
) -> None:
    with tls_stage(tmp_path, server(files, client_auth="requested")) as tls:
        tls.connect(client(files, keystore=str(files / "stranger.store.pem")))
        assert "the peer's certificate was refused: self-signed" in why(tls.stage)


def test_a_client_with_a_certificate_is_served(tmp_path: Path, files: Path) -> None:
    with tls_stage(tmp_path, server(files, client_auth="required")) as tls:
        peer = tls.connect(client(files, keystore=str(files / "client.store.pem")))
        send(tls.stage, peer, framed(b"hello"))
        assert received(tls.stage, peer, 9) == framed(b"hello")


def test_a_client_that_does_not_trust_the_authority_is_named(tmp_path: Path, files: Path) -> None:
    with tls_stage(tmp_path, server(files)) as tls:
        with pytest.raises(ssl.SSLCertVerificationError):
            tls.connect(client(files, truststore=str(files / "other.pem")))
        assert "does not trust the certificate authority" in why(tls.stage)


def test_a_client_refuses_a_certificate_of_another_host(tmp_path: Path, files: Path) -> None:
    elsewhere = server(files, keystore=str(files / "elsewhere.store.pem"))
    with tls_stage(tmp_path, elsewhere) as tls:
        with pytest.raises(ssl.SSLCertVerificationError):
            tls.connect(client(files))
        assert tls.connect(client(files, verify_host=False)).version()


def test_versions_without_overlap_are_refused(tmp_path: Path, files: Path) -> None:
    with tls_stage(tmp_path, server(files, versions=("TLSv1.3",))) as tls:
        with pytest.raises(ssl.SSLError):
            tls.connect(client(files, versions=("TLSv1.2",)))
        assert "ssl.enabled.protocols" in why(tls.stage)


def test_a_handshake_must_end_in_time(
    tmp_path: Path, files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tls_transport, "HANDSHAKE_MS", 50)
    with tls_stage(tmp_path, server(files)) as tls:
        tls.stage.connect().sendall(b"\x16\x03\x01")  # the begin of a handshake, and no more
        assert "no TLS handshake within" in why(tls.stage)
        assert not tls.stage.listener.connections


@pytest.mark.parametrize("garbage", [b"\x16" * 5000, b"\x16\x03\x01\x00\x05hello", b"\x16\x03\x01"])
def test_garbage_closes_the_connection(tmp_path: Path, files: Path, garbage: bytes) -> None:
    with tls_stage(tmp_path, server(files)) as tls:
        peer = tls.stage.connect()
        peer.sendall(garbage)
        peer.shutdown(socket.SHUT_WR)
        assert why(tls.stage)
        assert tls.stage.echo.frames == 0


def test_many_handshakes_share_the_loop_with_other_connections(
    tmp_path: Path, files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With no time for handshakes, each turn still continues one, and no more."""
    with tls_stage(tmp_path, server(files)) as tls:
        served = tls.connect(client(files))
        monkeypatch.setattr(tls_transport, "HANDSHAKES_NS", 0)
        others = [tls.begin(client(files)) for _ in range(40)]
        for peer in others:
            with suppress(ssl.SSLWantReadError):
                peer.do_handshake()
        tls.stage.turns(3)
        send(tls.stage, served, framed(b"served"))
        assert received(tls.stage, served, 10) == framed(b"served")
        assert sum(shaken(peer) for peer in others) < len(others)
        tls.stage.until(lambda: all(shaken(peer) for peer in others))


class TlsLink(LinkStage):
    """A link between brokers that connects with TLS."""

    def __init__(self, root: Path, settings: TlsSettings) -> None:
        self._context = client_context(settings)
        super().__init__(root, self._connect)
        self._handshakes = Handshakes(self.loop)

    def _connect(self, address: Address) -> Transport | None:
        sock = connect_by_tcp(address)
        assert sock is not None
        return TlsTransport(sock, self._context, self._handshakes, address[0])


def until(stage: LinkStage, done: Callable[[], bool]) -> None:
    give_up = time.monotonic() + PATIENCE_S
    while not done():
        assert time.monotonic() < give_up
        stage.loop.after(5, lambda: None)
        stage.loop.turn()


def test_a_link_reports_a_certificate_that_it_refuses(tmp_path: Path, files: Path) -> None:
    stage = TlsLink(tmp_path, client(files, truststore=str(files / "other.pem")))
    stage.link.send(1, Forwarded(ListReassignmentsReceived(0)))
    plain = stage.accept()
    plain.setblocking(False)
    peer = server_context(server(files)).wrap_socket(
        plain, server_side=True, do_handshake_on_connect=False
    )

    def step() -> bool:
        with suppress(OSError):
            peer.do_handshake()
        return bool(stage.failed)

    until(stage, step)
    assert "the peer's certificate was refused" in stage.unproven[0]
    assert stage.failed == [1]
    peer.close()
    stage.close()
