"""Real brokers with several listeners on different loopback addresses."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient
from real_cluster import eventually, make_topic, read, send_all

STOP_S = 120.0
IN, OUT, SIX = "127.0.0.1", "127.0.0.2", "::1"


def start(folder: Path, broker: int, log: Path) -> "subprocess.Popen[bytes]":
    """Start one broker with a listener for brokers and two for clients."""
    listeners = f"BROKERS://{IN}:0,OUT://{OUT}:0,SIX://[{SIX}]:0"
    sets = [
        f"node.id={broker}",
        f"listeners={listeners}",
        "inter.broker.listener.name=BROKERS",
        "tidelog.log.format=json",
    ]
    options = [word for text in sets for word in ("--set", text)]
    command = [sys.executable, "-m", "tidelog", "broker", "--data", str(folder), *options]
    with log.open("wb") as file:
        return subprocess.Popen(command, stderr=file, env=dict(os.environ))


def addresses(log: Path) -> dict[str, str]:
    """The advertised listeners in a broker's log, by name; empty while it starts."""
    written, _, _ = log.read_text().rpartition("\n")  # the last line may be incomplete
    for line in written.splitlines():
        event = json.loads(line)
        if event.get("event") == "listening":
            return {one.partition("://")[0]: one.partition("://")[2] for one in event["listeners"]}
    return {}


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[dict[str, str]]]:
    folder = tmp_path_factory.mktemp("listeners")
    with ExitStack() as stack:
        logs = []
        for broker in (1, 2):
            logs.append(folder / f"{broker}.txt")
            process = start(folder / "data", broker, logs[-1])
            stack.callback(process.wait, STOP_S)
            stack.callback(process.terminate)
        yield [eventually(partial(addresses, log), "it listens") for log in logs]


@pytest.mark.parametrize("listener", ["OUT", "SIX"])
def test_clients_get_the_addresses_of_their_listener(
    found: list[dict[str, str]], listener: str, name: str
) -> None:
    bootstrap = found[0][listener]
    client = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})

    def brokers() -> list[str] | None:
        known = client.list_topics(timeout=5).brokers.values()
        return sorted(f"{b.host}:{b.port}" for b in known) if len(known) == 2 else None

    shown = [one[listener].replace("[", "").replace("]", "") for one in found]
    assert eventually(brokers, "both brokers are listed") == sorted(shown)
    make_topic(bootstrap, name, partitions=2, replicas=2)
    send_all(bootstrap, name, [b"one", b"two"], conf={"acks": "all"})
    assert [message.value() for message in read(bootstrap, name, 2)] == [b"one", b"two"]


def test_the_listener_for_brokers_is_not_for_clients(found: list[dict[str, str]]) -> None:
    assert all(set(one) == {"OUT", "SIX"} for one in found)
