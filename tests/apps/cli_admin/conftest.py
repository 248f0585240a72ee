"""A cluster of three brokers for each module, and how to run a command against it."""

import json
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, TypeAlias

import pytest
from click.testing import CliRunner, Result
from real_cluster import LONG_SESSIONS, PATIENCE_S, eventually

from tidelog.apps.cli.connection import VARIABLE
from tidelog.apps.cli.main import cli
from tidelog.core.wire.codec import Struct
from tidelog.shell.client.cluster import Cluster
from tidelog.shell.client.connection import KafkaConnection
from tidelog.shell.supervisor.cluster import LocalCluster

Run: TypeAlias = Callable[..., Result]
Read: TypeAlias = Callable[..., dict[str, Any]]

KAFKA_2_1 = {2: 4, 3: 7, 18: 2, 19: 3, 20: 3, 22: 1, 32: 2, 33: 1, 35: 1, 37: 1}
"""The newest versions of a broker of that age, for the APIs that are asked here."""


@pytest.fixture(scope="module")
def brokers() -> Iterator[LocalCluster]:
    with LocalCluster(brokers=3, settings=LONG_SESSIONS) as running:
        yield running


@pytest.fixture
def cluster(brokers: LocalCluster) -> Iterator[Cluster]:
    """Tidelog's own client, to check the effect of commands."""
    with Cluster(brokers.bootstrap, timeout_s=PATIENCE_S) as found:
        yield found


@pytest.fixture
def run(brokers: LocalCluster) -> Run:
    """Run a command; it must exit with the expected code."""

    def command(*words: str, code: int = 0, told: bool = True) -> Result:
        runner = CliRunner(env={VARIABLE: brokers.bootstrap, "COLUMNS": "200"})
        found = runner.invoke(cli, list(words))
        assert found.exit_code == code, found.output
        if code and told:
            assert found.stderr.startswith("tidelog: ")
            assert found.stderr.count("\n") == 1
        if "alter" in words:
            await_images(brokers)
        return found

    return command


def await_images(brokers: LocalCluster) -> None:
    """Wait until every broker knows each change: Metadata waits for it, DescribeConfigs does not,
    as in Kafka."""
    for broker in brokers.ids:
        eventually(partial(brokers.metadata, broker, []), f"metadata of broker {broker}")


@pytest.fixture
def read(run: Run) -> Read:
    """Run a command and return its JSON."""

    def command(*words: str, code: int = 0) -> dict[str, Any]:
        result = run(*words, "--format", "json", code=code, told=False)
        document: dict[str, Any] = json.loads(result.stdout)
        assert document["holds"] is (code == 0)
        return document

    return command


@pytest.fixture
def as_kafka_2_1(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let brokers offer only the APIs of Kafka 2.1."""
    ask = KafkaConnection._ask_versions

    def versions(self: KafkaConnection, version: int, timeout_s: float) -> Struct | None:
        answer = ask(self, version, timeout_s)
        assert answer is not None
        offered = [api for api in answer["api_keys"] if api["api_key"] in KAFKA_2_1]
        for api in offered:
            api["max_version"] = min(api["max_version"], KAFKA_2_1[api["api_key"]])
        return {**answer, "api_keys": offered}

    monkeypatch.setattr(KafkaConnection, "_ask_versions", versions)
