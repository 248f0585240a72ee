"""The client and its commands with recorded responses of a real Kafka 4.3.1.

Only addresses are changed: three brokers of this test send the recorded responses of Kafka's.
"""

import gzip
import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from fake_broker import PATIENCE_S, Answer, FakeBroker, fake_brokers

from tidelog.apps.cli.main import cli
from tidelog.core.wire.codec import Struct, decode_request, decode_response
from tidelog.core.wire.frames import parse_request_header
from tidelog.shell.client.cluster import Cluster
from tidelog.shell.client.offsets import EARLIEST, LATEST, list_offset

DATA = Path(__file__).parents[2] / "data" / "kafka-4.3.1" / "wire.jsonl.gz"
LIST_OFFSETS = 2
METADATA = 3
API_VERSIONS = 18
OFFSET_FOR_LEADER_EPOCH = 23
DESCRIBE_CONFIGS = 32
DESCRIBE_LOG_DIRS = 35
DESCRIBE_CLUSTER = 60


def recorded(api_key: int, version: int) -> list[tuple[int, Struct, Struct]]:
    """Return (broker, request, response) of each exchange."""
    found = []
    for line in gzip.decompress(DATA.read_bytes()).splitlines():
        exchange: dict[str, Any] = json.loads(line)
        if (exchange["api_key"], exchange["api_version"]) == (api_key, version):
            request, response = map(bytes.fromhex, (exchange["request"], exchange["response"]))
            at = parse_request_header(request).position
            asked = decode_request(api_key, version, request, at)
            told = decode_response(api_key, version, response)[1]
            found.append((exchange["broker"], asked, told))
    return found


@pytest.fixture
def kafka() -> Iterator[list[FakeBroker]]:
    with fake_brokers(3) as brokers:
        offered = {
            api["api_key"]: (api["min_version"], api["max_version"])
            for api in recorded(API_VERSIONS, 4)[0][2]["api_keys"]
        }
        everything = next(t for _, q, t in recorded(METADATA, 13) if q["topics"] is None)
        members = recorded(DESCRIBE_CLUSTER, 2)[0][2]
        sizes = {b: t for b, q, t in recorded(DESCRIBE_LOG_DIRS, 5) if q["topics"] is None}
        for broker in brokers:
            broker.offered = offered
            broker.answers[METADATA] = lambda _, request: metadata(brokers, everything, request)
            broker.answers[LIST_OFFSETS] = lambda _, request: offsets(request)
            broker.answers[DESCRIBE_CLUSTER] = lambda *_: moved(brokers, members, "broker_id")
            broker.answers[DESCRIBE_LOG_DIRS] = lambda *_, told=sizes[broker.id]: told
            broker.answers[DESCRIBE_CONFIGS] = lambda _, request: configs(request)
        yield brokers


def moved(brokers: list[FakeBroker], told: Struct, key: str) -> Struct:
    ports = {broker.id: broker.port for broker in brokers}
    return {**told, "brokers": [{**each, "port": ports[each[key]]} for each in told["brokers"]]}


def metadata(brokers: list[FakeBroker], everything: Struct, request: Struct) -> Struct:
    told = moved(brokers, everything, "node_id")
    if request["topics"] is None:
        return told
    wanted = [topic["name"] for topic in request["topics"]]
    return {**told, "topics": [topic for topic in told["topics"] if topic["name"] in wanted]}


def offsets(request: Struct) -> Struct:
    """Return Kafka's recorded offset for this partition and time."""

    def place(asked: Struct) -> tuple[str, int, int]:
        (topic,) = asked["topics"]
        (partition,) = topic["partitions"]
        return topic["name"], partition["partition_index"], partition["timestamp"]

    known = {place(asked): told for _, asked, told in recorded(LIST_OFFSETS, 11)}
    return known[place(request)]


def configs(request: Struct) -> Struct:
    results = {
        result["resource_name"]: result
        for _, _, told in recorded(DESCRIBE_CONFIGS, 4)
        for result in told["results"]
    }
    any_topic = results["jt"]
    return {
        "throttle_time_ms": 0,
        "results": [
            {**any_topic, **results.get(each["resource_name"], {}), **each}
            for each in request["resources"]
        ],
    }


