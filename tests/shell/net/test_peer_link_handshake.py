"""A link sends requests to a proved broker only; a hostile process at its port learns nothing."""

import os
import socket
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from link_peer import LISTENING, SECRET, LinkStage, text_of

from tidelog.core.api.handshake import NONCE_BYTES, ListeningHandshake
from tidelog.core.api_table import HELLO, HELLO_VERSION
from tidelog.core.controller.events import ListReassignmentsReceived
from tidelog.core.node.messages import Forwarded
from tidelog.core.record.crc32c import Buffer
from tidelog.core.wire.codec import encode_response
from tidelog.shell.net import peer_link
from tidelog.shell.net.frame_buffer import PREFIX
from tidelog.shell.net.same_host import _name
from tidelog.shell.net.transport import Address, SocketTransport, Transport, connect

REQUEST = Forwarded(ListReassignmentsReceived(0))
REQUEST_MARK = b"ListReassignmentsReceived"


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[LinkStage]:
    stage = LinkStage(tmp_path)
    yield stage
    stage.close()


def connected(stage: LinkStage) -> socket.socket:
    """Return the hostile process's end of the connection, when the link sends a request."""
    stage.link.send(7, REQUEST)
    return stage.accept()


def challenge(stage: LinkStage, hello: bytes, secret: str = SECRET) -> bytes:
    member = LISTENING._replace(secret=secret)
    handshake = ListeningHandshake(member, text_of(stage.address), os.urandom(NONCE_BYTES))
    document = {"document": handshake.challenge(hello)}
    return encode_response(HELLO, HELLO_VERSION, 0, document)


def assert_it_learned_nothing(stage: LinkStage, sock: socket.socket, before: bytes = b"") -> None:
    sent = before + stage.sent_until_closed(sock)
    assert SECRET.encode() not in sent
    assert REQUEST_MARK not in sent, "a request before the proof"
    assert b"proof" not in sent, "an answer to an unproven peer"
    assert stage.failed == [7]
    assert stage.answered == []


def test_requests_follow_the_proof(stage: LinkStage) -> None:
    sock = connected(stage)
    stage.prove(sock)
    assert REQUEST_MARK in stage.frame(sock)
    assert not stage.unproven
    sock.close()


def test_a_peer_with_a_wrong_secret(stage: LinkStage) -> None:
    sock = connected(stage)
    hello = stage.heard(sock)
    sock.sendall(challenge(stage, hello, "guess"))
    assert_it_learned_nothing(stage, sock, hello)
    assert stage.unproven == ["wrong proof: the peer does not know the cluster's secret"]


def test_a_peer_that_reflects_what_it_gets(stage: LinkStage) -> None:
    sock = connected(stage)
    hello = stage.heard(sock)
    sock.sendall(encode_response(HELLO, HELLO_VERSION, 0, {"document": hello}))
    assert_it_learned_nothing(stage, sock, hello)


def test_a_peer_that_replays_a_recorded_handshake(stage: LinkStage) -> None:
    first = connected(stage)
    recorded = challenge(stage, stage.heard(first))
    first.sendall(recorded)
    stage.heard(first)
    first.close()
    stage.until(lambda: stage.link._transport is None)
    assert stage.failed == [7]
    stage.failed.clear()
    second = connected(stage)
    hello = stage.heard(second)
    second.sendall(recorded)
    assert_it_learned_nothing(stage, second, hello)


def connect_and_break_at_the_proof(address: Address) -> Transport | None:
    """A connection that breaks when the link sends its second message, the proof."""
    transport = connect(address)
    assert isinstance(transport, SocketTransport)
    send_hello = transport.send

    def send_proof(_data: Buffer) -> int:
        raise BrokenPipeError("the peer closed the connection")

    def send(data: Buffer) -> int:
        transport.send = send_proof
        return send_hello(data)

    transport.send = send
    return transport


