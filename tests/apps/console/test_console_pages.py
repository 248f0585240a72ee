"""The console's resources on a real cluster: their shapes, and what they say."""

import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from console_client import CALM, INDEX, PATIENCE_S, Client, serve

from tidelog.apps.console.avro_values import BadSchema, read_schemas
from tidelog.apps.console.target import RemoteCluster
from tidelog.core.record.record import Header, Record
from tidelog.core.types import TopicPartition
from tidelog.shell.client import admin
from tidelog.shell.client.cluster import Cluster
from tidelog.shell.client.groups.group_admin import Committed, commit_offsets
from tidelog.shell.client.producer import Producer
from tidelog.shell.supervisor.cluster import LocalCluster

HOSTILE = '<img src=x onerror="alert(1)">/../\u202e"\'; --'


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    """Three brokers; `orders` has two partitions, the first with six records."""
    with LocalCluster(brokers=3, settings=CALM) as running:
        with Cluster(running.bootstrap, timeout_s=PATIENCE_S) as client:
            admin.create_topic(client, "orders", 2, 3, {"min.insync.replicas": "2"})
            producer = Producer(client)
            producer.append("orders", 0, [Record(b"k", b'{"a": 1}', 5), Record(None, b"plain", 6)])
            odd = [
                Record(b"\x00\xff", b"\xff\xfe", 7, (Header("h", b"v"), Header("n", None))),
                Record(None, None, 8),
                Record(HOSTILE.encode(), HOSTILE.encode(), 9),
                Record(None, b"\x00\x00\x00\x00\x07avro", 10, (Header.of(b"\xff", b"v"),)),
            ]
            producer.append("orders", 0, odd)
            key = TopicPartition("orders", 0)
            commit_offsets(client, "readers", {key: Committed(4)})
            commit_offsets(client, HOSTILE, {key: Committed(1)})
        yield running


@pytest.fixture(scope="module")
def client(cluster: LocalCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    with serve(RemoteCluster(cluster.bootstrap), tmp_path_factory.mktemp("pages")) as found:
        yield found


def test_overview_lists_brokers_topics_and_no_problems(client: Client) -> None:
    def all_responded(found: Any) -> bool:
        brokers = found["brokers"]
        return (
            found["counts"]["under_replicated"] == 0
            and found["controller"] is not None
            and all(each["unreachable"] is None for each in brokers)
        )

    found = client.until("overview", all_responded)
    assert found["kind"] == "tidelog"
    assert [each["id"] for each in found["brokers"]] == [1, 2, 3]
    assert found["controller"] in (1, 2, 3)
    orders = next(each for each in found["topics"] if each["topic"] == "orders")
    assert orders["partitions"] == 2
    assert orders["replication_factor"] == 3
    assert orders["log_end_offset_sum"] == 6
    assert found["problems"] == []
    assert found["counts"]["partitions"] >= 2
    assert found["brokers"][0]["process"] is None


def test_topic_has_configs_with_sources_and_partitions(client: Client) -> None:
    found = client.until(
        "topics/orders",
        lambda data: data["configs"] and data["partitions"][0]["log_end_offset"] is not None,
    )
    own = next(each for each in found["configs"] if each["name"] == "min.insync.replicas")
    assert own == {
        "name": "min.insync.replicas",
        "value": "2",
        "source": "DYNAMIC_TOPIC_CONFIG",
        "is_default": False,
    }
    first = found["partitions"][0]
    assert first["log_end_offset"] == 6
    assert first["min_isr"] == 2
    assert sorted(first["replicas"]) == [1, 2, 3]
    assert first["problem"] is None


def test_partition_has_replicas_with_epochs_and_followers(client: Client) -> None:
    def committed(found: Any) -> bool:
        marks = [each["high_watermark"] for each in found["partition"]["replicas"]]
        return marks == [6, 6, 6] and found["pending_isr"] is None

    found = client.until("partitions/orders/0", committed)
    partition = found["partition"]
    assert [each["epochs"] for each in partition["replicas"]] == [[[0, 0]]] * 3
    assert {each["broker"] for each in found["followers"]} == {1, 2, 3} - {partition["leader"]}
    assert all(each["in_isr"] for each in found["followers"])
    assert found["pending_isr"] is None
    topics = [each["topic"] for each in found["explain"]]
    assert topics == ["leader", "high-watermark", "isr", "election"]
    assert found["events"] == []


def test_broker_has_replicas_and_its_own_configs(client: Client) -> None:
    found = client.until("brokers/2", lambda data: data["state"] and data["configs"])
    assert found["broker"]["id"] == 2
    assert found["state"]["acting"] is True
    orders = [each["partition"] for each in found["replicas"] if each["topic"] == "orders"]
    assert orders == [0, 1]
    assert any(each["name"] == "broker.id" for each in found["configs"])


def test_groups_have_lag_also_with_hostile_names(client: Client) -> None:
    listed = client.until("groups", lambda data: len(data["groups"]) == 2)["groups"]
    assert sorted(each["group"] for each in listed) == sorted([HOSTILE, "readers"])
    (row,) = client.until("groups/readers", lambda data: data["lag"])["offsets"]
    assert (row["topic"], row["partition"], row["lag"]) == ("orders", 0, 2)
    assert client.read(f"groups/{quote(HOSTILE, safe='')}")["group"] == HOSTILE


def test_records_are_shown_in_their_form(client: Client) -> None:
    found = client.read("records/orders/0?offset=0")
    assert [each["form"] for each in found["records"]] == [
        "json",
        "text",
        "bytes",
        "null",
        "text",
        "bytes",
    ]
    assert found["records"][5]["schema_id"] == 7
    assert found["records"][4]["value"] == HOSTILE
    assert found["records"][2]["headers"][0] == {"key": "h", "form": "text", "value": "v"}
    assert found["records"][5]["headers"][0]["key"] == "\udcff"
    assert [each["base_offset"] for each in found["batches"]] == [0, 2]
    assert found["next_offset"] == 6


SCHEMA = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "when", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "note", "type": ["null", "string"]},
        {"name": "raw", "type": "bytes"},
    ],
}


