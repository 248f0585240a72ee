"""Real brokers with OAUTHBEARER between them and for clients: right and wrong tokens, by several
clients, and tokens that expire."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from broker_process import STOP_S, listening_event
from certificates import authority, certificate
from client_programs import java_tools, run_tool
from issuer import (
    AUDIENCE,
    ISSUER,
    jwks,
    key_of,
    public_jwk,
    running_provider,
    token,
    unsecured,
)
from real_cluster import LONG_SESSIONS, eventually, make_topic

from tidelog.core.sasl.mechanism import OAUTHBEARER
from tidelog.core.settings.jaas import OAUTH_MODULE
from tidelog.core.settings.oauth_keys import UNSECURED_HANDLER
from tidelog.shell.client.cluster import Cluster
from tidelog.shell.client.security import read_security

PATIENCE_S = 120
ANSWER_S, COMMAND_S = 100, 300
HOST = "127.0.0.1"
PROTOCOL = "SASL_SSL"
UNSECURED = "UNSECURED"
SECRET = "hush-of-client"


class OauthCluster:
    """Three brokers that log in to each other, and clients, by tokens of one identity provider."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._stack = ExitStack()
        authority(folder)
        self.store = certificate(folder, "broker", "/O=broker")
        self.provider = self._stack.enter_context(running_provider())
        self.provider.answers["/keys"] = (200, jwks(public_jwk(key_of("RS256"))))
        self.grant(token(sub="broker"))
        self.logs = [folder / f"{broker}.txt" for broker in (1, 2, 3)]
        self.processes = [self._start(broker) for broker in (1, 2, 3)]
        self.addresses = [
            eventually(partial(addresses, log), "it listens", PATIENCE_S) for log in self.logs
        ]

    def grant(self, text: str) -> None:
        """Answer requests of tokens with this one."""
        answer = json.dumps({"access_token": text}).encode()
        self.provider.answers["/token"] = (200, answer)

    def _start(self, broker: int) -> "subprocess.Popen[bytes]":
        own = f"listener.name.{UNSECURED.lower()}.oauthbearer.sasl"
        sets = {
            "node.id": broker,
            "listeners": f"{PROTOCOL}://{HOST}:0,{UNSECURED}://{HOST}:0,BROKERS://{HOST}:0",
            "inter.broker.listener.name": "BROKERS",
            "listener.security.protocol.map": f"BROKERS:SASL_SSL,{UNSECURED}:SASL_PLAINTEXT",
            "sasl.enabled.mechanisms": OAUTHBEARER,
            "sasl.mechanism.inter.broker.protocol": OAUTHBEARER,
            "sasl.oauthbearer.jwks.endpoint.url": self.provider.url("/keys"),
            "sasl.oauthbearer.expected.audience": AUDIENCE,
            "sasl.oauthbearer.expected.issuer": ISSUER,
            "sasl.oauthbearer.token.endpoint.url": self.provider.url("/token"),
            "sasl.oauthbearer.client.credentials.client.id": "broker",
            "sasl.oauthbearer.client.credentials.client.secret": SECRET,
            f"{own}.server.callback.handler.class": UNSECURED_HANDLER,
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": self.store,
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": self.folder / "ca.pem",
            "min.insync.replicas": 2,
            "group.initial.rebalance.delay.ms": 0,
            "tidelog.log.format": "json",
            **LONG_SESSIONS,
        }
        path = self.folder / f"{broker}.properties"
        path.write_text("".join(f"{name}={value}\n" for name, value in sets.items()))
        data = ("--data", str(self.folder / "data"))
        command = [sys.executable, "-m", "tidelog", "broker", *data, "--config", str(path)]
        with self.logs[broker - 1].open("wb") as file:
            process = subprocess.Popen(command, stderr=file, env=dict(os.environ))
        self._stack.callback(process.wait, STOP_S)
        self._stack.callback(process.terminate)
        return process

    def bootstrap(self, listener: str = PROTOCOL) -> str:
        return ",".join(each[listener] for each in self.addresses)

    def texts(self, text: str) -> dict[str, str]:
        """The settings of a client whose token is in a file, for Tidelog's and Kafka's tools."""
        path = self.folder / "token"
        path.write_text(text)
        return {
            "security.protocol": PROTOCOL,
            "sasl.mechanism": OAUTHBEARER,
            "sasl.jaas.config": f"{OAUTH_MODULE} required;",
            "sasl.oauthbearer.token.endpoint.url": f"file://{path}",
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.folder / "ca.pem"),
        }

    def tidelog(self, texts: dict[str, str], *words: str) -> Any:
        path = self.folder / "client.properties"
        path.write_text("".join(f"{name}={text}\n" for name, text in texts.items()))
        config = ("-b", self.bootstrap(), "--command-config", str(path))
        return subprocess.run(
            [sys.executable, "-m", "tidelog", *words, *config, "--timeout", str(ANSWER_S)],
            capture_output=True,
            text=True,
            timeout=COMMAND_S,
            check=False,
        )

    def logged(self) -> str:
        return "".join(log.read_text() for log in self.logs)

    def close(self) -> None:
        self._stack.close()


