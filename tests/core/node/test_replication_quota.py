"""Replication throttles: replicas that catch up are slowed, in-sync replicas never (KIP-73)."""

from typing import Any

import pytest
from node_cluster import ORDERS, Cluster, produce

from tidelog.core.controller.metadata import keys
from tidelog.core.controller.metadata.cluster_image import ClusterImage
from tidelog.core.errors import ErrorCode
from tidelog.core.node.hosting.replication_quota import (
    IN_SYNC_DEBT_S,
    LEADER_RATE,
    RECHECK_MS,
    ReplicationQuota,
    throttled,
)
from tidelog.core.settings.topic_values import topic_problem

RATE = 20_000
VALUE = b"v" * 1000
RECORDS = 200


def quota(rate: int | None) -> ReplicationQuota:
    return ReplicationQuota(LEADER_RATE, 1, ClusterImage(), rate)


def test_debt_shrinks_at_the_rate() -> None:
    limit = quota(1000)
    assert limit.wait_ms(0) == 0
    limit.record(500, 0, in_sync=False)
    assert 500 <= limit.wait_ms(0) <= 501
    assert 100 <= limit.wait_ms(400) <= 101
    assert limit.wait_ms(500) == 0


def test_a_long_debt_is_checked_again_soon() -> None:
    limit = quota(1000)
    limit.record(50_000, 0, in_sync=False)
    assert limit.wait_ms(0) == RECHECK_MS
    assert limit.wait_ms(49_000) == RECHECK_MS
    assert limit.wait_ms(50_000) == 0


def test_in_sync_bytes_count_up_to_a_bound() -> None:
    limit = quota(1000)
    limit.record(10**9, 0, in_sync=True)
    assert limit.wait_ms(IN_SYNC_DEBT_S * 1000 - 1) > 0
    assert limit.wait_ms(IN_SYNC_DEBT_S * 1000) == 0


def configure(image: ClusterImage, rate: int | None) -> None:
    image.configs[keys.broker_config(1)] = {} if rate is None else {LEADER_RATE: str(rate)}
    image.config_changes += 1


def test_debt_of_a_higher_rate_does_not_stop_copies_at_a_lower_one() -> None:
    image = ClusterImage()
    limit = ReplicationQuota(LEADER_RATE, 1, image, None)
    configure(image, 1_000_000)
    limit.record(500_000, 0, in_sync=False)
    configure(image, 1000)
    assert 500 <= limit.wait_ms(0) <= 501
    configure(image, 2000)
    assert 250 <= limit.wait_ms(0) <= 251
    configure(image, None)
    assert limit.wait_ms(1) == 0
    configure(image, 10)
    assert limit.wait_ms(1) == 0


def test_without_a_rate_nothing_waits() -> None:
    limit = quota(None)
    limit.record(10**9, 0, in_sync=False)
    assert limit.wait_ms(0) == 0
    assert limit.most_bytes() is None


def test_a_rate_of_zero_stops_replicas() -> None:
    assert quota(0).wait_ms(0) == RECHECK_MS


@pytest.mark.parametrize(
    ("text", "expected"),
    [("*", True), ("0:1", True), ("1:1,0:1", True), ("0:2", False), ("10:1", False), ("", False)],
)
def test_lists_of_throttled_replicas(text: str, expected: bool) -> None:
    assert throttled({"name": text}, "name", 0, 1) is expected


@pytest.mark.parametrize("text", ["*", "", "0:1", "0:1,1:2", "0:1, 1:2"])
def test_valid_lists(text: str) -> None:
    assert topic_problem("leader.replication.throttled.replicas", text) is None


@pytest.mark.parametrize("text", ["all", "0", "0:", "0:1;1:2", "*,0:1", "0:-1"])
def test_invalid_lists(text: str) -> None:
    problem = topic_problem("follower.replication.throttled.replicas", text)
    assert problem is not None
    assert "partition:broker" in problem


# -- three brokers ---------------------------------------------------------------------------


def behind(settings: dict[str, Any], **configs: str) -> Cluster:
    """Broker 3 restarts and lacks 200 KB of the topic that broker 1 leads."""
    cluster = Cluster(settings=settings)
    cluster.start()
    cluster.create_topic(**configs)  # type: ignore[arg-type]
    cluster.run(1000)
    assert cluster.leader() == 1
    cluster.crash(3, proof=True)
    cluster.run_until(lambda: 3 not in cluster.replica(1).partition.isr.members)
    for _ in range(RECORDS):
        assert cluster.produce(1, VALUE)[0].error is ErrorCode.NONE
    # These bytes counted too. And for `replica.lag.time.max.ms` the high watermark waits for a
    # replica that was in sync, throttled or not.
    cluster.run(31_000)
    cluster.start(3)
    return cluster


def catch_up_ms(cluster: Cluster) -> int:
    began_ms = cluster.now_ms
    cluster.run_until(lambda: 3 in cluster.replica(1).partition.isr.members)
    return cluster.now_ms - began_ms


SIDES = {
    "leader": (
        {"leader_replication_throttled_rate": RATE},
        {"leader_replication_throttled_replicas": "0:1"},
    ),
    "follower": (
        {"follower_replication_throttled_rate": RATE},
        {"follower_replication_throttled_replicas": "0:3"},
    ),
}


@pytest.mark.parametrize("side", SIDES)
def test_a_replica_that_catches_up_gets_at_most_the_rate(side: str) -> None:
    settings, configs = SIDES[side]
    took_ms = catch_up_ms(behind(settings, **configs))
    expected_ms = RECORDS * len(VALUE) * 1000 // RATE
    # The last response need not be paid off, and has the bytes of one second at most.
    assert expected_ms - 1500 < took_ms < expected_ms + 3000


@pytest.mark.parametrize("side", SIDES)
def test_replicas_that_are_not_listed_are_not_throttled(side: str) -> None:
    settings, configs = SIDES[side]
    other = dict.fromkeys(configs, "0:2,1:3,1:1")
    assert catch_up_ms(behind(settings, **other)) < 1000


@pytest.mark.parametrize("side", SIDES)
def test_a_throttle_that_is_removed_has_no_effect_any_more(side: str) -> None:
    settings, configs = SIDES[side]
    cluster = behind(settings, **configs)
    cluster.run(3000)
    for node in cluster.nodes.values():
        node.replicas[ORDERS].leader_throttled = False
        node.replicas[ORDERS].follower_throttled = False
    assert catch_up_ms(cluster) < 1500


@pytest.mark.parametrize("side", SIDES)
def test_in_sync_followers_are_not_slowed(side: str) -> None:
    """Writes with acks=all at ten times the rate, while another replica is throttled."""
    settings, _ = SIDES[side]
    everyone = {
        "leader_replication_throttled_replicas": "*",
        "follower_replication_throttled_replicas": "*",
    }
    cluster = behind(settings, **everyone)
    for _ in range(100):
        began_ms = cluster.now_ms
        cluster.call(1, produce(VALUE))
        assert cluster.now_ms - began_ms < 50
        cluster.run(5)
    assert cluster.replica(1).partition.isr.members >= {1, 2}


@pytest.mark.parametrize("side", SIDES)
def test_a_throttled_replica_that_caught_up_is_not_slowed(side: str) -> None:
    settings, configs = SIDES[side]
    cluster = behind(settings, **configs)
    catch_up_ms(cluster)
    for _ in range(50):
        began_ms = cluster.now_ms
        cluster.call(1, produce(VALUE))
        assert cluster.now_ms - began_ms < 600
        cluster.run(5)
    assert cluster.replica(1).partition.isr.members == {1, 2, 3}
