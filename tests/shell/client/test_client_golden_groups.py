"""`tidelog group` with recorded responses of a real Kafka 4.3.1 about its groups."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from click.testing import CliRunner
from fake_broker import PATIENCE_S, FakeBroker, fake_brokers
from test_client_golden_kafka import API_VERSIONS, METADATA, metadata, recorded

from tidelog.apps.cli.main import cli
from tidelog.core.wire.codec import Struct
from tidelog.shell.client.cluster import Cluster
from tidelog.shell.client.groups.group_admin import committed_offsets, delete_groups, delete_offsets

LIST_OFFSETS, OFFSET_FETCH, FIND, DESCRIBE, LIST, DELETE = 2, 9, 10, 15, 16, 42
OFFSET_DELETE, DESCRIBE_NEWER = 47, 69
HOME = {"jg": 2, "jgrc": 1, "jp": 1, "cg": 1}
"""Which broker had the group."""


@pytest.fixture
def kafka() -> Iterator[list[FakeBroker]]:
    with fake_brokers(3) as brokers:
        offered = {
            api["api_key"]: (api["min_version"], api["max_version"])
            for api in recorded(API_VERSIONS, 4)[0][2]["api_keys"]
        }
        everything = next(t for _, q, t in recorded(METADATA, 13) if q["topics"] is None)
        lists = {broker: told for broker, _, told in recorded(LIST, 5)}
        for broker in brokers:
            broker.offered = offered
            broker.answers[METADATA] = lambda _, request: metadata(brokers, everything, request)
            broker.answers[FIND] = lambda _, request: coordinator(brokers, request)
            broker.answers[LIST] = lambda *_, told=lists[broker.id]: told
            broker.answers[DESCRIBE] = lambda _, request: of_group(DESCRIBE, request["groups"][0])
            broker.answers[DESCRIBE_NEWER] = lambda _, request: of_group(
                DESCRIBE_NEWER, request["group_ids"][0]
            )
            broker.answers[OFFSET_FETCH] = lambda _, request: all_offsets(request)
            broker.answers[LIST_OFFSETS] = lambda _, request: ends(request)
            broker.answers[DELETE] = lambda *_: recorded(DELETE, 2)[0][2]
            broker.answers[OFFSET_DELETE] = lambda *_: recorded(OFFSET_DELETE, 0)[0][2]
        yield brokers


def coordinator(brokers: list[FakeBroker], request: Struct) -> Struct:
    (name,) = request["coordinator_keys"]
    told = next(
        each
        for _, _, answer in recorded(FIND, 6)
        for each in answer["coordinators"]
        if each["key"] == name or HOME.get(name) == each["node_id"]
    )
    port = next(broker.port for broker in brokers if broker.id == told["node_id"])
    return {"coordinators": [{**told, "key": name, "port": port}]}


def of_group(api_key: int, name: str) -> Struct:
    for version in (0, 1, 5, 6):
        for _, _, told in recorded(api_key, version):
            for group in told["groups"]:
                if group["group_id"] == name:
                    return {"groups": [group]}
    raise AssertionError(f"{name} was not recorded")


def all_offsets(request: Struct) -> Struct:
    (group,) = request["groups"]
    return next(
        told
        for _, asked, told in recorded(OFFSET_FETCH, 9)
        if asked["groups"][0]["group_id"] == group["group_id"]
    )


def ends(request: Struct) -> Struct:
    """Return ListOffsets results for logs that end at 500."""
    return {
        "topics": [
            {
                "name": topic["name"],
                "partitions": [
                    {"partition_index": each["partition_index"], "error_code": 0, "offset": 500}
                    for each in topic["partitions"]
                ],
            }
            for topic in request["topics"]
        ]
    }


def run(kafka: list[FakeBroker], *words: str) -> dict[str, Any]:
    addresses = ",".join(broker.address for broker in kafka)
    found = CliRunner().invoke(
        cli,
        [
            "group",
            *words,
            "--bootstrap",
            addresses,
            "--timeout",
            str(PATIENCE_S),
            "--format",
            "json",
        ],
    )
    assert (found.exit_code, found.stderr) == (0, ""), found.output
    document: dict[str, Any] = json.loads(found.stdout)
    return document


def test_list(kafka: list[FakeBroker]) -> None:
    found = {each["group"]: each for each in run(kafka, "list")["groups"]}
    assert (found["jg"]["state"], found["jg"]["kind"]) == ("Empty", "classic")
    assert found["jg"]["coordinator"] == 2
    assert found["jg848"]["kind"] == "consumer"


def test_describe(kafka: list[FakeBroker]) -> None:
    (found,) = run(kafka, "describe", "jp")["groups"]
    assert (found["state"], found["coordinator"]["id"], found["members"]) == ("Empty", 1, [])
    offsets = {(row["topic"], row["partition"]): row for row in found["offsets"]}
    assert offsets["jt", 2]["current_offset"] == 330
    assert offsets["jt", 2]["lag"] == 170
    (busy,) = run(kafka, "describe", "cg")["groups"]
    assert busy["state"] == "PreparingRebalance"
    assert busy["members"][0]["instance_id"] == "static-1"
    assert busy["members"][0]["client_id"] == "confluent-g2"


def test_delete(kafka: list[FakeBroker]) -> None:
    with Cluster(kafka[0].address) as cluster:
        assert delete_groups(cluster, ["jp"]) == {"jp": None}
        committed = committed_offsets(cluster, "jp")
        answers = delete_offsets(cluster, "jg", committed)
    assert sorted(answers) == sorted(committed)
    assert set(answers.values()) == {0}
    asked = [request for broker in kafka for request in broker.requests(OFFSET_DELETE)]
    (original,) = [request for _, request, _ in recorded(OFFSET_DELETE, 0)][:1]
    assert partitions_of(asked[0]) == partitions_of(original)


def partitions_of(request: Struct) -> dict[str, list[int]]:
    return {
        topic["name"]: sorted(each["partition_index"] for each in topic["partitions"])
        for topic in request["topics"]
    }