def addresses(log: Path) -> dict[str, str] | None:
    """The client listeners of a broker once it listens."""
    event = listening_event(log)
    return event and dict(str(one).split("://") for one in event["listeners"])


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OauthCluster]:
    made = OauthCluster(tmp_path_factory.mktemp("oauth"))
    admin = read_security(made.texts(token(sub="admin")))

    def is_complete() -> bool:
        with Cluster(made.bootstrap(), security=admin) as client:
            return len(client.refresh().brokers) == 3

    eventually(is_complete, "all brokers are registered", PATIENCE_S)
    yield made
    made.close()


# -- other clients -------------------------------------------------------------------------

CONFLUENT = """
import json, sys, time
from confluent_kafka import Consumer, KafkaError, Producer

bootstrap, topic, settings = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
failed = []
common = {
    "bootstrap.servers": bootstrap,
    "security.protocol": settings["protocol"],
    "sasl.mechanism": "OAUTHBEARER",
    "oauth_cb": lambda _config: (settings["token"], time.time() + 3600),
    "ssl.ca.location": settings["authority"],
    "log_level": 0,
    "error_cb": lambda error: failed.append(error.code()),
}
producer = Producer({**common, "acks": "all"})
producer.produce(topic, b"by token")
while len(producer) and KafkaError._AUTHENTICATION not in failed:
    producer.poll(0.1)
if KafkaError._AUTHENTICATION in failed:
    producer.purge()
    print("refused")
else:
    consumer = Consumer({**common, "group.id": topic, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    while (message := consumer.poll(1)) is None or message.error():
        pass
    print(message.value().decode())
    consumer.close()
"""

KAFKA_PYTHON = """
import json, sys
from kafka import KafkaConsumer, KafkaProducer
from kafka.errors import KafkaError
from kafka.net.sasl.oauth import AbstractTokenProvider

bootstrap, topic, settings = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])

class Provider(AbstractTokenProvider):
    def token(self):
        return settings["token"]

common = {
    "bootstrap_servers": bootstrap.split(","),
    "security_protocol": settings["protocol"],
    "sasl_mechanism": "OAUTHBEARER",
    "sasl_oauth_token_provider": Provider(),
    "ssl_cafile": settings["authority"],
}
limits = dict.fromkeys(("max_block_ms", "bootstrap_timeout_ms"), settings["wait_s"] * 1000)
try:
    producer = KafkaProducer(**common, acks="all", **limits)
    producer.send(topic, b"by token").get(100)
except KafkaError as error:
    print("refused")
else:
    producer.close()
    consumer = KafkaConsumer(topic, **common, group_id=topic, auto_offset_reset="earliest")
    print(next(consumer).value.decode())
    consumer.close()
"""

AIOKAFKA = """
import asyncio, json, sys
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.abc import AbstractTokenProvider
from aiokafka.errors import KafkaError
from aiokafka.helpers import create_ssl_context

bootstrap, topic, settings = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])

class Provider(AbstractTokenProvider):
    async def token(self):
        return settings["token"]

async def run():
    common = {
        "bootstrap_servers": bootstrap.split(","),
        "security_protocol": settings["protocol"],
        "sasl_mechanism": "OAUTHBEARER",
        "sasl_oauth_token_provider": Provider(),
    }
    if settings["protocol"] == "SASL_SSL":
        common["ssl_context"] = create_ssl_context(cafile=settings["authority"])
    producer = AIOKafkaProducer(**common, acks="all")
    try:
        await producer.start()
    except KafkaError as error:
        print("refused")
        return
    await producer.send_and_wait(topic, b"by token")
    await producer.stop()
    consumer = AIOKafkaConsumer(topic, **common, group_id=topic, auto_offset_reset="earliest")
    await consumer.start()
    print((await consumer.getone()).value.decode())
    await consumer.stop()

asyncio.run(run())
"""

