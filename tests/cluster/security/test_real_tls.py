"""Real brokers with TLS between them and for clients, which must have certificates."""

import os
import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from broker_process import STOP_S, listening_event
from certificates import authority, certificate, openssl
from client_programs import java_tools, run_tool
from real_cluster import LONG_SESSIONS, eventually, make_topic, read, send_all

from tidelog.shell.client.security import read_security
from tidelog.shell.settings_sources import parse_properties

ANSWER_S, COMMAND_S = 100, 300
HOST = "127.0.0.1"
PASSWORD = "of the client's key"


class SecuredCluster:
    """Three brokers of one folder, and the files of their certificates."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        authority(folder)
        authority(folder, "other")
        self.store = certificate(folder, "broker", "/O=broker")
        self.client = certificate(folder, "client", "/CN=client", password=PASSWORD)
        self._stack = ExitStack()
        self.logs = [folder / f"{broker}.txt" for broker in (1, 2, 3)]
        self.processes = [self._start(broker) for broker in (1, 2, 3)]
        found = [eventually(partial(client_address, log), "it listens") for log in self.logs]
        self.bootstrap = ",".join(found)

    def _start(self, broker: int) -> "subprocess.Popen[bytes]":
        sets = {
            "node.id": broker,
            "listeners": f"SSL://{HOST}:0,BROKERS://{HOST}:0",
            "inter.broker.listener.name": "BROKERS",
            "listener.security.protocol.map": "BROKERS:SSL,SSL:SSL",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": self.store,
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": self.folder / "ca.pem",
            "ssl.client.auth": "required",
            "min.insync.replicas": 2,
            "tidelog.log.format": "json",
            **LONG_SESSIONS,
        }
        options = [word for name, value in sets.items() for word in ("--set", f"{name}={value}")]
        command = [sys.executable, "-m", "tidelog", "broker", "--data", str(self.folder / "data")]
        with self.logs[broker - 1].open("wb") as file:
            process = subprocess.Popen([*command, *options], stderr=file, env=dict(os.environ))
        self._stack.callback(process.wait, STOP_S)
        self._stack.callback(process.terminate)
        return process

    @property
    def librdkafka(self) -> dict[str, Any]:
        return {
            "security.protocol": "SSL",
            "ssl.ca.location": str(self.folder / "ca.pem"),
            "ssl.certificate.location": str(self.folder / "client.pem"),
            "ssl.key.location": str(self.folder / "client.key"),
            "ssl.key.password": PASSWORD,
        }

    @property
    def properties(self) -> Path:
        """The file for `--command-config`, as for Kafka's own tools."""
        path = self.folder / "client.properties"
        path.write_text(
            "security.protocol=SSL\n"
            f"ssl.truststore.type=PEM\nssl.truststore.location={self.folder / 'ca.pem'}\n"
            f"ssl.keystore.type=PEM\nssl.keystore.location={self.client}\n"
            f"ssl.key.password={PASSWORD}\n"
        )
        return path

    def context(self, **trust: str) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=trust.get("ca", str(self.folder / "ca.pem")))
        context.load_cert_chain(self.client, password=PASSWORD)
        return context

    def tidelog(self, *words: str) -> "subprocess.CompletedProcess[str]":
        where = ("-b", self.bootstrap, "--timeout", str(ANSWER_S))
        command = [sys.executable, "-m", "tidelog", *words]
        command += where if "--timeout" not in words else where[:2]
        return subprocess.run(
            command, capture_output=True, text=True, timeout=COMMAND_S, check=False
        )

    def make_topic(self, name: str) -> None:
        texts = {n: text for _, n, text in parse_properties(self.properties.read_text())}
        make_topic(self.bootstrap, name, 1, 3, security=read_security(texts))

    def logged(self, text: str) -> bool:
        return any(text in log.read_text() for log in self.logs)

    def close(self) -> None:
        self._stack.close()


def client_address(log: Path) -> str | None:
    event = listening_event(log)
    if event is None:
        return None
    [address] = event["listeners"]
    return str(address).removeprefix("SSL://")


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredCluster]:
    cluster = SecuredCluster(tmp_path_factory.mktemp("secured"))
    yield cluster
    cluster.close()


def test_librdkafka_writes_and_reads_replicated_records(secured: SecuredCluster, name: str) -> None:
    values = [os.urandom(10) + b"%d" % number for number in range(500)] + [os.urandom(400_000)]
    secured.make_topic(name)
    send_all(secured.bootstrap, name, values, conf={"acks": "all", **secured.librdkafka})
    found = read(secured.bootstrap, name, len(values), conf=secured.librdkafka)
    assert [message.value() for message in found] == values


