"""A real broker that limits how long an authentication is valid (KIP-368), and its strangers."""

import json
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from broker_process import STOP_S, listening_event
from real_cluster import eventually

from tidelog.core.api.sasl_login import SaslLogin, sasl_client
from tidelog.core.api_table import API_VERSIONS, LIST_GROUPS, METADATA
from tidelog.core.authorization.authorizer import STANDARD_AUTHORIZER
from tidelog.core.sasl.mechanism import PLAIN, SCRAM_SHA_512
from tidelog.core.settings.jaas import PLAIN_MODULE
from tidelog.core.storage import layout
from tidelog.core.types import LOSSES_TOPIC
from tidelog.core.wire.codec import encode_request
from tidelog.shell.client.client_errors import AuthenticationFailed, ClientError
from tidelog.shell.client.cluster import Cluster
from tidelog.shell.client.connection import KafkaConnection
from tidelog.shell.client.consumer import Reader
from tidelog.shell.client.security import ClientSecurity, read_security

PATIENCE_S = 120
LIFETIME_MS = 2000
"""A connection may authenticate again after one second at the earliest."""
PAUSE_S = 0.02
HOST = "127.0.0.1"
LOSS = {"broker": 1, "id": "an entry of an earlier run", "event": "loss"}
LIST: dict[str, list[str]] = {"states_filter": [], "types_filter": []}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[int, Path]]:
    folder = tmp_path_factory.mktemp("broker")
    sets = {
        "node.id": 1,
        "listeners": f"SASL_PLAINTEXT://{HOST}:0",
        "sasl.enabled.mechanisms": f"{PLAIN},{SCRAM_SHA_512}",
        "sasl.jaas.config": f'{PLAIN_MODULE} required user_alice="secret";',
        "listener.name.sasl_plaintext.plain.connections.max.reauth.ms": LIFETIME_MS,
        "authorizer.class.name": STANDARD_AUTHORIZER,
        "super.users": "User:alice",
        "tidelog.log.format": "json",
    }
    path = folder / "server.properties"
    path.write_text("".join(f"{name}={value}\n" for name, value in sets.items()))
    log = folder / "log.txt"
    logs = folder / "tidelog-data" / "broker-1"
    logs.mkdir(parents=True, mode=0o700)
    (logs / layout.LOSSES).write_text(json.dumps(LOSS) + "\n")
    command = [sys.executable, "-m", "tidelog", "broker", "--config", str(path)]
    with ExitStack() as stack:
        with log.open("wb") as file:
            process = subprocess.Popen(command, cwd=folder, stderr=file)
        stack.callback(process.wait, STOP_S)
        stack.callback(process.terminate)

        def port() -> int | None:
            event = listening_event(log)
            return None if event is None else int(event["listeners"][0].rpartition(":")[2])

        yield eventually(port, "it listens", PATIENCE_S), log


def security_of(password: str = "secret") -> ClientSecurity | None:
    return read_security(
        {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": PLAIN,
            "sasl.username": "alice",
            "sasl.password": password,
        }
    )


def connect(port: int, password: str = "secret") -> KafkaConnection:
    security = security_of(password)
    return KafkaConnection(HOST, port, timeout_s=PATIENCE_S, security=security)


def test_a_connection_is_used_for_longer_than_its_authentication_is_valid(
    broker: tuple[int, Path],
) -> None:
    def authenticated_again() -> bool:
        """Call for a while. Fails if the broker closed the connection: rightly, if this process got
        no CPU for a second."""
        logins: set[float | None] = set()
        with connect(broker[0]) as connection:
            while len(logins) < 4:
                connection.call(METADATA, {"topics": []})
                logins.add(connection._log_in_after_s)
                assert None not in logins
                time.sleep(PAUSE_S)
        return True

    eventually(authenticated_again, "three more authentications", PATIENCE_S)


def test_a_connection_that_does_not_authenticate_again_is_closed(
    broker: tuple[int, Path],
) -> None:
    port, log = broker
    with connect(port) as connection:
        assert connection._log_in_after_s is not None
        connection._log_in_after_s = None

        def closed() -> bool:
            try:
                connection.call(LIST_GROUPS, LIST)
            except ClientError:
                return connection.closed
            return False

        eventually(closed, "the broker closes the connection", PATIENCE_S)
    eventually(
        lambda: "User:alice did not authenticate again in time" in log.read_text(),
        "the broker logs it",
        PATIENCE_S,
    )


def test_a_wrong_password_is_answered_after_the_delay(broker: tuple[int, Path]) -> None:
    began_s = time.monotonic()
    with pytest.raises(AuthenticationFailed, match="Invalid username or password"):
        connect(broker[0], "wrong")
    assert time.monotonic() - began_s >= 0.1, "connection.failed.authentication.delay.ms"


def test_a_stranger_cant_send_a_large_frame(broker: tuple[int, Path]) -> None:
    with socket.create_connection((HOST, broker[0]), PATIENCE_S) as peer:
        peer.sendall((65_537).to_bytes(4, "big"))
        assert peer.recv(1) == b""
    reason = "frame of 65537 bytes exceeds the limit of 65536"
    eventually(lambda: reason in broker[1].read_text(), "the broker logs why", PATIENCE_S)


def test_a_user_can_send_a_frame_that_a_stranger_cant(broker: tuple[int, Path]) -> None:
    topics = [{"name": "x" * 200} for _ in range(500)]
    request = {"topics": topics, "allow_auto_topic_creation": False}

    def described() -> list[object]:
        with connect(broker[0]) as connection:
            return list(connection.call(METADATA, request)["topics"])

    assert len(eventually(described, "the response", PATIENCE_S)) == 1


def test_requests_behind_the_authentication_in_one_packet_are_served(
    broker: tuple[int, Path],
) -> None:
    login = SaslLogin(PLAIN, sasl_client(PLAIN, "alice", "secret", bytes), "test")
    with socket.create_connection((HOST, broker[0]), PATIENCE_S) as peer:
        peer.sendall(login.first())
        file = peer.makefile("rb")

        def receive() -> memoryview:
            return memoryview(file.read(int.from_bytes(file.read(4), "big")))

        token = login.receive(receive())
        assert token is not None
        peer.sendall(token + encode_request(API_VERSIONS, 0, 7, "test", {}))
        assert login.receive(receive()) is None
        assert receive()[:4] == (7).to_bytes(4, "big")


def test_a_broker_is_a_client_of_its_own_listener(broker: tuple[int, Path]) -> None:
    """It publishes its losses by the cluster's secret: no user and no ACL is set up for that."""

    def published() -> list[bytes | None]:
        with Cluster(f"{HOST}:{broker[0]}", security=security_of()) as client:
            if LOSSES_TOPIC not in client.refresh().topics:
                return []
            return [record.value for record in Reader(client).read(LOSSES_TOPIC, 0, 0)]

    values = eventually(published, "the entry is in the topic", PATIENCE_S)
    # After a time-out the broker publishes it again; compaction removes one.
    assert all(json.loads(value or b"") == LOSS for value in values)
