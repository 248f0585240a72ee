"""The description of a broker and its replicas."""

import json
from typing import Any

import pytest
from node_cluster import ORDERS, TTL_MS, Cluster

from tidelog.core.controller.events import ElectionType, ElectLeadersReceived
from tidelog.core.lineage.producer_state import EndedTransaction, ProducerEntry
from tidelog.core.node import events as on
from tidelog.core.node.description import describe
from tidelog.core.replication.isr import PendingExpand, PendingShrink
from tidelog.core.storage.segment.damage import Damage


@pytest.fixture
def cluster() -> Cluster:
    cluster = Cluster()
    cluster.start()
    cluster.create_topic(replicas=(2, 3, 1))
    assert (cluster.leader(), cluster.controller()) == (2, 1)
    return cluster


def described(cluster: Cluster, broker: int = 2, **only: Any) -> dict[str, Any]:
    state: dict[str, Any] = json.loads(json.dumps(describe(cluster.nodes[broker], **only)))
    return state


def partition(cluster: Cluster, broker: int = 2) -> dict[str, Any]:
    (one,) = described(cluster, broker, topic="orders", partition=0)["partitions"]
    return dict(one)


def follower(cluster: Cluster, broker: int) -> dict[str, Any]:
    (one,) = [f for f in partition(cluster)["followers"] if f["broker"] == broker]
    return dict(one)


def cut_off(cluster: Cluster, broker: int) -> None:
    cluster.cut |= {(2, broker), (broker, 2)}


def test_describe_the_broker(cluster: Cluster) -> None:
    state = described(cluster, 3)
    assert state["broker_id"] == 3
    assert state["broker_epoch"] == cluster.nodes[3].broker_epoch
    assert state["acting"] is True
    assert state["controller"] == cluster.controller()
    assert state["is_controller"] is False
    assert state["controller_epoch"] == 1
    assert state["revision"] == cluster.nodes[3].image.revision
    assert described(cluster, cluster.controller())["is_controller"] is True


def test_describe_before_the_broker_is_registered() -> None:
    cluster = Cluster((1,))
    cluster.start()
    state = described(cluster, 1)
    assert (state["broker_epoch"], state["acting"], state["controller"]) == (None, False, None)


def test_a_leader_and_its_followers(cluster: Cluster) -> None:
    cluster.produce(2, b"one", b"two")
    cluster.run(1000)
    one = partition(cluster)
    log = cluster.replica(2).log
    assert one == {
        "topic": "orders",
        "partition": 0,
        "topic_id": "dHR0dHR0dHR0dHR0dHR0dA",
        "role": "leader",
        "leader": 2,
        "leader_epoch": 0,
        "partition_epoch": 0,
        "log_start_offset": 0,
        "log_end_offset": 2,
        "high_watermark": 2,
        "last_stable_offset": 2,
        "recovery_point": 0,
        "epochs": [[0, 0]],
        "damage": None,
        "refused": None,
        "size": log.size,
        "segments": 1,
        "replicas": [2, 3, 1],
        "isr": [2, 3, 1],
        "maximal_isr": [1, 2, 3],
        "pending_isr": None,
        "elr": [],
        "lost": [],
        "min_isr": 1,
        "adding": [],
        "removing": [],
        "unclean_election": None,
        "unstable": None,
        "followers": one["followers"],
    }
    two = follower(cluster, 3)
    assert (two["log_end_offset"], two["lag"], two["in_isr"]) == (2, 0, True)
    assert (two["out_since_ms"], two["why"]) == (None, None)
    assert two["lag_ms"] < 1000


def test_follower_describes_only_itself(cluster: Cluster) -> None:
    cluster.run(1000)
    two = partition(cluster, 3)
    assert (two["role"], two["leader"], two["maximal_isr"]) == ("follower", 2, None)
    assert two["followers"] == []


def test_a_resting_follower_stays_in_the_isr(cluster: Cluster) -> None:
    cluster.produce(2, b"one")
    cluster.run(20_000)
    assert cluster.replica(2).resting, "nothing has happened for a while"
    two = follower(cluster, 3)
    assert two["lag_ms"] < 1000
    assert cluster.now_ms - two["last_fetch_ms"] < 1000


def test_the_fetch_of_a_follower_that_waits_at_the_leader(cluster: Cluster) -> None:
    cluster.produce(2, b"one")
    cluster.run(20)  # the followers do not rest yet
    assert follower(cluster, 3)["waits_from"] == 1
    cluster.run(20_000)
    assert cluster.replica(2).resting, "nothing has happened for a while"
    assert follower(cluster, 3)["waits_from"] == 1
    cut_off(cluster, 3)
    cluster.run(5_000)
    assert follower(cluster, 3)["waits_from"] is None, "its last fetch was answered"
    assert follower(cluster, 1)["waits_from"] == 1


