"""Client quotas on real brokers: real clients are throttled, and the how-to's commands work."""

import json
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, ThrottleEvent
from real_cluster import LONG_SESSIONS, PATIENCE_S, eventually, leader_of, make_topic, send_all

from tidelog.shell.client.administration.quotas import alter_quotas, describe_quotas
from tidelog.shell.client.cluster import Cluster
from tidelog.shell.supervisor.cluster import LocalCluster

PAGE = Path(__file__).parents[3] / "docs" / "how-to" / "limit-clients.md"
RATE = 50_000
"""Bytes a second, for the clients of these tests."""
RECORD = bytes(10_000)
ANSWER_S, COMMAND_S = 100, 300


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(3, settings=LONG_SESSIONS) as running:
        yield running


def limit(cluster: LocalCluster, parts: dict[str, str | None], **changes: float | None) -> None:
    """Change quotas; wait until the broker that is asked for them describes them."""
    wanted = {key: value for key, value in changes.items() if value is not None}
    with Cluster(cluster.bootstrap, timeout_s=PATIENCE_S) as client:
        outcome = alter_quotas(client, parts, changes)
        assert outcome.holds, outcome

        def is_known() -> bool:
            found = describe_quotas(client, parts)
            return (found[0].quotas if found else {}) == wanted

        eventually(is_known, "the quota is known")


def test_a_producer_is_held_back_by_the_broker_that_leads(cluster: LocalCluster, name: str) -> None:
    make_topic(cluster.bootstrap, name)
    leader = leader_of(cluster, name)
    limit(cluster, {"client-id": name}, producer_byte_rate=RATE)
    throttled: list[ThrottleEvent] = []
    delivered = 0

    def count(error: object, _message: object) -> None:
        nonlocal delivered
        assert error is None, error
        delivered += len(RECORD)

    producer = Producer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "client.id": name,
            "throttle_cb": throttled.append,
            "batch.size": 20_000,
            "queue.buffering.max.messages": 100,
        }
    )
    began_s = time.monotonic()
    while time.monotonic() - began_s < PATIENCE_S and len(throttled) < 20:
        try:
            producer.produce(name, RECORD, on_delivery=count)
        except BufferError:
            producer.poll(0.1)
        producer.poll(0)

    elapsed_s = time.monotonic() - began_s
    assert len(throttled) >= 20, "the producer was not throttled"
    assert {event.broker_id for event in throttled} == {leader}
    # Ten seconds may be used at once, and requests in flight are accepted. Without the quota, the
    # producer sends hundreds of megabytes.
    assert delivered < 3 * RATE * (elapsed_s + 10) + 3_000_000

    limit(cluster, {"client-id": name}, producer_byte_rate=None)
    assert producer.flush(PATIENCE_S) == 0


def test_a_consumer_is_held_back_and_gets_all_records(cluster: LocalCluster, name: str) -> None:
    make_topic(cluster.bootstrap, name)
    values = [bytes([number]) * 10_000 for number in range(100)]
    # A batch of more than ten seconds of the quota would never be returned, as with Kafka.
    send_all(cluster.bootstrap, name, values, conf={"batch.size": 20_000})
    limit(cluster, {"user": None, "client-id": name}, consumer_byte_rate=RATE)
    throttled: list[ThrottleEvent] = []
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "client.id": name,
            "group.id": name,
            "auto.offset.reset": "earliest",
            "throttle_cb": throttled.append,
        }
    )
    consumer.subscribe([name])
    read: list[bytes] = []

    def has_all() -> bool:
        message = consumer.poll(0.5)
        if message is not None and message.error() is None:
            read.append(message.value() or b"")
        return len(read) == len(values)

    try:
        eventually(has_all, "all records are read")
    finally:
        consumer.close()
    assert read == values
    assert throttled, "a megabyte takes longer than the ten seconds that may be used at once"


def is_open(sock: socket.socket) -> bool:
    sock.settimeout(0.1)
    try:
        return sock.recv(1) != b""
    except TimeoutError:
        return True
    except ConnectionError:
        return False


def test_connections_beyond_the_rate_are_closed_and_brokers_still_meet(name: str) -> None:
    with (
        LocalCluster(3, settings=LONG_SESSIONS) as cluster,
        Cluster(cluster.bootstrap, timeout_s=PATIENCE_S) as client,
    ):
        make_topic(cluster.bootstrap, name)
        quota = {"connection_creation_rate": 1.0}
        assert alter_quotas(client, {"ip": None}, quota).holds
        eventually(lambda: bool(describe_quotas(client, {"ip": None})), "the quota is known")

        def some_are_closed() -> bool:
            with ExitStack() as opened:
                address = ("localhost", cluster.port(1))
                socks = [opened.enter_context(socket.create_connection(address)) for _ in range(40)]
                time_out = time.monotonic() + PATIENCE_S
                while time.monotonic() < time_out:
                    if sum(map(is_open, socks)) < len(socks):
                        return True
                return False

        eventually(some_are_closed, "connections are closed")
        removed = {"connection_creation_rate": None}
        eventually(lambda: alter_quotas(client, {"ip": None}, removed).holds, "it is removed")
        eventually(lambda: not describe_quotas(client, {"ip": None}), "the quota is removed")
        send_all(cluster.bootstrap, name, [b"replicated"], conf={"acks": "all"})


def commands() -> list[list[str]]:
    """Return the commands of the page."""
    lines = PAGE.read_text().splitlines()
    return [line[2:].split() for line in lines if line.startswith("$ tidelog ")]


def test_the_commands_of_the_page_work(cluster: LocalCluster) -> None:
    found = commands()
    assert [words[2] for words in found] == ["set"] * 4 + ["list", "remove"]
    for words in found:
        done = subprocess.run(
            [sys.executable, "-m", *words, "-b", cluster.bootstrap, "--timeout", str(ANSWER_S)],
            capture_output=True,
            text=True,
            timeout=COMMAND_S,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr

    with Cluster(cluster.bootstrap, timeout_s=PATIENCE_S) as client:
        wanted = {"connection_creation_rate"}
        eventually(
            lambda: not any(wanted & set(each.quotas) for each in describe_quotas(client, {})),
            "the removed quota is gone",
        )
    listed = [*found[4], "--client-id", "etl", "--format", "json", "-b", cluster.bootstrap]
    listed += ["--timeout", str(ANSWER_S)]
    text = subprocess.run(
        [sys.executable, "-m", *listed], capture_output=True, timeout=COMMAND_S, check=True
    ).stdout
    assert json.loads(text)["quotas"] == [
        {
            "entity": {"client-id": "etl"},
            "quotas": {"consumer_byte_rate": 5_000_000.0, "producer_byte_rate": 1_000_000.0},
        }
    ]


def test_commands_refuse_what_is_incomplete(cluster: LocalCluster) -> None:
    for words, code, message in (
        (("set", "--producer-byte-rate", "5"), 2, "name the clients"),
        (("set", "--user", "u"), 2, "name a quota"),
        (("list", "--user", "u", "--default-user"), 2, "exclude each other"),
        (("set", "--user", "u", "--producer-byte-rate", "0"), 1, "must be greater than 0"),
        (("set", "--ip", "x", "--connection-creation-rate", "1"), 1, "not a valid IP"),
    ):
        done = subprocess.run(
            [
                sys.executable,
                "-m",
                "tidelog",
                "quota",
                *words,
                "-b",
                cluster.bootstrap,
                "--timeout",
                str(ANSWER_S),
            ],
            capture_output=True,
            text=True,
            timeout=COMMAND_S,
            check=False,
        )
        assert (done.returncode, message in done.stderr) == (code, True), done.stderr
