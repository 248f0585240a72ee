"""A link to a listener with SASL: it authenticates, then both brokers prove the secret."""

import os
from collections.abc import Iterator
from pathlib import Path
from socket import socket

import pytest
from link_peer import LinkStage

from tidelog.core.api.sasl_exchange import Login, SaslExchange, SaslRules, State
from tidelog.core.api.sasl_rules import broker_login
from tidelog.core.controller.events import ListReassignmentsReceived
from tidelog.core.node.messages import Forwarded
from tidelog.core.principal import USER, Principal
from tidelog.core.sasl.mechanism import SCRAM_SHA_256
from tidelog.core.sasl.scram import (
    ITERATIONS_MAX,
    ITERATIONS_MIN,
    ScramServer,
    ScramUsers,
    credential_of,
    salted_password,
)
from tidelog.core.settings.broker_settings import BrokerLogin

REQUEST = Forwarded(ListReassignmentsReceived(0))
PASSWORD = "of the brokers"
FRAME_MAX = 64 * 1024


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[LinkStage]:
    stage = LinkStage(tmp_path)
    wanted = BrokerLogin(SCRAM_SHA_256, "broker", PASSWORD)
    stage.link._new_login = lambda: broker_login(wanted, "broker-2", os.urandom)
    yield stage
    stage.close()


def exchange(password: str, iterations: int = ITERATIONS_MIN) -> SaslExchange:
    """Return the listening broker's side."""
    salted = salted_password(SCRAM_SHA_256, password, b"salt", iterations)
    credential = credential_of(SCRAM_SHA_256, salted, b"salt", iterations)
    users = ScramUsers(SCRAM_SHA_256, {"broker": credential}.get, b"")

    def begin(_mechanism: str) -> Login:
        return Login(ScramServer(users, os.urandom), lambda name: Principal(USER, name))

    return SaslExchange(SaslRules((SCRAM_SHA_256,), begin, {}, FRAME_MAX))


def serve(stage: LinkStage, sock: socket, side: SaslExchange) -> None:
    """Answer the link until it is authenticated, or has failed."""
    while side.state not in (State.COMPLETE, State.FAILED):
        outcome = side.receive(memoryview(stage.frame(sock)), 0)
        assert outcome.response is not None
        sock.sendall(b"".join(bytes(chunk) for chunk in outcome.response))  # type: ignore[arg-type]


def test_the_proof_of_the_secret_follows_the_authentication(stage: LinkStage) -> None:
    stage.link.send(7, REQUEST)
    sock, side = stage.accept(), exchange(PASSWORD)
    serve(stage, sock, side)
    assert side.principal == Principal(USER, "broker")
    stage.prove(sock)
    assert b"ListReassignmentsReceived" in stage.frame(sock)
    assert not stage.unproven


def test_a_refused_password_fails_the_requests(stage: LinkStage) -> None:
    stage.link.send(7, REQUEST)
    sock, side = stage.accept(), exchange("another one")
    serve(stage, sock, side)
    sent = stage.sent_until_closed(sock)
    assert not sent, "nothing follows a refused authentication"
    assert stage.failed == [7]
    [reason] = stage.unproven
    assert "invalid credentials with SASL mechanism SCRAM-SHA-256" in reason
    assert PASSWORD not in reason


def test_a_peer_may_request_the_most_iterations_that_a_user_can_have(stage: LinkStage) -> None:
    stage.link.send(7, REQUEST)
    sock, side = stage.accept(), exchange(PASSWORD, ITERATIONS_MAX)
    serve(stage, sock, side)
    assert side.state is State.COMPLETE


def test_a_peer_that_requests_more_iterations_is_refused(stage: LinkStage) -> None:
    """The loop of the broker would compute nothing else for as long."""
    stage.link.send(7, REQUEST)
    sock, side = stage.accept(), exchange(PASSWORD, ITERATIONS_MAX + 1)
    for _ in range(2):  # the handshake, and the first token
        outcome = side.receive(memoryview(stage.frame(sock)), 0)
        assert outcome.response is not None
        sock.sendall(b"".join(bytes(chunk) for chunk in outcome.response))  # type: ignore[arg-type]
    assert not stage.sent_until_closed(sock)
    assert stage.failed == [7]
    assert stage.unproven == [f"the broker requests {ITERATIONS_MAX + 1} iterations of SCRAM"]


def test_a_new_connection_authenticates_again(stage: LinkStage) -> None:
    stage.link.send(7, REQUEST)
    sock = stage.accept()
    serve(stage, sock, exchange(PASSWORD))
    stage.prove(sock)
    sock.close()
    stage.until(lambda: stage.broken == 1)
    stage.link.send(8, REQUEST)
    sock, side = stage.accept(), exchange(PASSWORD)
    serve(stage, sock, side)
    assert side.state is State.COMPLETE