def test_describe_only_requested_partitions(cluster: Cluster) -> None:
    cluster.create_topic("more", topic_id=b"m" * 16)
    assert [p["topic"] for p in described(cluster)["partitions"]] == ["more", "orders"]
    assert [p["topic"] for p in described(cluster, topic="more")["partitions"]] == ["more"]
    assert described(cluster, topic="more", partition=1)["partitions"] == []
    assert len(described(cluster, partition=0)["partitions"]) == 2


def test_a_follower_that_stopped_fetching(cluster: Cluster) -> None:
    cluster.produce(2, b"one")
    cut_off(cluster, 3)
    cluster.produce(2, b"two", acks=1)
    cluster.run_until(lambda: cluster.replica(2).partition.isr.members == {1, 2}, 60_000)
    left = cluster.now_ms
    cluster.run(5000)
    three = follower(cluster, 3)
    assert (three["in_isr"], three["out_since_ms"], three["lag"]) == (False, left, 1)
    assert three["why"].startswith("no fetch for ")
    assert follower(cluster, 1)["in_isr"]


def test_a_follower_that_is_too_slow(cluster: Cluster) -> None:
    cluster.produce(2, b"one")
    cut_off(cluster, 3)
    cluster.produce(2, b"two", acks=1)
    cluster.run_until(lambda: cluster.replica(2).partition.isr.members == {1, 2}, 60_000)
    progress = cluster.replica(2).partition.followers[3]
    progress.last_fetch_ms = cluster.now_ms
    lag = cluster.now_ms - progress.last_caught_up_ms
    assert follower(cluster, 3)["why"] == f"fetch lag: last caught up {lag} ms ago"
    progress.last_caught_up_ms = -(1 << 60)
    three = follower(cluster, 3)
    assert three["why"] == "never caught up"
    assert (three["last_caught_up_ms"], three["lag_ms"]) == (None, None)


def test_follower_that_is_joining_the_isr(cluster: Cluster) -> None:
    cluster.produce(2, b"one")
    held = cluster.replica(2).partition
    held.isr = PendingExpand(frozenset({1, 2}), 3, held.partition_epoch)
    assert follower(cluster, 3)["why"] == "joining: the controller was asked"
    assert partition(cluster)["maximal_isr"] == [1, 2, 3]
    assert partition(cluster)["pending_isr"] == {"kind": "expand", "brokers": [3]}


def test_followers_that_are_leaving_the_isr(cluster: Cluster) -> None:
    held = cluster.replica(2).partition
    held.isr = PendingShrink(frozenset({1, 2, 3}), frozenset({3, 1}), held.partition_epoch)
    assert partition(cluster)["maximal_isr"] == [1, 2, 3]
    assert partition(cluster)["pending_isr"] == {"kind": "shrink", "brokers": [1, 3]}


def test_a_broker_that_died(cluster: Cluster) -> None:
    cluster.crash(3, proof=True)
    cluster.run_until(lambda: cluster.replica(2).partition.isr.members == {1, 2})
    cluster.run(100)
    assert follower(cluster, 3)["why"] == "offline"


def test_broker_without_heartbeats(cluster: Cluster) -> None:
    cluster.cut |= {(3, 1), (1, 3)}
    cluster.run_until(lambda: cluster.replica(2).partition.isr.members == {1, 2}, 3 * TTL_MS)
    assert follower(cluster, 3)["why"] == "fenced"


def test_a_broker_that_shuts_down(cluster: Cluster) -> None:
    cluster.step(3, on.ShutdownRequested(cluster.now_ms))
    cluster.run_until(lambda: cluster.replica(2).partition.isr.members == {1, 2})
    assert follower(cluster, 3)["why"] in ("shutting down", "offline")


def test_a_new_leader_knows_how_long_others_were_out(cluster: Cluster) -> None:
    cluster.produce(2, b"one")
    cut_off(cluster, 3)
    cluster.cut |= {(1, 3), (3, 1)}
    cluster.produce(2, b"two", acks=1)
    cluster.run_until(lambda: cluster.replica(2).partition.isr.members == {1, 2}, 60_000)
    left = cluster.now_ms
    cluster.run(3000)
    cluster.crash(2, proof=True)
    cluster.run_until(lambda: cluster.leader() == 1)
    (state,) = described(cluster, 1)["partitions"]
    outside = {f["broker"]: f for f in state["followers"]}
    assert abs(outside[3]["out_since_ms"] - left) <= 2
    assert outside[2]["out_since_ms"] > left + 2000
    assert outside[3]["log_end_offset"] is None