def test_avro_is_decoded_with_the_schema_of_its_topic(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    import fastavro

    row = {"id": 2**60, "when": 0, "note": HOSTILE, "raw": b"\xff"}
    out = io.BytesIO()
    fastavro.schemaless_writer(out, SCHEMA, row)
    plain = out.getvalue()
    framed = b"\x00\x00\x00\x01\x02" + plain
    json_framed = b'\x00\x00\x00\x00\x09{"a": 1}'
    (tmp_path / "order.avsc").write_text(json.dumps(SCHEMA))
    avro = read_schemas([f"avro={tmp_path / 'order.avsc'}"])
    with Cluster(cluster.bootstrap, timeout_s=PATIENCE_S) as admin_client:
        admin.create_topic(admin_client, "avro", 1, 3)
        values = [plain, framed, framed[:-1], plain + b"x", json_framed, b"no Avro"]
        Producer(admin_client).append("avro", 0, [Record(None, each, 5) for each in values])
    with serve(RemoteCluster(cluster.bootstrap), tmp_path / "pages", avro=avro) as decoding:
        found = decoding.read("records/avro/0")["records"]
        assert [(each["form"], each["schema_id"]) for each in found] == [
            ("avro", None),
            ("avro", 258),
            ("bytes", 258),
            ("bytes", None),
            ("json", 9),
            ("text", None),
        ]
        when = "1970-01-01T00:00:00+00:00"
        for each in found[:2]:
            decoded = json.loads(each["value"])
            assert decoded == {"id": 2**60, "when": when, "note": HOSTILE, "raw": "/w=="}
        assert found[4]["value"] == '{"a": 1}'


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("{", "is not JSON"),
        ('{"type": "nothing"}', "is not an Avro schema"),
        ('{"type": "array", "items": "null"}', "items take no bytes"),
        (
            '{"type": "record", "name": "r", "fields": [{"name": "a", "type": {"type": "array",'
            ' "items": {"type": "record", "name": "e", "fields": []}}}]}',
            "items take no bytes",
        ),
    ],
)
def test_schema_that_can_not_be_used_is_rejected(tmp_path: Path, text: str, why: str) -> None:
    path = tmp_path / "schema.avsc"
    path.write_text(text)
    with pytest.raises(BadSchema, match=why):
        read_schemas([f"orders={path}"])
    with pytest.raises(BadSchema, match="TOPIC=FILE"):
        read_schemas([str(path)])


