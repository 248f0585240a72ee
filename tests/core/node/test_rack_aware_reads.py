"""KIP-392: consumers are sent to a replica in their rack, which serves committed records."""

from typing import Any

import pytest
from node_cluster import ORDERS, Cluster, fetch

from tidelog.core.errors import ErrorCode
from tidelog.core.node.messages import NEW_SESSION, FetchPartitionResponse

RACKS = {1: "a", 2: "b", 3: "b"}


@pytest.fixture
def cluster() -> Cluster:
    cluster = Cluster()
    for broker, rack in RACKS.items():
        cluster.start(broker, rack=rack, rack_aware_reads=True)
    cluster.create_topic()
    assert cluster.leader() == 1
    return cluster


def ask(cluster: Cluster, broker: int, offset: int, **settings: Any) -> FetchPartitionResponse:
    answer: FetchPartitionResponse
    (answer,) = cluster.call(broker, fetch(offset, **settings)).partitions
    return answer


def settled(cluster: Cluster, *values: bytes) -> None:
    cluster.produce(1, *values)
    cluster.run(1000)


def test_a_consumer_is_sent_to_its_rack_without_records(cluster: Cluster) -> None:
    settled(cluster, b"one")
    answer = ask(cluster, 1, 0, rack_id="b")
    assert answer.preferred_read_replica in (2, 3)
    assert answer.records is None
    assert (answer.error, answer.high_watermark) == (ErrorCode.NONE, 1)


def test_the_preferred_replica_is_returned_at_once(cluster: Cluster) -> None:
    settled(cluster, b"one")
    before = cluster.now_ms
    assert ask(cluster, 1, 1, rack_id="b", max_wait_ms=500, min_bytes=1000).preferred_read_replica
    assert cluster.now_ms == before


@pytest.mark.parametrize("rack", ["a", "c", ""], ids=["leader's own", "nobody's", "not told"])
def test_leader_serves_without_a_matching_rack(cluster: Cluster, rack: str) -> None:
    settled(cluster, b"one")
    answer = ask(cluster, 1, 0, rack_id=rack)
    assert answer.preferred_read_replica is None
    assert answer.records


def test_followers_name_no_preferred_replica(cluster: Cluster) -> None:
    settled(cluster, b"one")
    answer = ask(cluster, 2, 0, rack_id="a")
    assert answer.preferred_read_replica is None
    assert answer.records


def test_without_the_setting_the_leader_serves() -> None:
    cluster = Cluster()
    for broker, rack in RACKS.items():
        cluster.start(broker, rack=rack)
    cluster.create_topic()
    settled(cluster, b"one")
    assert ask(cluster, 1, 0, rack_id="b").records


def test_the_most_caught_up_is_chosen(cluster: Cluster) -> None:
    settled(cluster, b"one")
    cluster.cut |= {(2, 1), (1, 2)}
    cluster.produce(1, b"two", acks=1)
    cluster.run(100)
    assert ask(cluster, 1, 0, rack_id="b").preferred_read_replica == 3
    assert ask(cluster, 1, 2, rack_id="b").preferred_read_replica == 3


def test_replica_that_lacks_the_offset_is_not_chosen(cluster: Cluster) -> None:
    settled(cluster, b"one")
    cluster.cut |= {(2, 1), (1, 2), (3, 1), (1, 3)}
    cluster.produce(1, b"two", acks=1)
    answer = ask(cluster, 1, 2, rack_id="b")
    assert answer.preferred_read_replica is None
    assert ask(cluster, 1, 1, rack_id="b").preferred_read_replica in (2, 3)


def test_replica_whose_log_begins_later_is_not_chosen(cluster: Cluster) -> None:
    settled(cluster, b"one", b"two")
    for follower in cluster.replica(1).partition.followers.values():
        follower.log_start_offset = 1
    assert ask(cluster, 1, 0, rack_id="b").preferred_read_replica is None
    assert ask(cluster, 1, 1, rack_id="b").preferred_read_replica is not None


def test_replica_outside_the_isr_or_cluster_is_not_chosen(cluster: Cluster) -> None:
    settled(cluster, b"one")
    cluster.crash(2, proof=True)
    cluster.run(100)
    assert ask(cluster, 1, 0, rack_id="b").preferred_read_replica == 3
    cluster.crash(3, proof=True)
    cluster.run(100)
    assert ask(cluster, 1, 0, rack_id="b").records


def test_fenced_replica_in_the_isr_is_not_chosen(cluster: Cluster) -> None:
    settled(cluster, b"one")
    del cluster.nodes[1]._applier.brokers[3]
    assert ask(cluster, 1, 0, rack_id="b").preferred_read_replica == 2


def test_errors_take_precedence_over_the_preferred_replica(cluster: Cluster) -> None:
    settled(cluster, b"one")
    answer = ask(cluster, 1, 7, rack_id="b")
    assert answer.error is ErrorCode.OFFSET_OUT_OF_RANGE
    assert answer.preferred_read_replica is None


def test_preferred_replica_in_a_fetch_session(cluster: Cluster) -> None:
    settled(cluster, b"one")
    first = cluster.call(1, fetch(1, rack_id="b", session_epoch=NEW_SESSION))
    assert first.partitions[0].preferred_read_replica is not None
    again = fetch(1, rack_id="b", session_epoch=1)
    again.session_id = first.session_id
    second = cluster.call(1, again)
    assert second.partitions[0].preferred_read_replica is not None


def test_the_follower_serves_up_to_its_own_high_watermark(cluster: Cluster) -> None:
    settled(cluster, b"one")
    answer = ask(cluster, 2, 0, rack_id="b")
    assert answer.records
    assert answer.high_watermark == 1
    cluster.cut |= {(1, 2), (1, 3)}
    waiting = cluster.ask(1, fetch(1, max_wait_ms=60_000))
    cluster.produce(1, b"two", acks=1)
    assert ask(cluster, 2, 1).records is None, "nothing is known to be committed there"
    assert waiting not in cluster.answers


def test_beyond_the_followers_end_is_out_of_range_there(cluster: Cluster) -> None:
    """The consumer then returns to the leader."""
    settled(cluster, b"one")
    cluster.cut |= {(1, 2)}
    cluster.produce(1, b"two", acks=1)
    cluster.run(50)
    assert ask(cluster, 2, 2).error is ErrorCode.OFFSET_OUT_OF_RANGE
    assert ask(cluster, 1, 2).error is ErrorCode.NONE


def test_long_poll_at_a_follower_ends_when_its_high_watermark_rises(cluster: Cluster) -> None:
    settled(cluster, b"one")
    waiting = cluster.ask(3, fetch(1, max_wait_ms=60_000, rack_id="b"))
    cluster.produce(1, b"two")
    cluster.run(20)
    (answer,) = cluster.answers[waiting].partitions
    assert answer.records
    assert answer.high_watermark == 2


def test_old_consumers_are_sent_to_the_leader(cluster: Cluster) -> None:
    settled(cluster, b"one")
    answer = ask(cluster, 2, 0, any_replica=False)
    assert answer.error is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert ORDERS in cluster.nodes[2].replicas