def test_a_new_connection_is_unproven_if_the_proof_broke_the_old_one(tmp_path: Path) -> None:
    """The failed request is sent again at once, which connects before the failed send returns."""
    connects = iter([connect_and_break_at_the_proof, connect])
    with closing(LinkStage(tmp_path, lambda address: next(connects)(address))) as stage:
        stage.on_failed = lambda: stage.link.send(8, REQUEST)
        first = connected(stage)
        first.sendall(challenge(stage, stage.heard(first)))
        stage.until(lambda: stage.failed == [7])
        stage.on_failed = lambda: None
        second = stage.accept()
        assert stage.link._handshake is not None, "the new peer has not proved anything"
        stage.prove(second)
        assert REQUEST_MARK in stage.frame(second)


def test_a_silent_peer(stage: LinkStage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peer_link, "HANDSHAKE_MS", 50)
    sock = connected(stage)
    assert_it_learned_nothing(stage, sock)
    assert stage.unproven == ["no answer to the handshake within 50 ms"]


def test_a_peer_that_sends_half_a_challenge(
    stage: LinkStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peer_link, "HANDSHAKE_MS", 1000)
    sock = connected(stage)
    hello = stage.heard(sock)
    sock.sendall(challenge(stage, hello)[:40])
    assert_it_learned_nothing(stage, sock, hello)


def test_a_peer_that_closes_during_the_handshake(stage: LinkStage) -> None:
    sock = connected(stage)
    hello = stage.heard(sock)
    sock.shutdown(socket.SHUT_WR)
    assert_it_learned_nothing(stage, sock, hello)
    assert stage.unproven == ["the peer closed the connection during the handshake"]


@pytest.mark.parametrize(
    "sent",
    [
        PREFIX.pack(200 << 20) + bytes(100),
        PREFIX.pack(-1),
        PREFIX.pack(2) + b"xy",
        PREFIX.pack(8) + bytes(8),
        encode_response(HELLO, HELLO_VERSION, 0, {"document": b"["}),
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
    ],
    ids=["huge frame", "negative length", "short frame", "no document", "no JSON", "HTTP"],
)
def test_a_peer_that_sends_nonsense(stage: LinkStage, sent: bytes) -> None:
    sock = connected(stage)
    hello = stage.heard(sock)
    sock.sendall(sent)
    assert_it_learned_nothing(stage, sock, hello)
    assert not any("within" in reason for reason in stage.unproven), "closed at once"
    assert stage.link._buffer.size == 0


def test_a_reason_is_reported_once_until_a_peer_is_proved(stage: LinkStage) -> None:
    def fail() -> None:
        sock = connected(stage)
        stage.heard(sock)
        sock.close()
        stage.until(lambda: stage.link._transport is None)

    fail()
    fail()
    assert len(stage.unproven) == 1
    sock = connected(stage)
    stage.prove(sock)
    sock.close()
    stage.until(lambda: stage.link._transport is None)
    fail()
    assert len(stage.unproven) == 2


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_another_users_process_gets_no_request(stage: LinkStage) -> None:
    """The Unix socket belongs to another user, so the link uses TCP and sends no request there."""
    stage.door.close()
    ready, told = os.pipe()
    child = os.fork()
    if child == 0:
        os.setuid(65534)
        with socket.socket() as tcp, socket.socket(socket.AF_UNIX) as unix:
            tcp.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            tcp.bind(stage.address)
            tcp.listen()
            unix.bind(_name(*stage.address))
            unix.listen()
            unix.setblocking(False)
            os.write(told, b"r")
            peer = tcp.accept()[0]
            got = peer.recv(1 << 16)
            peer.shutdown(socket.SHUT_WR)
            while more := peer.recv(1 << 16):
                got += more
            os.write(told, got)
            os._exit(0)
    assert os.read(ready, 1) == b"r"
    os.close(told)
    stage.link.send(7, REQUEST)
    stage.until(lambda: stage.failed == [7])
    got = b""
    while more := os.read(ready, 1 << 16):
        got += more
    os.waitpid(child, 0)
    os.close(ready)
    assert b"nonce" in got, "it was connected to"
    assert SECRET.encode() not in got
    assert REQUEST_MARK not in got
