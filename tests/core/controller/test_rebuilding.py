"""Metadata rebuilt from folders: the replica with the newest and longest log leads."""

from cluster_driver import Cluster

from tidelog.core.authorization.acl import (
    Acl,
    Operation,
    PatternType,
    Permission,
    ResourceType,
)
from tidelog.core.controller.metadata import keys
from tidelog.core.controller.metadata import registrations as values
from tidelog.core.controller.metadata.cluster_image import ClusterImage
from tidelog.core.controller.metadata.metadata_copy import MetadataCopy, decode_copy, encode_copy
from tidelog.core.controller.metadata.metadata_store import KV, Put, Snapshot
from tidelog.core.controller.metadata.mvcc import Mvcc
from tidelog.core.controller.metadata.rebuilding import (
    PRODUCER_IDS_SPARED,
    Base,
    FoundBroker,
    FoundLog,
    Rebuilt,
    rebuild,
)
from tidelog.core.controller.metadata.registrations import (
    PartitionKey,
    PartitionRegistration,
    TopicImage,
)
from tidelog.core.types import StorePoint, TopicPartition

OLD_ID, NEW_ID = b"o" * 16, b"n" * 16


def log(
    end: int, epoch: int = 0, index: int = 0, topic_id: bytes = NEW_ID, producer: int = -1
) -> FoundLog:
    return FoundLog(TopicPartition("orders", index), topic_id, epoch, end, 0, producer)


def broker(
    number: int, *logs: FoundLog, seen: int = 10, copy: MetadataCopy | None = None
) -> FoundBroker:
    return FoundBroker(number, StorePoint(seen, 77), None, copy, logs)


def image_of(rebuilt: Rebuilt) -> ClusterImage:
    image = ClusterImage()
    rev = rebuilt.revision
    kvs = tuple(sorted(KV(k, v, rev, rev) for k, v in rebuilt.keys.items()))
    image.load(Snapshot(kvs, rev))
    return image


def only(rebuilt: Rebuilt) -> PartitionRegistration:
    (partition,) = image_of(rebuilt).partitions.values()
    return partition


def based_on(replicas: tuple[int, ...], topic_id: bytes = NEW_ID, count: int = 1) -> Base:
    store = Mvcc()
    topic = TopicImage("orders", topic_id, count)
    store.txn((), (Put(keys.topic_name("orders"), values.encode_topic(topic)),))
    for index in range(count):
        known = PartitionRegistration(topic_id, index, replicas, replicas, replicas[0], 4, 9)
        store.txn((), (Put(keys.partition(topic_id, index), values.encode_partition(known)),))
    store.txn((), (Put(keys.topic_config("orders"), values.encode_config({"a": "base"})),))
    return Base(store.range(""), {})


def test_the_highest_epoch_wins_over_the_longest_log() -> None:
    rebuilt = rebuild([broker(1, log(90, 3)), broker(2, log(50, 4)), broker(3, log(50, 4))])
    partition = only(rebuilt)
    assert (partition.isr, partition.leader, partition.leader_epoch) == ((2, 3), None, 5)
    assert set(partition.replicas) == {1, 2, 3}
    assert rebuilt.revision == 11, "above all that any broker has seen"


def test_of_equal_epochs_the_longest_log_wins() -> None:
    partition = only(rebuild([broker(1, log(9, 2)), broker(2, log(8, 2)), broker(3, log(8, 1))]))
    assert partition.isr == (1,)


def test_a_topic_keeps_its_id_and_a_lost_partition_starts_empty() -> None:
    rebuilt = rebuild([broker(1, log(5), log(7, index=2)), broker(2, log(5))])
    image = image_of(rebuilt)
    assert image.topics["orders"] == TopicImage("orders", NEW_ID, 3)
    gap = image.partitions[PartitionKey(NEW_ID, 1)]
    assert (gap.replicas, gap.isr) == ((1, 2), (1, 2))
    assert any("orders-1 has no folder on any broker" in remark for remark in rebuilt.remarks)


def test_of_two_topics_with_one_name_the_newest_counts() -> None:
    away = broker(3, log(100, 9, topic_id=OLD_ID), seen=4)
    rebuilt = rebuild([away, broker(1, log(5)), broker(2, log(5))])
    assert only(rebuilt).topic_id == NEW_ID
    assert set(only(rebuilt).replicas) == {1, 2}
    assert any("deleted and recreated" in remark for remark in rebuilt.remarks)


