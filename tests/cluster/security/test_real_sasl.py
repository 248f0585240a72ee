"""Real brokers with SASL between them and for clients, with every mechanism."""

import json
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from client_programs import java_tools, run_tool
from real_cluster import eventually, make_topic, read, send_all
from sasl_cluster import COMMAND_S, PASSWORD, PATIENCE_S, PROTOCOLS, SECRETS, USER, SaslCluster

from tidelog.core.sasl.mechanism import PASSWORD_MECHANISMS, SCRAM_SHA_256, SCRAM_SHA_512
from tidelog.core.types import LOSSES_TOPIC
from tidelog.shell.client.cluster import Cluster
from tidelog.shell.client.consumer import Reader
from tidelog.shell.client.security import read_security


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SaslCluster]:
    made = SaslCluster(tmp_path_factory.mktemp("sasl"))
    made.create_users()
    yield made
    made.close()


# -- other clients -------------------------------------------------------------------------

CONFLUENT = """
import json, sys
from confluent_kafka import Consumer, KafkaError, Producer

bootstrap, topic, settings = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
failed = []
common = {
    "bootstrap.servers": bootstrap,
    "security.protocol": settings["protocol"],
    "sasl.mechanism": settings["mechanism"],
    "sasl.username": settings["user"],
    "sasl.password": settings["password"],
    "ssl.ca.location": settings["authority"],
    "log_level": 0,
    "error_cb": lambda error: failed.append(error.code()),
}
producer = Producer({**common, "acks": "all"})
producer.produce(topic, settings["mechanism"].encode())
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

bootstrap, topic, settings = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
common = {
    "bootstrap_servers": bootstrap.split(","),
    "security_protocol": settings["protocol"],
    "sasl_mechanism": settings["mechanism"],
    "sasl_plain_username": settings["user"],
    "sasl_plain_password": settings["password"],
    "ssl_cafile": settings["authority"],
}
limits = dict.fromkeys(("max_block_ms", "bootstrap_timeout_ms"), settings["wait_s"] * 1000)
try:
    producer = KafkaProducer(**common, acks="all", **limits)
    producer.send(topic, settings["mechanism"].encode()).get(100)
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
from aiokafka.errors import KafkaError
from aiokafka.helpers import create_ssl_context

bootstrap, topic, settings = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])

async def run():
    common = {
        "bootstrap_servers": bootstrap.split(","),
        "security_protocol": settings["protocol"],
        "sasl_mechanism": settings["mechanism"],
        "sasl_plain_username": settings["user"],
        "sasl_plain_password": settings["password"],
    }
    if settings["protocol"] == "SASL_SSL":
        common["ssl_context"] = create_ssl_context(cafile=settings["authority"])
    producer = AIOKafkaProducer(**common, acks="all")
    try:
        await producer.start()
    except KafkaError as error:
        print("refused")
        return
    await producer.send_and_wait(topic, settings["mechanism"].encode())
    await producer.stop()
    consumer = AIOKafkaConsumer(topic, **common, group_id=topic, auto_offset_reset="earliest")
    await consumer.start()
    print((await consumer.getone()).value.decode())
    await consumer.stop()

asyncio.run(run())
"""

PROGRAMS = {"librdkafka": CONFLUENT, "kafka-python": KAFKA_PYTHON, "aiokafka": AIOKAFKA}


@pytest.mark.parametrize("mechanism", PASSWORD_MECHANISMS)
@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("program", PROGRAMS)
def test_other_clients_authenticate(
    cluster: SaslCluster, name: str, program: str, protocol: str, mechanism: str
) -> None:
    """Produce and consume in a group with the right password, and fail with a wrong one."""
    admin = read_security(cluster.texts())
    make_topic(cluster.bootstrap(), name, 1, 3, security=admin)
    settings = {
        "protocol": protocol,
        "mechanism": mechanism,
        "user": USER,
        "password": PASSWORD,
        "authority": str(cluster.folder / "ca.pem"),
        "wait_s": PATIENCE_S,
    }

    def run(**changed: Any) -> str:
        words = (cluster.bootstrap(protocol), name, json.dumps({**settings, **changed}))
        command = [sys.executable, "-W", "ignore", "-c", PROGRAMS[program], *words]
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=COMMAND_S, check=False
        )
        return done.stdout or done.stderr

    assert run() == f"{mechanism}\n"
    assert run(password="wrong", wait_s=5) == "refused\n"


@pytest.mark.slow
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_kafkas_own_tools(cluster: SaslCluster, name: str, protocol: str) -> None:
    """Java's clients, and users that kafka-configs.sh creates, shows and deletes."""
    java_tools()  # skips without Java

    def configs(*words: str) -> str:
        file = ("--command-config", cluster.properties(protocol=protocol))
        users = ("--entity-type", "users", "--entity-name", name)
        return run_tool(cluster.bootstrap(protocol), "ConfigCommand", *file, *users, *words)

    for mechanism in (SCRAM_SHA_256, SCRAM_SHA_512):
        added = f"{mechanism}=[iterations=8192,password=of-java]"
        configs("--alter", "--add-config", added)

        def described(mechanism: str = mechanism) -> bool:
            return f"{mechanism}=iterations=8192" in configs("--describe")

        eventually(described, "the user is there", PATIENCE_S)
        file = cluster.properties(
            mechanism=mechanism, user=name, password="of-java", protocol=protocol
        )
        topics = ("TopicCommand", "--command-config", file)
        topic = f"{name}-{mechanism.lower()}"
        run_tool(cluster.bootstrap(protocol), *topics, "--create", "--topic", topic)
        configs("--alter", "--delete-config", mechanism)
        assert f"{mechanism}=" not in configs("--describe")


