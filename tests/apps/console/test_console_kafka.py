"""The console on a cluster that is not Tidelog, and without the packages that it needs."""

import importlib.util
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from click.testing import CliRunner
from console_client import PATIENCE_S, Client, serve

from tidelog.apps.cli.main import cli
from tidelog.apps.console.target import RemoteCluster


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    """A console on librdkafka's mock cluster, with one record in `orders`."""
    conf = {"bootstrap.servers": "none", "test.mock.num.brokers": 3, "log_level": 0}
    kafka = confluent_kafka.Producer(conf)
    kafka.produce("orders", b"x", partition=0)
    assert kafka.flush(PATIENCE_S) == 0
    brokers = kafka.list_topics("orders", PATIENCE_S).brokers.values()
    bootstrap = ",".join(f"{each.host}:{each.port}" for each in brokers)
    with serve(RemoteCluster(bootstrap), tmp_path_factory.mktemp("pages")) as found:
        # Until a broker has responded in time, the console does not know what it is.
        found.until("overview", lambda data: data["kind"] == "kafka")
        yield found


def test_overview_of_kafka_has_brokers_and_topics(client: Client) -> None:
    found = client.read("overview")
    assert found["kind"] == "kafka"
    assert len(found["brokers"]) == 3
    orders = next(each for each in found["topics"] if each["topic"] == "orders")
    assert orders["log_end_offset_sum"] is None
    assert found["rates"] is None
    assert client.read("session")["kind"] == "kafka"


def test_partition_of_kafka_says_what_is_unknown(client: Client) -> None:
    def leader_is_shown(found: Any) -> bool:
        assert "not a Tidelog cluster" in found["missing"]
        partition = found["partition"]
        leader = next(r for r in partition["replicas"] if r["broker"] == partition["leader"])
        return bool(leader["high_watermark"] == 1)

    client.until("partitions/orders/0", leader_is_shown)
    assert client.settled("/api/partitions/none/0").status == 404
    assert client.settled("/api/partitions/orders/77").status == 404


def test_pages_of_kafka_are_pushed(client: Client) -> None:
    with client.page("partitions/orders/0") as page:
        assert page.until(lambda data: data["missing"])["partition"]["topic"] == "orders"
    with client.page("topics/orders") as page:
        assert page.until(lambda data: data["partitions"][0]["leader"] is not None)


def test_records_of_kafka_are_read(client: Client) -> None:
    found = client.until("records/orders/0", lambda data: data["records"])
    assert [each["value"] for each in found["records"]] == ["x"]


def test_without_its_packages_the_console_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    found = importlib.util.find_spec
    missing = lambda name, *more: None if name == "uvicorn" else found(name, *more)  # noqa: E731
    monkeypatch.setattr("tidelog.apps.install_advice.find_spec", missing)
    for words in (["console"], ["up", "--console", "--ephemeral"]):
        done = CliRunner().invoke(cli, words)
        assert done.exit_code in (1, 2)
        assert done.stdout == ""
        assert done.stderr.count("\n") == 1
        assert "pip install '.[console]'" in done.stderr


def test_an_address_in_use_is_one_line(client: Client) -> None:
    words = ["console", "-b", "127.0.0.1:1", "--host", "127.0.0.1"]
    done = CliRunner().invoke(cli, [*words, "--port", str(client.console.port)])
    assert done.exit_code == 1
    assert done.stderr.count("\n") == 1
    assert "choose another --port" in done.stderr