KAFKA_PYTHON = """
import sys
from kafka import KafkaConsumer, KafkaProducer

bootstrap, topic, authority, client, password = sys.argv[1:]
common = {
    "bootstrap_servers": bootstrap.split(","),
    "security_protocol": "SSL",
    "ssl_cafile": authority,
    "ssl_certfile": client,
    "ssl_password": password,
    "bootstrap_timeout_ms": 100_000,
}
producer = KafkaProducer(**common, acks="all", max_block_ms=100_000)
producer.send(topic, b"from kafka-python").get(100)
producer.close()
consumer = KafkaConsumer(topic, **common, auto_offset_reset="earliest")
print(next(consumer).value.decode())
consumer.close()
"""


def test_kafka_python_writes_and_reads(secured: SecuredCluster, name: str) -> None:
    secured.make_topic(name)
    words = (secured.bootstrap, name, secured.folder / "ca.pem", secured.client, PASSWORD)
    command = [sys.executable, "-W", "ignore", "-c", KAFKA_PYTHON, *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=COMMAND_S, check=False)
    assert done.stdout == "from kafka-python\n", done.stderr


def test_the_command_line_reads_the_settings_of_kafkas_tools(
    secured: SecuredCluster, name: str
) -> None:
    config = ("--command-config", str(secured.properties))

    def created() -> bool:
        done = secured.tidelog("topic", "create", name, "--if-not-exists", *config)
        return done.returncode == 0

    eventually(created, "the topic is created")
    eventually(lambda: name in secured.tidelog("topic", "list", *config).stdout, "it is listed")


def test_a_client_that_trusts_another_authority_gets_one_clear_line(
    secured: SecuredCluster,
) -> None:
    path = secured.folder / "wrong.properties"
    path.write_text(secured.properties.read_text().replace("ca.pem", "other.pem"))
    done = secured.tidelog("topic", "list", "--command-config", str(path))
    assert done.returncode == 1
    assert "the peer's certificate was refused" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    eventually(
        lambda: secured.logged("the peer does not trust the certificate authority"),
        "the broker logs it",
    )


def test_a_plain_client_gets_one_clear_line(secured: SecuredCluster) -> None:
    advice = "if its port requires TLS, name a file with security.protocol=SSL"

    def refused() -> "subprocess.CompletedProcess[str] | None":
        """It tries again for ten seconds. If a broker is slow, the last error is another one."""
        done = secured.tidelog("topic", "list", "--timeout", "10")
        return done if advice in done.stderr else None

    done = eventually(refused, "a client without TLS fails")
    assert done.returncode == 1
    assert len(done.stderr.strip().splitlines()) == 1
    eventually(lambda: secured.logged("does not use TLS"), "the broker logs it")


def test_a_renewed_certificate_is_used_without_a_restart(secured: SecuredCluster) -> None:
    host, _, port = secured.bootstrap.split(",")[0].rpartition(":")
    certificate(secured.folder, "renewed", "/O=renewed broker")
    before = secured.store.read_bytes()
    (secured.folder / "renewed.store.pem").replace(secured.store)

    def subject() -> str:
        with (
            socket.create_connection((host, int(port)), 60) as plain,
            secured.context().wrap_socket(plain, server_hostname=host) as peer,
        ):
            found = peer.getpeercert()
            assert found is not None
            return str(found["subject"])

    try:
        eventually(lambda: "renewed broker" in subject(), "the new certificate is used")
        secured.store.write_text("half a file")
        eventually(lambda: secured.logged("the old certificates stay in use"), "it is logged")
        assert "renewed broker" in subject()
    finally:
        secured.store.write_bytes(before)


def test_records_survive_the_kill_of_a_leader(secured: SecuredCluster, name: str) -> None:
    """Brokers elect and replicate over TLS."""
    secured.make_topic(name)
    conf = {"acks": "all", **secured.librdkafka}
    send_all(secured.bootstrap, name, [b"before"], conf=conf)
    secured.processes[0].kill()
    send_all(secured.bootstrap, name, [b"after"], conf=conf)
    found = read(secured.bootstrap, name, 2, conf=secured.librdkafka)
    assert [message.value() for message in found] == [b"before", b"after"]


@pytest.mark.slow
def test_kafkas_own_tools_use_the_same_file(secured: SecuredCluster, name: str) -> None:
    """Java's TLS with a certificate. Java can't read every key that OpenSSL has encrypted."""
    java_tools()  # skips without Java
    decrypt = ("pkcs8", "-topk8", "-nocrypt", "-passin", f"pass:{PASSWORD}")
    openssl(secured.folder, *decrypt, "-in", "client.key", "-out", "java.key")
    parts = [(secured.folder / file).read_text() for file in ("java.key", "client.pem")]
    (secured.folder / "java.pem").write_text("".join(parts))
    texts = secured.properties.read_text().replace(secured.client.name, "java.pem").splitlines()
    path = secured.folder / "java.properties"
    path.write_text("\n".join(text for text in texts if "ssl.key.password" not in text))
    topics = ("TopicCommand", "--command-config", str(path))
    run_tool(secured.bootstrap, *topics, "--create", "--topic", name)
    assert name in run_tool(secured.bootstrap, *topics, "--list")
