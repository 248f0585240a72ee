"""The console's pages of transactions, on a real cluster with librdkafka's transactions, and on one
that hangs."""

import time
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import confluent_kafka
import pytest
from console_client import CALM, PATIENCE_S, Client, eventually, serve

from tidelog.apps.console.history.place import recorder_for
from tidelog.apps.console.target import RemoteCluster
from tidelog.core.api_table import PRODUCE
from tidelog.core.record.encoder import Producer as Stamp
from tidelog.core.record.encoder import encode_batch
from tidelog.core.record.record import Record
from tidelog.core.record.record_batch import TRANSACTIONAL
from tidelog.shell.client import admin
from tidelog.shell.client.cluster import Cluster
from tidelog.shell.client.producer import init_producer_id
from tidelog.shell.supervisor.cluster import LocalCluster

pytestmark = pytest.mark.ci

TRUSTING = {**CALM, "transaction.partition.verification.enable": "false"}
"""Leaders that do not verify: otherwise no transaction hangs."""
UNVERIFIED = 11
"""The last version of Produce that does not add partitions to the transaction."""
HOSTILE = '<img src=x onerror="alert(1)">/../x'


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(brokers=3, settings=TRUSTING) as running:
        yield running


@pytest.fixture(scope="module")
def client(cluster: LocalCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    """A console with actions and a history."""
    folder = tmp_path_factory.mktemp("console")
    recorder = recorder_for(str(folder))
    target = RemoteCluster(cluster.bootstrap)
    with serve(target, folder / "pages", recorder=recorder, allow_actions=True) as found:
        yield found


def create(cluster: LocalCluster, topic: str) -> None:
    with Cluster(cluster.bootstrap, timeout_s=PATIENCE_S) as found:
        admin.create_topic(found, topic, 1, 3, {"min.insync.replicas": "2"})


def begun(cluster: LocalCluster, name: str, topic: str, *values: str) -> confluent_kafka.Producer:
    """Return a producer with an open transaction of these records."""
    settings = {"transactional.id": name, "transaction.timeout.ms": 600_000, "log_level": 0}
    producer = confluent_kafka.Producer({"bootstrap.servers": cluster.bootstrap, **settings})
    producer.init_transactions(PATIENCE_S)
    write(producer, topic, *values)
    return producer


def write(producer: confluent_kafka.Producer, topic: str, *values: str) -> None:
    producer.begin_transaction()
    for value in values:
        producer.produce(topic, value, partition=0)
    assert producer.flush(PATIENCE_S) == 0


def waiting(client: Client, topic: str, query: str = "") -> dict[str, Any] | None:
    """Return the row of the partition if an open transaction holds back its consumers."""
    rows = client.read(f"transactions{query}")["open"]
    return next((each for each in rows if each["topic"] == topic), None)


def test_an_open_transaction_is_listed_until_it_is_committed(
    cluster: LocalCluster, client: Client
) -> None:
    create(cluster, "payments")
    producer = begun(cluster, HOSTILE, "payments", "m1", "m2")
    row = eventually(
        lambda: (
            (row := waiting(client, "payments"))
            and (row["high_watermark"], row["transactional_id"]) == (2, HOSTILE)
            and row
        ),
        "the partition is listed, with both records",
    )
    assert (row["last_stable_offset"], row["hangs"]) == (0, False)

    def described() -> Any:
        rows = client.read("transactions")["transactions"]
        found = [each for each in rows if each["transactional_id"] == HOSTILE]
        return found if found and found[0]["timeout_ms"] else None

    [listed] = eventually(described, "its coordinator describes it")
    assert (listed["state"], listed["partitions"]) == ("Ongoing", 1)
    assert listed["timeout_ms"] == 600_000
    one = client.read(f"transactions/{quote(HOSTILE, safe='')}")
    assert (one["state"], one["producer_id"]) == ("Ongoing", row["producer_id"])
    [partition] = one["partitions"]
    assert (partition["topic"], partition["start_offset"]) == ("payments", 0)
    shown = client.until("partitions/payments/0", lambda data: data["partition"]["unstable"])
    assert shown["partition"]["unstable"]["producer_id"] == row["producer_id"]
    assert "lso" in [each["topic"] for each in shown["explain"]]

    with client.page("transactions") as page:
        page.until(lambda data: any(each["topic"] == "payments" for each in data["open"]))

        def recorded() -> int | None:
            """Return a moment at which the history has it; it samples offsets once a second."""
            now_ms = time.time_ns() // 1_000_000
            return now_ms if waiting(client, "payments", f"?at={now_ms}") else None

        open_ms = eventually(recorded, "it is in the history")
        producer.commit_transaction(PATIENCE_S)
        page.until(lambda data: all(each["topic"] != "payments" for each in data["open"]))
    assert waiting(client, "payments", f"?at={open_ms}"), "it stays in the history"
    past = client.read(f"transactions?at={open_ms}")
    assert past["transactions"] is None
    assert "no transactional ids" in past["missing"]
    assert client.get(f"/api/transactions/any?at={open_ms}").status == 400


def test_records_say_how_their_transaction_ended(cluster: LocalCluster, client: Client) -> None:
    create(cluster, "ends")
    producer = begun(cluster, "ends", "ends", "dropped")
    producer.abort_transaction(PATIENCE_S)
    write(producer, "ends", "kept")
    producer.commit_transaction(PATIENCE_S)
    write(producer, "ends", "not decided")
    plain = confluent_kafka.Producer({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    plain.produce("ends", "plain", partition=0)
    assert plain.flush(PATIENCE_S) == 0

    def found(start: int) -> list[tuple[str, str | None]]:
        page = client.read(f"records/ends/0?offset={start}")
        states = {each["base_offset"]: each["transaction"] for each in page["batches"]}
        return [
            (each["control"] or each["value"], states.get(each["offset"]))
            for each in page["records"]
        ]

    complete = [
        ("dropped", "aborted"),
        ("abort", None),
        ("kept", "committed"),
        ("commit", None),
        ("not decided", "open"),
        ("plain", None),
    ]
    eventually(lambda: found(0) == complete, "all records, and the state of each")
    eventually(lambda: found(4) == complete[4:], "a page that begins above the last stable offset")
    producer.abort_transaction(PATIENCE_S)


def test_a_transaction_is_aborted_from_the_page(cluster: LocalCluster, client: Client) -> None:
    create(cluster, "stuck")
    producer = begun(cluster, "stuck", "stuck", "m1")
    eventually(lambda: waiting(client, "stuck"), "the partition is listed")

    def refused() -> bool:
        found = client.post("abort-transaction", {"topic": "stuck", "partition": 0, "offset": 0})
        return found.status == 400 and "does not hang" in found.json()["error"]

    eventually(refused, "a transaction that its coordinator will end is not aborted")
    done = client.post("abort-transaction", {"transactional_id": "stuck"})
    assert done.status == 200, done.body
    assert "aborted its transaction" in done.json()["message"]
    eventually(lambda: waiting(client, "stuck") is None, "consumers go on")
    with pytest.raises(confluent_kafka.KafkaException):
        producer.commit_transaction(PATIENCE_S)


def test_a_transaction_that_hangs_is_named_and_aborted(
    cluster: LocalCluster, client: Client
) -> None:
    create(cluster, "late")
    leave_hanging(cluster.bootstrap, "late")
    row = eventually(lambda: (row := waiting(client, "late")) and row["hangs"] and row, "it hangs")
    assert row["transactional_id"] is None
    body = {"topic": "late", "partition": 0, "offset": row["offset"]}
    client.post_until_done("abort-transaction", body)
    eventually(lambda: waiting(client, "late") is None, "consumers go on")


def leave_hanging(bootstrap: str, topic: str) -> None:
    """Write a record in a transaction that no coordinator knows."""
    record = Record(None, b"late", int(time.time() * 1000), ())
    with Cluster(bootstrap, timeout_s=PATIENCE_S) as found:
        producer_id, epoch = init_producer_id(found)
        stamp = Stamp(producer_id, epoch, 0)
        batch = encode_batch([record], attributes=TRANSACTIONAL, producer=stamp)
        body = {
            "transactional_id": "late",
            "acks": -1,
            "timeout_ms": 9000,
            "topic_data": [
                {"name": topic, "partition_data": [{"index": 0, "records": bytes(batch)}]}
            ],
        }

        def written() -> bool:
            """Send the batch; a leader that has it already reports no error."""
            found.refresh([topic])
            leader = found.broker(found.leader(topic, 0).leader)
            answer = leader.answer(leader.ask(PRODUCE, body, UNVERIFIED))
            return not answer["responses"][0]["partition_responses"][0]["error_code"]

        eventually(written, "the leader accepts the batch")


def test_an_unknown_transactional_id_is_not_found(client: Client) -> None:
    assert client.settled("/api/transactions/nobody").status == 404
    unknown = {"transactional_id": "nobody"}
    assert client.post_settled("abort-transaction", unknown).status == 404
    assert client.post("abort-transaction", {}).status == 400
