"""A real broker records failed logins, on its listener for clients and on the one for brokers."""

import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from broker_process import STOP_S, listening_event, logged_events
from real_cluster import eventually

from tidelog.core.api.sasl_login import SaslLogin, sasl_client
from tidelog.core.sasl.mechanism import PLAIN
from tidelog.core.settings.jaas import PLAIN_MODULE

PATIENCE_S = 120
HOST = "127.0.0.1"
LISTENERS = ("CLIENTS", "BETWEEN")
LONG_MS = 24 * 60 * 60 * 1000
"""No response to a failed login is sent before a test ends."""


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[dict[str, int], Path]]:
    """The ports of the listeners, and the log."""
    folder = tmp_path_factory.mktemp("broker")
    sets = {
        "node.id": 1,
        "listeners": ",".join(f"{name}://{HOST}:0" for name in LISTENERS),
        "listener.security.protocol.map": ",".join(f"{name}:SASL_PLAINTEXT" for name in LISTENERS),
        "inter.broker.listener.name": "BETWEEN",
        "sasl.enabled.mechanisms": PLAIN,
        "sasl.mechanism.inter.broker.protocol": PLAIN,
        "sasl.jaas.config": f"{PLAIN_MODULE} required username=broker password=secret"
        " user_broker=secret user_alice=secret;",
        "connection.failed.authentication.delay.ms": LONG_MS,
        "tidelog.log.format": "json",
    }
    path = folder / "server.properties"
    path.write_text("".join(f"{name}={value}\n" for name, value in sets.items()))
    log = folder / "log.txt"
    command = [sys.executable, "-m", "tidelog", "broker", "--config", str(path)]
    with ExitStack() as stack:
        with log.open("wb") as file:
            process = subprocess.Popen(command, cwd=folder, stderr=file)
        stack.callback(process.wait, STOP_S)
        stack.callback(process.terminate)
        event = eventually(lambda: listening_event(log), "it listens", PATIENCE_S)
        yield dict(zip(LISTENERS, (event["port"], event["internal_port"]), strict=True)), log


@pytest.mark.parametrize("listener", LISTENERS)
def test_a_client_that_hangs_up_during_the_delay_leaves_a_trace(
    broker: tuple[dict[str, int], Path], listener: str
) -> None:
    ports, log = broker
    user = f"user of {listener}"
    login = SaslLogin(PLAIN, sasl_client(PLAIN, user, "wrong", bytes), "test")
    with socket.create_connection((HOST, ports[listener]), PATIENCE_S) as peer:
        peer.sendall(login.first())
        with peer.makefile("rb") as file:
            frame = file.read(int.from_bytes(file.read(4), "big"))
        token = login.receive(memoryview(frame))
        assert token is not None
        peer.sendall(token)

    def reasons() -> list[str]:
        events = logged_events(log)
        dropped = [one for one in events if one.get("event") == "connection_dropped"]
        return [one["reason"] for one in dropped if user in one["why"]]

    assert eventually(reasons, "the failure is in the log", PATIENCE_S) == ["authentication"]