# -- Tidelog's own client ------------------------------------------------------------------


@pytest.mark.parametrize("mechanism", PASSWORD_MECHANISMS)
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_the_command_line_authenticates(
    cluster: SaslCluster, name: str, protocol: str, mechanism: str
) -> None:
    login = {"mechanism": mechanism, "user": USER, "protocol": protocol}
    right = partial(cluster.tidelog, password=PASSWORD, **login)
    create = ("topic", "create", name, "--if-not-exists")
    eventually(lambda: right(*create).returncode == 0, "the topic is created", PATIENCE_S)
    eventually(lambda: name in right("topic", "list").stdout, "the topic is listed", PATIENCE_S)
    wrong = cluster.tidelog("topic", "list", password="wrong", **login)
    assert wrong.returncode == 1
    assert "authentication at" in wrong.stderr
    assert len(wrong.stderr.strip().splitlines()) == 1
    assert "wrong" not in wrong.stderr


def test_a_client_without_sasl_gets_nothing(cluster: SaslCluster) -> None:
    command = [sys.executable, "-m", "tidelog", "topic", "list", "-b", cluster.bootstrap()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=COMMAND_S, check=False)
    assert done.returncode == 1
    assert not done.stdout
    eventually(lambda: "before the authentication" in cluster.logged(), "the broker logs it")


def test_users_are_listed_and_deleted(cluster: SaslCluster) -> None:
    made = cluster.tidelog("user", "create", "bob", "--password-stdin", stdin="of bob\n")
    assert made.returncode == 0, made.stderr
    login = {"mechanism": SCRAM_SHA_512, "user": "bob", "password": "of bob"}
    eventually(
        lambda: cluster.tidelog("topic", "list", **login).returncode == 0, "bob logs in", PATIENCE_S
    )

    def users() -> dict[str, Any] | None:
        done = cluster.tidelog("user", "list", "--format", "json")
        listed = json.loads(done.stdout)["users"] if done.returncode == 0 else []
        found = {one["user"]: one["credentials"] for one in listed}
        return found if "bob" in found else None

    found = eventually(users, "bob is listed", PATIENCE_S)
    assert found["bob"] == [{"mechanism": SCRAM_SHA_512, "iterations": 4096}]
    assert [each["mechanism"] for each in found[USER]] == [SCRAM_SHA_256, SCRAM_SHA_512]
    assert cluster.tidelog("user", "delete", "bob").returncode == 0
    eventually(
        lambda: cluster.tidelog("topic", "list", **login).returncode == 1, "bob is out", PATIENCE_S
    )
    assert cluster.tidelog("user", "delete", "bob").returncode == 1


def test_each_broker_publishes_its_losses_at_the_broker_that_leads(cluster: SaslCluster) -> None:
    """A login by the cluster's secret names the broker that it is for: also another one."""

    def published() -> bool:
        with Cluster(cluster.bootstrap(), security=read_security(cluster.texts())) as client:
            if LOSSES_TOPIC not in client.refresh().topics:
                return False
            entries = [record.value for record in Reader(client).read(LOSSES_TOPIC, 0, 0)]
        return {json.loads(entry or b"")["broker"] for entry in entries} == {1, 2, 3}

    # A broker pauses for up to a minute before it tries again.
    eventually(published, "the entries of all brokers are in the topic", 3 * PATIENCE_S)


def test_records_survive_the_kill_of_a_leader(cluster: SaslCluster, name: str) -> None:
    """Brokers elect and replicate over connections with SASL. The last test: it kills a broker."""
    make_topic(cluster.bootstrap(), name, 1, 3, security=read_security(cluster.texts()))
    conf = cluster.librdkafka(SCRAM_SHA_512, "SASL_SSL", PASSWORD)
    bootstrap = cluster.bootstrap("SASL_SSL")
    send_all(bootstrap, name, [b"before"], conf={"acks": "all", **conf})
    cluster.processes[0].kill()
    send_all(bootstrap, name, [b"after"], conf={"acks": "all", **conf})
    found = read(bootstrap, name, 2, conf=conf)
    assert [message.value() for message in found] == [b"before", b"after"]


def test_no_password_is_in_a_log_or_in_the_settings_that_brokers_show(
    cluster: SaslCluster,
) -> None:
    def described() -> str | None:
        done = cluster.tidelog("config", "describe", "broker", "2", "--all")
        return done.stdout if done.returncode == 0 else None

    shown = eventually(described, "the settings of a broker", PATIENCE_S)
    assert "sasl.jaas.config" in shown
    for secret in SECRETS:
        assert secret not in cluster.logged()
        assert secret not in shown
        for process in cluster.processes[1:]:
            assert secret.encode() not in Path(f"/proc/{process.pid}/cmdline").read_bytes()
