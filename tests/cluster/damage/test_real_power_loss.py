"""Records that survive a power loss under each flush policy (M06).

docs/explanation/what-a-flush-survives.md explains the results.
"""

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from power_loss import ENTRY, cut_power
from real_cluster import (
    PATIENCE_S,
    Sent,
    await_isr,
    eventually,
    leader_of,
    make_topic,
    read_values,
    send_all,
    state_of,
)

from tidelog.shell.supervisor.cluster import LocalCluster

FLUSH_BEFORE_ACK = {"flush.messages": "1"}


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[LocalCluster]:
    here = str(Path(__file__).parent)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([here, os.environ.get("PYTHONPATH", "")]))
    settings = {"log.flush.scheduler.interval.ms": "100"}
    with LocalCluster(settings=settings, entry=ENTRY) as cluster:
        yield cluster


def lose_power(cluster: LocalCluster, brokers: list[int]) -> int:
    """Cut the power of these brokers at once; return the smallest loss of a broker, in bytes."""
    for broker in brokers:
        cluster.kill(broker)
    return min(cut_power(cluster.log_dir(broker)) for broker in brokers)


def start_again(cluster: LocalCluster, brokers: list[int]) -> None:
    for broker in brokers:
        cluster.start_broker(broker, wait=False)
    cluster.wait_ready()


def acknowledged_under_load(cluster: LocalCluster, topic: str, brokers: list[int]) -> set[bytes]:
    """Cut the power while records are being sent; return the acknowledged records."""
    sent = Sent(cluster.bootstrap, topic, {"enable.idempotence": True, "linger.ms": 0})
    number = 0
    until = time.monotonic() + PATIENCE_S
    while len(sent.acknowledged) < 300 and time.monotonic() < until:
        sent.send(b"%d" % number)
        number += 1
        sent.client.poll(0.001)
    lose_power(cluster, brokers)
    sent.client.purge()
    sent.client.flush(PATIENCE_S)
    assert len(sent.acknowledged) >= 300
    return set(sent.acknowledged)


def test_flush_before_ack_survives_the_loss_of_all(cluster: LocalCluster, name: str) -> None:
    make_topic(cluster.bootstrap, name, partitions=1, configs=FLUSH_BEFORE_ACK)
    acknowledged = acknowledged_under_load(cluster, name, cluster.ids)
    start_again(cluster, cluster.ids)
    await_isr(cluster, name, cluster.ids)
    found = read_values(cluster.bootstrap, name)
    assert acknowledged <= set(found)
    assert found == [b"%d" % number for number in range(len(found))]
    send_all(cluster.bootstrap, name, [b"goes on"], conf={"acks": "all"})


def test_flush_before_ack_waits_also_with_acks_1(cluster: LocalCluster, name: str) -> None:
    """One replica, acks=1: the only copy is on the leader's disk."""
    configs = {**FLUSH_BEFORE_ACK, "min.insync.replicas": "1"}
    make_topic(cluster.bootstrap, name, replicas=1, configs=configs)
    wanted = [b"%d" % number for number in range(50)]
    for value in wanted:
        send_all(cluster.bootstrap, name, [value], conf={"acks": "1"})
    leader = leader_of(cluster, name)
    assert lose_power(cluster, [leader]) == 0
    start_again(cluster, [leader])
    leader_of(cluster, name)
    assert read_values(cluster.bootstrap, name) == wanted


def test_the_default_survives_the_loss_of_one(cluster: LocalCluster, name: str) -> None:
    """Without a flush, the other replicas hold the records; the broker copies them again."""
    make_topic(cluster.bootstrap, name)
    leader = leader_of(cluster, name)
    acknowledged = acknowledged_under_load(cluster, name, [leader])
    start_again(cluster, [leader])
    await_isr(cluster, name, cluster.ids)
    assert acknowledged <= set(read_values(cluster.bootstrap, name))

    def has_all() -> bool:
        """A record that was on its way when the power failed may arrive later."""
        end = state_of(cluster, leader, name)["log_end_offset"]
        return bool(end == len(read_values(cluster.bootstrap, name)))

    eventually(has_all, "it has copied all records")


def test_the_default_survives_the_loss_of_one_after_another(
    cluster: LocalCluster, name: str
) -> None:
    make_topic(cluster.bootstrap, name)
    wanted = [b"%d" % number for number in range(200)]
    send_all(cluster.bootstrap, name, wanted, conf={"acks": "all"})
    for broker in cluster.ids:
        assert lose_power(cluster, [broker]) > 0
        start_again(cluster, [broker])
        await_isr(cluster, name, cluster.ids)
    assert read_values(cluster.bootstrap, name) == wanted


def test_the_default_does_not_survive_the_loss_of_all(cluster: LocalCluster, name: str) -> None:
    """As in Kafka. This is the cost of the default; it also proves that the tests can lose data."""
    make_topic(cluster.bootstrap, name)
    send_all(cluster.bootstrap, name, [b"%d" % n for n in range(100)], conf={"acks": "all"})
    assert lose_power(cluster, cluster.ids) > 0
    start_again(cluster, cluster.ids)
    await_isr(cluster, name, cluster.ids)
    assert read_values(cluster.bootstrap, name) == []
    send_all(cluster.bootstrap, name, [b"goes on"], conf={"acks": "all"})


@pytest.mark.parametrize("configs", [{"flush.ms": "300"}, {"flush.messages": "10"}])
def test_a_policy_bounds_the_loss(
    cluster: LocalCluster, name: str, configs: dict[str, str]
) -> None:
    """Records older than `flush.ms`, or before the last `flush.messages` records, survive."""
    make_topic(cluster.bootstrap, name, configs=configs)
    wanted = [b"%d" % number for number in range(100)]
    send_all(cluster.bootstrap, name, wanted, conf={"acks": "all", "batch.num.messages": 5})
    flushed = 100 - (int(configs.get("flush.messages", "1")) - 1)
    eventually(
        lambda: all(state_of(cluster, b, name)["recovery_point"] >= flushed for b in cluster.ids),
        f"the first {flushed} records are flushed",
    )
    lose_power(cluster, cluster.ids)
    start_again(cluster, cluster.ids)
    await_isr(cluster, name, cluster.ids)
    found = read_values(cluster.bootstrap, name)
    assert found == wanted[: len(found)]
    assert len(found) >= flushed