def test_records_are_read_page_by_page(client: Client) -> None:
    found = client.read("records/orders/0?offset=1&limit=2")
    assert [each["offset"] for each in found["records"]] == [1, 2]
    assert found["next_offset"] == 3
    last = client.read("records/orders/0?limit=1")
    assert [each["offset"] for each in last["records"]] == [5]
    assert client.settled("/api/records/orders/0?offset=99").status == 400


@pytest.mark.parametrize(
    "path",
    [
        "topics/none",
        f"topics/{quote(HOSTILE, safe='')}",
        "topics/..%2f..%2fetc",
        "partitions/orders/9",
        "partitions/orders/x",
        "partitions/orders/99999999999999999999",
        "brokers/77",
        "groups/none",
        "records/none/0",
        "nothing",
        "overview?at=1",
    ],
)
def test_unknown_names_are_not_found(client: Client, path: str) -> None:
    found = client.settled(f"/api/{path}")
    assert found.status == 404, found.body
    assert set(found.json()) == {"error", "advice"}


def test_invalid_numbers_are_rejected(client: Client) -> None:
    for path in ("overview?at=soon", "records/orders/0?offset=-1", "events?limit=1e9"):
        assert client.get(f"/api/{path}").status == 400


def test_a_page_of_an_unknown_topic_gets_an_error_and_then_its_state(
    client: Client, cluster: LocalCluster
) -> None:
    with client.page("topics/late") as page:
        error = page.until(lambda found: found["status"] == 404, "error")
        assert "late" in error["error"]
        with Cluster(cluster.bootstrap, timeout_s=PATIENCE_S) as connected:
            admin.create_topic(connected, "late", 1, 1)
        assert page.until(lambda data: data["topic"] == "late")["partitions"]


def test_a_page_is_told_of_a_produced_record(client: Client, cluster: LocalCluster) -> None:
    with client.page("partitions/orders/1") as page:
        page.until(lambda data: data["partition"]["replicas"][0]["log_end_offset"] == 0)
        with Cluster(cluster.bootstrap, timeout_s=PATIENCE_S) as connected:
            Producer(connected).append("orders", 1, [Record(None, b"x", 1)])
        page.until(
            lambda data: (
                [each["high_watermark"] for each in data["partition"]["replicas"]] == [1] * 3
            )
        )


def test_groups_are_pushed_too(client: Client, cluster: LocalCluster) -> None:
    with client.page("groups/readers") as page:
        page.until(lambda data: data["lag"] == 2)
        with Cluster(cluster.bootstrap, timeout_s=PATIENCE_S) as connected:
            commit_offsets(connected, "readers", {TopicPartition("orders", 0): Committed(5)})
        page.until(lambda data: data["lag"] == 1)
        with Cluster(cluster.bootstrap, timeout_s=PATIENCE_S) as connected:
            commit_offsets(connected, "readers", {TopicPartition("orders", 0): Committed(4)})


def test_deep_links_get_the_index_and_unchanged_assets_are_not_sent_again(client: Client) -> None:
    for path in ("/", "/topics/orders", "/partitions/orders/0?at=5", "/../../etc/passwd"):
        found = client.get(path)
        assert (found.status, found.body.decode()) == (200, INDEX)
        assert found.headers["content-type"].startswith("text/html")
        assert found.headers["cache-control"] == "no-cache"
    asset = client.get("/assets/app-1a2b.js")
    assert asset.headers["content-type"].startswith("text/javascript")
    assert asset.headers["cache-control"] == "no-cache"
    again = client.get("/assets/app-1a2b.js", {"If-None-Match": asset.headers["etag"]})
    assert again.status == 304
    assert client.get("/assets/missing.js").status == 404


def test_session_says_what_the_console_can_do(client: Client, cluster: LocalCluster) -> None:
    client.read("overview")
    found = client.read("session")
    assert found["kind"] == "tidelog"
    assert found["bootstrap"] == cluster.bootstrap
    assert found["local"] is False
    assert found["allow_actions"] is False
    assert found["history"] is None
    assert {each["offered"] for each in found["actions"]} == {False}