def test_no_fetch_in_this_epoch(cluster: Cluster) -> None:
    cluster.replica(2).partition.isr = type(cluster.replica(2).partition.isr)(frozenset({1, 2}))  # type: ignore[call-arg]
    cluster.replica(2).partition.followers[3].log_end_offset = None
    assert follower(cluster, 3)["why"] == "no fetch since leader epoch 0 began"


def test_losses_are_described(cluster: Cluster) -> None:
    cluster.produce(2, b"one")
    cluster.run(1000)
    cut_off(cluster, 1)
    cut_off(cluster, 3)
    cluster.run(100)
    cluster.produce(2, b"two", b"three", acks=1)
    cluster.crash(2, proof=True)
    cluster.cut.clear()
    cluster.run_until(lambda: cluster.leader() is not None)
    cluster.start(2)
    cluster.run_until(lambda: cluster.nodes[2].losses.count > 0)
    state = described(cluster)["losses"]
    assert state["count"] == 1
    (loss,) = state["recent"]
    assert (loss["topic"], loss["start"], loss["end"], loss["committed"]) == ("orders", 1, 3, 0)
    assert described(cluster, topic="other")["losses"] == {"count": 1, "recent": []}


def test_unclean_election_is_shown_by_the_controller_and_the_partition() -> None:
    cluster = Cluster()
    cluster.start()
    cluster.run_until(lambda: all(node.acting for node in cluster.nodes.values()))
    controller = cluster.controller()
    one, two = sorted({1, 2, 3} - {controller})
    cluster.create_topic(replicas=(one, two))
    cluster.crash(two, proof=True)
    cluster.run_until(lambda: cluster.replica(one).partition.isr.members == {one})
    cluster.crash(one, proof=True)
    cluster.start(two)
    cluster.run_until(lambda: cluster.nodes[two].acting)
    cluster.call(controller, ElectLeadersReceived(0, ElectionType.UNCLEAN))
    cluster.run_until(lambda: cluster.leader() == two)
    (made,) = described(cluster, controller)["unclean_elections"]
    assert (made["topic"], made["partition"], made["leader"]) == ("orders", 0, two)
    assert described(cluster, controller, topic="other")["unclean_elections"] == []
    shown = described(cluster, two)["partitions"][0]["unclean_election"]
    assert (shown["leader"], shown["old_leader"]) == (two, None)
    assert ORDERS in cluster.nodes[two].replicas


def test_a_replica_whose_disk_failed(cluster: Cluster) -> None:
    cluster.replica(3).partition.offline = True
    assert partition(cluster, 3)["role"] == "offline"


def test_damage_and_the_scrubber(cluster: Cluster) -> None:
    cluster.produce(2, b"a")
    cluster.run_until(lambda: cluster.nodes[2].scrubber.passes == 1)
    node = cluster.nodes[2]
    at_ms = node.scrubber.last_pass_ms
    assert described(cluster)["scrub"] == {"verified_bytes": 0, "passes": 1, "last_pass_ms": at_ms}
    node.directory.damaged[ORDERS] = Damage(0, "a checksum is wrong")
    assert partition(cluster)["damage"] == {"offset": 0, "reason": "a checksum is wrong"}


def test_oldest_open_transaction_is_described_with_its_producer(cluster: Cluster) -> None:
    cluster.produce(2, b"a", b"b", b"c")
    assert partition(cluster)["unstable"] is None
    producers = cluster.nodes[2].replicas[ORDERS].partition.producers
    assert producers is not None
    for producer_id, first in ((7, 1), (8, 2)):
        producers.producers[producer_id] = ProducerEntry(3, last_timestamp=5_000)
        producers.open_transactions[producer_id] = first
    assert partition(cluster)["last_stable_offset"] == 1
    assert partition(cluster)["unstable"] == {
        "offset": 1,
        "producer_id": 7,
        "producer_epoch": 3,
        "last_write_ms": 5_000,
        "open_transactions": 2,
    }
    del producers.open_transactions[7]
    producers.ended.append(EndedTransaction(1, 3))
    described = partition(cluster)["unstable"]
    assert (described["offset"], described["producer_id"]) == (1, None)


def test_reassignment_is_described(cluster: Cluster) -> None:
    assert (partition(cluster)["adding"], partition(cluster)["removing"]) == ([], [])