def run(kafka: list[FakeBroker], *arguments: str) -> dict[str, Any]:
    addresses = ",".join(broker.address for broker in kafka)
    words = [*arguments, "--bootstrap", addresses, "--timeout", str(PATIENCE_S), "--format", "json"]
    found = CliRunner().invoke(cli, words)
    assert found.stderr == ""
    document: dict[str, Any] = json.loads(found.stdout)
    return document


def test_the_newest_versions_of_kafka_4_3_1_are_agreed_on(kafka: list[FakeBroker]) -> None:
    with Cluster(kafka[0].address) as cluster:
        broker = cluster.any_broker()
        newest = {key: broker.version(key) for key in (0, 1, 2, 3, 19, 20, 22, 32, 35, 60)}
    assert newest == {0: 13, 1: 18, 2: 11, 3: 13, 19: 7, 20: 6, 22: 5, 32: 4, 35: 5, 60: 2}


def test_offsets(kafka: list[FakeBroker]) -> None:
    with Cluster(kafka[0].address) as cluster:
        assert list_offset(cluster, "jt", 1, LATEST).offset == 64
        assert list_offset(cluster, "jt", 1, EARLIEST).offset == 0


def test_info_brokers_and_health(kafka: list[FakeBroker]) -> None:
    info = run(kafka, "cluster", "info")
    assert info["kind"] == "Kafka"
    assert info["cluster_id"] == "gudEzYsmRReafsRcirkfHA"
    assert [broker["rack"] for broker in info["brokers"]] == ["rack-1", "rack-2", "rack-3"]
    assert [broker["fenced"] for broker in info["brokers"]] == [False] * 3
    assert all(broker["log_bytes"] >= 29725 for broker in info["brokers"])
    assert "jt" in [topic["name"] for topic in info["topics"]]
    health = run(kafka, "cluster", "health")
    assert health["holds"] is True
    assert health["partitions"] == info["partitions"]
    assert health["min_isr_unknown"] is False


def test_health_reports_a_broker_that_is_down(kafka: list[FakeBroker]) -> None:
    kafka[1].close()
    health = run(kafka, "cluster", "health")
    assert health["holds"] is False
    assert health["brokers_away"] == [2]


def test_a_partition_is_described_with_kafkas_protocol_only(kafka: list[FakeBroker]) -> None:
    """Epochs are requested backwards, each by the end of the previous one."""
    epochs = {0: 10, 3: 64}
    """Of each epoch in the log, where it ends."""

    def epoch_end(_version: int, request: Struct) -> Struct:
        wanted = request["topics"][0]["partitions"][0]["leader_epoch"]
        known = max((epoch for epoch in epochs if epoch <= wanted), default=-1)
        found = {"partition": 1, "leader_epoch": known, "end_offset": epochs.get(known, -1)}
        return {"topics": [{"topic": "jt", "partitions": [{**found, "error_code": 0}]}]}

    def led_in_epoch_4(ask: Answer, version: int, request: Struct) -> Struct:
        told = ask(version, request)
        for topic in told["topics"]:
            for partition in topic["partitions"]:
                partition["leader_epoch"] = 4
        return dict(told)

    for broker in kafka:
        broker.answers[OFFSET_FOR_LEADER_EPOCH] = epoch_end
        broker.answers[METADATA] = partial(led_in_epoch_4, broker.answers[METADATA])
    document = run(kafka, "partition", "describe", "jt/1")
    (found,) = document["partitions"]
    assert document["holds"] is True
    assert "not a Tidelog" in document["missing"]
    (leader,) = [each for each in found["replicas"] if each["role"] == "leader"]
    assert leader["broker"] == found["leader"]
    assert leader["epochs"] == [[0, 0], [3, 10]]
    assert (leader["high_watermark"], leader["log_end_offset"]) == (64, None)
    assert {each["size"] for each in found["replicas"]} == {leader["size"]}
    assert leader["size"] > 0
    assert found["min_isr"] is not None