def test_a_base_gives_the_order_of_replicas_and_epochs_stay_above_it() -> None:
    brokers = [broker(1, log(5)), broker(2, log(6)), broker(3, log(6))]
    partition = only(rebuild(brokers, based_on((3, 1, 2))))
    assert (partition.replicas, partition.isr) == ((3, 1, 2), (3, 2))
    assert (partition.leader_epoch, partition.partition_epoch) == (5, 10)


def test_a_replica_that_was_reassigned_since_the_base_does_not_return() -> None:
    brokers = [broker(2, log(6)), broker(3, log(6)), broker(4, log(6)), broker(1)]
    assert only(rebuild(brokers, based_on((1, 2, 3)))).replicas == (2, 3, 4)
    without = [broker(2, log(6)), broker(3, log(6)), broker(1)]
    assert only(rebuild(without, based_on((1, 2, 3)))).replicas == (2, 3, 1)


def test_settings_come_from_the_newest_copy_if_the_base_is_behind() -> None:
    image = ClusterImage()
    image.load(based_on((1,)).snapshot)
    image.configs[keys.topic_config("orders")] = {"a": "copy"}
    image.next_producer_id = 5000
    acl = Acl(
        ResourceType.TOPIC,
        "orders",
        PatternType.LITERAL,
        "User:alice",
        "*",
        Operation.READ,
        Permission.ALLOW,
    )
    image.acls = {keys.acl(values.encode_acl(acl)): acl}
    copy = decode_copy(encode_copy(image))
    assert copy is not None
    assert copy.brokers == tuple(sorted(image.states))
    brokers = [broker(1, log(5), seen=10, copy=copy)]
    behind = rebuild(brokers, based_on((1,)))
    assert image_of(behind).configs == {"config/topic/orders": {"a": "copy"}}
    assert image_of(behind).acls == image.acls
    assert image_of(behind).next_producer_id == 5000 + PRODUCER_IDS_SPARED
    up_to_date = rebuild([broker(1, log(5), seen=2, copy=copy)], based_on((1,)))
    assert image_of(up_to_date).configs == {"config/topic/orders": {"a": "base"}}
    assert not image_of(up_to_date).acls
    forked = based_on((1,))._replace(past={2: 78})
    other = rebuild([broker(1, log(5), seen=2, copy=copy)], forked)
    assert image_of(other).configs == {"config/topic/orders": {"a": "copy"}}


def test_producer_ids_in_the_logs_are_not_reused() -> None:
    rebuilt = rebuild([broker(1, log(5, producer=7000))])
    assert image_of(rebuilt).next_producer_id > 7000
    assert any("no broker has a copy" in remark for remark in rebuilt.remarks)


def test_a_topic_of_the_base_without_folders_is_reported() -> None:
    rebuilt = rebuild([broker(1)], based_on((1,)))
    assert only(rebuilt).isr == (1,)
    assert any("has no folder on any broker" in remark for remark in rebuilt.remarks)


def test_a_clean_stop_counts_after_the_rebuilding() -> None:
    stopped = broker(1, log(5))._replace(clean_epoch=6)
    image = image_of(rebuild([stopped]))
    assert image.brokers[1].admitted_epoch == 6


def test_brokers_that_crashed_lead_after_the_rebuilding() -> None:
    """They have no mark of a clean stop, so no previous epoch: their logs were examined."""
    cluster = Cluster()
    rebuilt = rebuild([broker(1, log(9)), broker(2, log(9)), broker(3, log(8))])
    cluster.store.txn((), tuple(Put(key, value) for key, value in rebuilt.keys.items()))
    for number in (3, 2, 1):
        cluster.start(number)
        cluster.heartbeat(number)
    cluster.tick(1)
    (partition,) = cluster.hosts[3].image.partitions.values()
    assert partition.leader in (1, 2)
    assert partition.unclean_election is None
    # The next crash counts: the broker sends no epoch, and was admitted under one since.
    assert cluster.restart(1).image.brokers[1].stopped_uncleanly


def test_a_broker_without_state_cannot_prove_a_clean_stop() -> None:
    cluster = Cluster(1)
    cluster.start(2)
    assert cluster.hosts[1].image.brokers[2].stopped_uncleanly


def test_a_damaged_copy_is_ignored() -> None:
    for data in (b"", b"{}", b'{"version":1}', b'{"version":0,"revision":"x"}', b"[]"):
        assert decode_copy(data) is None