PROGRAMS = {"librdkafka": CONFLUENT, "kafka-python": KAFKA_PYTHON, "aiokafka": AIOKAFKA}


def run_program(
    cluster: OauthCluster, name: str, program: str, text: str, listener: str = PROTOCOL
) -> str:
    is_right = listener == UNSECURED or text == token_of("right")
    settings = {
        "protocol": "SASL_PLAINTEXT" if listener == UNSECURED else PROTOCOL,
        "token": text,
        "authority": str(cluster.folder / "ca.pem"),
        "wait_s": PATIENCE_S if is_right else 5,
    }
    words = (cluster.bootstrap(listener), name, json.dumps(settings))
    command = [sys.executable, "-W", "ignore", "-c", PROGRAMS[program], *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=COMMAND_S, check=False)
    return done.stdout or done.stderr


WRONG: dict[str, tuple[str, dict[str, Any]]] = {
    "expired": ("expired", {"exp": 1_000_000_000, "iat": 999_999_000}),
    "audience": ("audience", {"aud": "others"}),
    "issuer": ("issuer", {"iss": "https://other.example"}),
    "no user": ("names the user", {"sub": None}),
}
_TOKENS: dict[str, str] = {}


def token_of(kind: str) -> str:
    """A token of one kind, the same each time."""
    if kind not in _TOKENS:
        if kind == "right":
            made = token()
        elif kind == "unsecured":
            made = unsecured()
        elif kind == "signature":
            made = token(key=key_of("RS256", 1))
        elif kind == "unknown key":
            made = token(key=key_of("RS256", 1), header={"kid": "other"})
        else:
            made = token(**WRONG[kind][1])
        _TOKENS[kind] = made
    return _TOKENS[kind]


REASONS = {
    "unsecured": "'none', which its key does not allow",
    "signature": "signature is wrong",
    "unknown key": "unknown key",
    **{kind: reason for kind, (reason, _) in WRONG.items()},
}


@pytest.mark.parametrize("program", PROGRAMS)
def test_other_clients_log_in_by_a_token(cluster: OauthCluster, name: str, program: str) -> None:
    """Produce and consume in a group by a right token, and fail by an expired one."""
    admin = read_security(cluster.texts(token(sub="admin")))
    make_topic(cluster.bootstrap(), name, 1, 3, security=admin)
    assert run_program(cluster, name, program, token_of("right")) == "by token\n"
    assert run_program(cluster, name, program, token_of("expired")) == "refused\n"


@pytest.mark.parametrize("kind", REASONS)
def test_a_wrong_token_is_refused_and_the_broker_logs_why(cluster: OauthCluster, kind: str) -> None:
    before = cluster.logged().count(REASONS[kind])
    done = cluster.tidelog(cluster.texts(token_of(kind)), "topic", "list")
    assert done.returncode == 1
    if kind == "no user":
        assert "invalid_token" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert token_of(kind)[:40] not in done.stderr

    def is_logged() -> bool:
        return cluster.logged().count(REASONS[kind]) > before

    eventually(is_logged, "the broker logs the reason", PATIENCE_S)
    assert token_of(kind) not in cluster.logged()


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_listener_that_asks_for_it_accepts_tokens_without_signature(
    cluster: OauthCluster, name: str, program: str
) -> None:
    admin = read_security(cluster.texts(token(sub="admin")))
    make_topic(cluster.bootstrap(), name, 1, 3, security=admin)
    text = token_of("unsecured")
    assert run_program(cluster, name, program, text, UNSECURED) == "by token\n"


