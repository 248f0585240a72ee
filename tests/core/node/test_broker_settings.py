"""A broker's settings apply to topics without their own; dynamic settings take precedence."""

import pytest
from node_cluster import ORDERS, Cluster

from tidelog.core.controller.events import AlterConfigReceived
from tidelog.core.errors import ErrorCode
from tidelog.core.node.config import NodeConfig
from tidelog.core.storage.log_config import LogConfig


def started(**settings: object) -> Cluster:
    cluster = Cluster(settings=dict(settings))
    cluster.start()
    return cluster


def test_brokers_min_isr_applies_to_leader_and_controller() -> None:
    cluster = started(min_insync_replicas=2)
    cluster.create_topic(replicas=(1, 2))
    assert cluster.nodes[1].image.min_insync_replicas(b"t" * 16) == 2
    leader = cluster.leader()
    assert leader is not None
    other = 3 - leader
    cluster.produce(leader, b"one")
    cluster.crash(other, proof=True)
    cluster.run_until(lambda: cluster.replica(leader).partition.isr.members == {leader})
    refused = cluster.produce(leader, b"two")[0]
    assert refused.error is ErrorCode.NOT_ENOUGH_REPLICAS
    known = cluster.nodes[leader].image.partition(*ORDERS)
    assert known is not None
    assert known.elr == (other,)


def test_settings_for_batches_reach_validation() -> None:
    cluster = started(
        message_max_bytes=500,
        log_append_time=True,
        timestamp_before_max_ms=7,
        timestamp_after_max_ms=8,
    )
    cluster.create_topic()
    rules = cluster.replica(1).rules
    assert (rules.max_message_bytes, rules.log_append_time) == (500, True)
    assert (rules.timestamp_before_max_ms, rules.timestamp_after_max_ms) == (7, 8)


def test_a_topic_setting_takes_precedence() -> None:
    cluster = started(log_append_time=True, log=LogConfig(retention_ms=5, segment_bytes=6000))
    cluster.create_topic(message_timestamp_type="CreateTime", retention_ms="9")
    replica = cluster.replica(1)
    assert not replica.rules.log_append_time
    assert replica.log.config.retention_ms == 9
    assert replica.log.config.segment_bytes == 6000


@pytest.mark.parametrize("allowed", [True, False])
def test_unclean_elections(allowed: bool) -> None:
    cluster = started(unclean_leader_election_enable=allowed)
    cluster.run_until(lambda: all(node.acting for node in cluster.nodes.values()))
    controller = cluster.controller()
    one, two = sorted({1, 2, 3} - {controller})
    cluster.create_topic(replicas=(one, two))
    assert cluster.nodes[one].config.unclean_leader_election_enable is allowed
    cluster.crash(two, proof=True)
    cluster.run_until(lambda: cluster.replica(one).partition.isr.members == {one})
    cluster.crash(one, proof=True)
    cluster.start(two)
    cluster.run(20_000)
    assert (cluster.leader() == two) is allowed


def test_defaults_are_kafkas() -> None:
    config = NodeConfig(1)
    assert config.min_insync_replicas == 1
    assert not config.unclean_leader_election_enable
    assert config.compression_type == "producer"
    assert config.message_max_bytes == 1_048_588


def test_setting_of_one_broker_applies_at_once() -> None:
    cluster = started()
    cluster.create_topic()
    changes: dict[str, str | None] = {"log.retention.ms": "5", "message.max.bytes": "600"}
    cluster.call(1, AlterConfigReceived(0, None, changes, broker=2))
    cluster.run(100)
    assert cluster.replica(2).log.config.retention_ms == 5
    assert cluster.replica(2).rules.max_message_bytes == 600
    assert cluster.replica(1).log.config.retention_ms == 604_800_000
    cluster.call(1, AlterConfigReceived(0, None, dict.fromkeys(changes), broker=2))
    cluster.run(100)
    assert cluster.replica(2).log.config.retention_ms == 604_800_000


def test_later_topic_gets_the_brokers_setting() -> None:
    cluster = started()
    cluster.run_until(lambda: all(node.acting for node in cluster.nodes.values()))
    cluster.call(1, AlterConfigReceived(0, None, {"log.segment.bytes": "5000"}, broker=2))
    cluster.create_topic()
    assert cluster.replica(2).log.config.segment_bytes == 5000
    assert cluster.replica(3).log.config.segment_bytes == 1 << 30


def test_index_interval_of_a_topic_is_limited() -> None:
    """Otherwise each look-up in a segment of a gigabyte would read all of it."""
    cluster = Cluster(brokers=(1,))
    cluster.start()
    cluster.create_topic(replicas=(1,), index_interval_bytes=str(2**31 - 1))
    assert cluster.replica(1).log.config.index_interval_bytes == 256 * 1024
