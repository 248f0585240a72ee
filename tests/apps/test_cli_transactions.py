"""`tidelog transaction` on a real cluster: the commands of docs/how-to/use-transactions.md, on
transactions of librdkafka and on one that hangs."""

import json
import re
import shlex
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from click.testing import CliRunner, Result
from real_cluster import LONG_SESSIONS, make_topic

from tidelog.apps.cli.main import cli
from tidelog.core.api_table import PRODUCE
from tidelog.core.errors import ErrorCode
from tidelog.core.record.encoder import Producer as Stamp
from tidelog.core.record.encoder import encode_batch
from tidelog.core.record.record import Record
from tidelog.core.record.record_batch import TRANSACTIONAL
from tidelog.shell.client.cluster import Cluster
from tidelog.shell.client.producer import init_producer_id
from tidelog.shell.supervisor.cluster import LocalCluster

pytestmark = pytest.mark.ci

PATIENCE_S = 120
PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "use-transactions.md"
TRUSTING = {
    **LONG_SESSIONS,
    "transaction.partition.verification.enable": "false",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "100",
}
"""Leaders that do not verify: otherwise no transaction hangs."""
UNVERIFIED = 11
"""The last version of Produce that does not add partitions to the transaction."""


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    with LocalCluster(brokers=3, settings=TRUSTING) as running:
        yield running.bootstrap


def run(bootstrap: str, *words: str) -> Result:
    return CliRunner().invoke(cli, [*words, "--bootstrap", bootstrap])


def read(bootstrap: str, *words: str) -> dict[str, Any]:
    found = run(bootstrap, *words, "--format", "json")
    document: dict[str, Any] = json.loads(found.stdout)
    assert document["holds"] is (found.exit_code == 0)
    return document


def eventually(what: Callable[[], object]) -> None:
    until = time.monotonic() + PATIENCE_S
    while not what():
        assert time.monotonic() < until, "it never came true"
        time.sleep(0.05)


def listed(bootstrap: str, name: str) -> dict[str, Any]:
    found = read(bootstrap, "transaction", "list", "--pattern", name)["transactions"]
    assert len(found) == 1
    one: dict[str, Any] = found[0]
    return one


def open_transaction(bootstrap: str, name: str, topic: str) -> confluent_kafka.Producer:
    """Return a producer with an open transaction of one record."""
    settings = {"transactional.id": name, "transaction.timeout.ms": 600_000, "log_level": 0}
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, **settings})
    producer.init_transactions(PATIENCE_S)
    producer.begin_transaction()
    failed: list[object] = []
    producer.produce(topic, b"x", partition=0, on_delivery=lambda error, _: failed.append(error))
    assert producer.flush(PATIENCE_S) == 0
    assert failed == [None]
    return producer


def leave_hanging(bootstrap: str, topic: str) -> int:
    """Write a record in a transaction that no coordinator knows, and return its producer id."""
    record = Record(None, b"late", int(time.time() * 1000), ())
    with Cluster(bootstrap, timeout_s=PATIENCE_S) as client:
        client.refresh([topic])
        producer_id, epoch = init_producer_id(client)
        stamp = Stamp(producer_id, epoch, 0)
        batch = encode_batch([record], attributes=TRANSACTIONAL, producer=stamp)
        data = [{"index": 0, "records": bytes(batch)}]
        body = {
            "transactional_id": "late",
            "acks": -1,
            "timeout_ms": 9000,
            "topic_data": [{"name": topic, "partition_data": data}],
        }
        leader = client.broker(client.leader(topic, 0).leader)
        answer = leader.answer(leader.ask(PRODUCE, body, UNVERIFIED))
    [partition] = answer["responses"][0]["partition_responses"]
    assert partition["error_code"] == ErrorCode.NONE
    return producer_id


def test_the_commands_of_the_how_to_follow_a_transaction(bootstrap: str) -> None:
    shown = re.findall(r"^```text\n(tidelog .*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    assert shown[0].startswith("tidelog transaction list\n")
    make_topic(bootstrap, "payments", 1, 3)
    producer = open_transaction(bootstrap, "payments-1", "payments")
    outputs = []
    for line in shown[0].splitlines():
        done = run(bootstrap, *shlex.split(line)[1:])
        assert done.exit_code == 0 or "explain" in line, done.output
        outputs.append(done.stdout)
    in_list, described, consumed, explained = outputs
    explained = " ".join(explained.split())  # pytest-xdist sets a width that breaks the line
    assert "payments-1" in in_list
    assert "Ongoing" in in_list
    assert re.search(r"payments-1 +payments +0 +0 ", described)
    assert consumed == "", "a read-committed reader waits at the open transaction"
    assert "stop at offset 0: the first record of the oldest open transaction" in explained
    producer.commit_transaction(PATIENCE_S)
    consume = shlex.split(shown[0].splitlines()[2])[1:]
    eventually(lambda: run(bootstrap, *consume).stdout == "x\n")  # once the marker is written
    eventually(lambda: listed(bootstrap, "payments-1")["state"] == "CompleteCommit")
    [ended] = read(bootstrap, "transaction", "describe", "payments-1")["transactions"]
    assert (ended["start_time_ms"], ended["duration_ms"]) == (None, None)
    done = run(bootstrap, "transaction", "abort", "--id", "payments-1", "--yes")
    assert "no transaction was open" in done.output


def test_a_hanging_transaction_is_found_and_aborted(bootstrap: str) -> None:
    topic = "hanging"
    make_topic(bootstrap, topic, 1, 3)
    producer_id = leave_hanging(bootstrap, topic)
    run(bootstrap, "produce", topic, "--partition", "0")
    find = ("transaction", "find-hanging", topic, "--longer-than", "0s")
    [hanging] = read(bootstrap, *find)["hanging"]
    assert (hanging["producer_id"], hanging["start_offset"]) == (producer_id, 0)
    assert hanging["transactional_id"] is None
    told = run(bootstrap, *find)
    assert told.exit_code == 1
    advice = f"tidelog transaction abort {topic}/0 --start-offset 0"
    assert f"`{advice}`" in told.stdout
    done = run(bootstrap, *shlex.split(advice)[1:], "--yes")
    assert done.exit_code == 0, done.output
    assert read(bootstrap, *find)["hanging"] == []
    assert run(bootstrap, "consume", topic, "-e", "--isolation", "read_committed").stdout == ""
    again = run(bootstrap, *shlex.split(advice)[1:], "--yes")
    assert again.exit_code == 1
    assert "has no such open transaction" in again.output


def test_a_transaction_that_its_coordinator_will_end_is_not_aborted_in_a_partition(
    bootstrap: str,
) -> None:
    """But by its transactional id: the producer is fenced."""
    topic = "known"
    make_topic(bootstrap, topic, 1, 3)
    producer = open_transaction(bootstrap, "billing-1", topic)
    refused = run(bootstrap, "transaction", "abort", f"{topic}/0", "--start-offset", "0", "--yes")
    assert refused.exit_code == 1
    assert "its coordinator will end it" in refused.output
    done = run(bootstrap, "transaction", "abort", "--id", "billing-1", "--yes")
    assert done.exit_code == 0, done.output
    with pytest.raises(confluent_kafka.KafkaException) as caught:
        producer.commit_transaction(PATIENCE_S)
    assert caught.value.args[0].fatal()
    eventually(lambda: listed(bootstrap, "billing-1")["state"] in ("CompleteAbort", "Empty"))