@pytest.mark.slow
def test_kafkas_own_tools_log_in_by_a_token(
    cluster: OauthCluster, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Java's clients take the same file as Tidelog's, beside Kafka's class for the login."""
    java_tools()  # skips without Java
    texts = {
        **cluster.texts(token_of("right")),
        "sasl.login.callback.handler.class": "org.apache.kafka.common.security.oauthbearer"
        ".OAuthBearerLoginCallbackHandler",
    }
    path = cluster.folder / "java.properties"
    path.write_text("".join(f"{key}={text}\n" for key, text in texts.items()))
    allowed = texts["sasl.oauthbearer.token.endpoint.url"]
    properties = ("urls", "files")
    options = [
        f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.{one}={text}"
        for one, text in zip(properties, (allowed, cluster.folder / "token"), strict=True)
    ]
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", " ".join(options))
    create = ("TopicCommand", "--command-config", str(path), "--create", "--topic", name)
    run_tool(cluster.bootstrap(), *create)
    done = cluster.tidelog(texts, "topic", "list")
    assert name in done.stdout


# -- Tidelog's own client ------------------------------------------------------------------


def test_the_command_line_logs_in_by_a_file(cluster: OauthCluster, name: str) -> None:
    texts = cluster.texts(token())
    done = cluster.tidelog(texts, "topic", "create", name)
    assert done.returncode == 0, done.stderr
    assert name in cluster.tidelog(texts, "topic", "list").stdout
    missing = {**texts, "sasl.oauthbearer.token.endpoint.url": "file:///missing/token"}
    failed = cluster.tidelog(missing, "topic", "list")
    assert failed.returncode == 1
    assert "can't read file:///missing/token: No such file" in failed.stderr


def test_the_command_line_logs_in_by_a_token_endpoint(cluster: OauthCluster) -> None:
    options = f'clientId="cli" clientSecret="{SECRET}" scope="kafka"'
    texts = {
        **cluster.texts(""),
        "sasl.oauthbearer.token.endpoint.url": cluster.provider.url("/token"),
        "sasl.jaas.config": f"{OAUTH_MODULE} required {options};",
    }
    done = cluster.tidelog(texts, "topic", "list")
    assert done.returncode == 0, done.stderr
    assert b"grant_type=client_credentials&scope=kafka" in [
        body for _, _, body in cluster.provider.requests
    ]


def test_a_client_logs_in_again_before_its_token_expires(cluster: OauthCluster) -> None:
    """The same connection lives longer than its first token."""
    texts = cluster.texts(token(exp=int(time.time()) + 4))
    security = read_security(texts)
    end_s = time.monotonic() + 12
    with Cluster(cluster.bootstrap(), security=security) as client:
        while time.monotonic() < end_s:
            cluster.texts(token(exp=int(time.time()) + 4))
            client.refresh()
            time.sleep(0.2)
    assert "did not authenticate again in time" not in cluster.logged()


def test_brokers_replicate_by_tokens_and_show_no_secret(cluster: OauthCluster, name: str) -> None:
    admin = read_security(cluster.texts(token(sub="admin")))
    make_topic(cluster.bootstrap(), name, 1, 3, security=admin)
    assert run_program(cluster, name, "librdkafka", token_of("right")) == "by token\n"
    texts = cluster.texts(token(sub="admin"))
    shown = cluster.tidelog(texts, "config", "describe", "broker", "2", "--all")
    assert shown.returncode == 0, shown.stderr
    assert "client.credentials.client.secret" in shown.stdout
    granted = json.loads(cluster.provider.answers["/token"][1])["access_token"]
    for secret in (SECRET, granted):
        assert secret not in shown.stdout
        assert secret not in cluster.logged()


def test_a_broker_without_the_library_says_what_to_install(tmp_path: Path) -> None:
    path = tmp_path / "server.properties"
    (tmp_path / "keys.json").write_bytes(jwks(public_jwk(key_of("RS256"))))
    path.write_text(
        f"node.id=1\nlisteners=SASL_PLAINTEXT://{HOST}:0\nsasl.enabled.mechanisms=OAUTHBEARER\n"
        f"sasl.oauthbearer.jwks.endpoint.url=file://{tmp_path}/keys.json\n"
    )
    (tmp_path / "jwt.py").write_text("raise ImportError('not here')\n")
    done = subprocess.run(
        [sys.executable, "-m", "tidelog", "broker", "--data", str(tmp_path), "--config", str(path)],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
    )
    assert done.returncode == 1
    assert "pip install '.[oauth]'" in done.stderr
    assert "Traceback" not in done.stderr
