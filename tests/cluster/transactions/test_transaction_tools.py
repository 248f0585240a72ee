"""Apache Kafka's tool for transactions against real brokers: list, describe, find and abort."""

from collections.abc import Iterator

import pytest
from client_programs import run_tool
from confluent_kafka import KafkaException
from real_cluster import leader_of, make_topic
from real_transactions import (
    FEW_INTERNAL_PARTITIONS,
    TIMEOUT_MS,
    UNCOMMITTED,
    TransactionalProducer,
    await_stable,
    coordinator_of,
    stable_end,
    values_of,
)
from two_sides import Identity, Side

from tidelog.shell.supervisor.cluster import LocalCluster

pytestmark = pytest.mark.slow

UNVERIFIED = {"transaction.partition.verification.enable": "false"}
"""Without this no transaction hangs."""
HANGING = Identity(7_000_000, 3)
LISTED = ["TransactionalId", "Coordinator", "ProducerId", "TransactionState"]


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(settings={**FEW_INTERNAL_PARTITIONS, **UNVERIFIED}) as cluster:
        yield cluster


def table(cluster: LocalCluster, *options: str) -> list[dict[str, str]]:
    """Return what the tool prints, a dictionary for each row."""
    head, *rows = run_tool(cluster.bootstrap, "TransactionsCommand", *options).splitlines()
    return [dict(zip(head.split(), row.split(), strict=False)) for row in rows]


def test_transactions_are_listed_and_described(cluster: LocalCluster, name: str) -> None:
    topic = make_topic(cluster.bootstrap, name, 2)
    producer = TransactionalProducer(cluster.bootstrap, name)
    producer.begin()
    producer.send(topic, b"v")
    producer.send(topic, b"v", partition=1)
    [listed] = [row for row in table(cluster, "list") if row["TransactionalId"] == name]
    assert list(listed) == LISTED
    assert listed["Coordinator"] == str(coordinator_of(cluster, name))
    assert listed["TransactionState"] == "Ongoing"
    assert table(cluster, "list", "--duration-filter", "600000") == []
    [found] = table(cluster, "describe", "--transactional-id", name)
    assert found["ProducerId"] == listed["ProducerId"]
    assert found["TransactionTimeoutMs"] == str(TIMEOUT_MS)
    assert f"{topic}-0,{topic}-1" in " ".join(found.values())
    of_one = ("--topic", topic, "--partition", "0")
    [active] = table(cluster, "describe-producers", *of_one)
    assert active["ProducerId"] == listed["ProducerId"]
    assert active["CurrentTransactionStartOffset"] == "0"
    assert table(cluster, "find-hanging", "--topic", topic, "--max-transaction-timeout", "0") == []
    run_tool(
        cluster.bootstrap,
        "TransactionsCommand",
        *("forceTerminateTransaction", "--transactionalId", name),
    )
    await_stable(cluster.bootstrap, topic)
    with pytest.raises(KafkaException, match=r"fenced|FENCED"):
        producer.commit()
    assert values_of(cluster.bootstrap, topic) == []


def test_a_hanging_transaction_is_found_and_aborted(cluster: LocalCluster, name: str) -> None:
    """Its coordinator does not know it: it was never added to a transaction."""
    topic = make_topic(cluster.bootstrap, name)
    leader = Side(cluster.port(leader_of(cluster, topic)))
    leader.produce(topic, HANGING, 0, name=f"{name}-unknown", version=9)
    leader.close()
    TransactionalProducer(cluster.bootstrap, name).write(topic, b"behind")
    assert stable_end(cluster.bootstrap, topic) == 0
    [found] = table(cluster, "find-hanging", "--topic", topic)
    assert found["Topic"] == topic
    assert found["ProducerId"] == str(HANGING.id)
    assert found["StartOffset"] == "0"
    by_offset = ("--topic", topic, "--partition", "0", "--start-offset", "0")
    run_tool(cluster.bootstrap, "TransactionsCommand", "abort", *by_offset)
    await_stable(cluster.bootstrap, topic)
    assert values_of(cluster.bootstrap, topic) == [b"behind"]
    assert values_of(cluster.bootstrap, topic, isolation=UNCOMMITTED) == [b"v", b"behind"]
    assert table(cluster, "find-hanging", "--topic", topic) == []
