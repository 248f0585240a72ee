"""Compaction in a broker: which log is cleaned when, and what ends a running cleaning."""

from itertools import pairwise
from typing import Any

import pytest
from node_cluster import ORDERS, Cluster, fetch

from tidelog.core.controller.events import AlterConfigReceived
from tidelog.core.errors import ErrorCode
from tidelog.core.node import events as on
from tidelog.core.node.effects import CleanLog
from tidelog.core.node.messages import Produce, ProducePartition
from tidelog.core.record.decoder import decode
from tidelog.core.record.encoder import encode_batch
from tidelog.core.record.record import Record
from tidelog.core.record.record_batch import batches
from tidelog.core.replication.effects import TruncateTo
from tidelog.core.storage import layout
from tidelog.core.storage.cleaning.cleaner import clean
from tidelog.core.storage.cleaning.plan import CleaningMessage
from tidelog.core.storage.log import Log
from tidelog.core.types import TopicPartition

BACKOFF_MS = 1000
BILLS = TopicPartition("bills", 0)


def started(*brokers: int, **settings: Any) -> Cluster:
    cluster = Cluster(brokers or (1,), settings={"log_cleaner_backoff_ms": BACKOFF_MS, **settings})
    cluster.start()
    return cluster


def make(cluster: Cluster, name: str = "orders", **configs: str) -> None:
    wanted = {
        "cleanup_policy": "compact",
        "segment_bytes": "500",
        "min_cleanable_dirty_ratio": "0.1",
        **configs,
    }
    topic_id = name.encode().ljust(16, b"-")
    cluster.create_topic(name, cluster.brokers, topic_id, True, **wanted)


def write(cluster: Cluster, count: int, name: TopicPartition = ORDERS, keys: int = 3) -> None:
    leader = cluster.leader(name)
    assert leader is not None
    start = cluster.replica(leader, name).log.log_end_offset
    for number in range(start, start + count):
        data = encode_batch([Record(b"key-%d" % (number % keys), b"%d" % number * 20)])
        cluster.call(leader, Produce(-1, 30_000, [ProducePartition(name, data)]))


def offsets(log: Log) -> list[int]:
    """Return the offsets of the remaining records."""
    found = []
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        for batch in batches(log.read_bytes(log.read(offset, 1 << 20))):
            found += [record.offset for record in decode(batch)]
            offset = batch.next_offset
    return found


def clean_end(cluster: Cluster, broker: int = 1, name: TopicPartition = ORDERS) -> int:
    return cluster.nodes[broker].directory.cleaner_offsets.get(name, -1)


def test_every_replica_cleans_up_to_its_closed_segments() -> None:
    cluster = started(1, 2, 3)
    make(cluster)
    write(cluster, 20)
    cluster.run(3 * BACKOFF_MS)
    for broker in cluster.brokers:
        log = cluster.replica(broker).log
        active = log.segments.active.base_offset
        assert clean_end(cluster, broker) == active
        kept = [offset for offset in offsets(log) if offset < active]
        assert len(kept) == 3
        assert cluster.nodes[broker].cleaning.stats.cleanings == 1
    leader = cluster.leader()
    assert leader is not None
    assert cluster.consume(leader)[-1] == b"19" * 20


def test_a_log_that_is_not_compacted_is_left_alone() -> None:
    cluster = started()
    make(cluster, cleanup_policy="delete")
    write(cluster, 20)
    cluster.run(3 * BACKOFF_MS)
    assert offsets(cluster.replica(1).log) == list(range(20))
    assert clean_end(cluster) == -1


def test_a_cleaner_that_is_turned_off_does_nothing() -> None:
    cluster = started(log_cleaner_enable=False)
    make(cluster)
    write(cluster, 20)
    cluster.run(3 * BACKOFF_MS)
    assert offsets(cluster.replica(1).log) == list(range(20))


def test_cleaner_settings_can_change_while_running() -> None:
    """The value of one broker takes precedence over that of all brokers."""
    cluster = started(1, 2, log_cleaner_backoff_ms=20_000)
    make(cluster)
    for broker, text in ((None, "5000"), (2, "3000000")):
        change = AlterConfigReceived(0, None, {"log.cleaner.backoff.ms": text}, broker=broker)
        assert cluster.call(cluster.controller(), change).error is ErrorCode.NONE
    rate = AlterConfigReceived(0, None, {"log.cleaner.io.max.bytes.per.second": "2048.0"})
    assert cluster.call(cluster.controller(), rate).error is ErrorCode.NONE
    cluster.cleaning_held = True
    cluster.run(25_000)
    write(cluster, 20)
    cluster.run(10_000)
    [(broker, _, cleaning)] = cluster.cleanings
    assert broker == 1
    assert cleaning.bytes_per_second == 2048.0


def test_nothing_is_cleaned_above_the_high_watermark() -> None:
    cluster = started(1, 2, 3)
    make(cluster)
    write(cluster, 8)
    leader = cluster.leader()
    assert leader is not None
    committed = cluster.replica(leader).partition.high_watermark
    for broker in cluster.brokers:
        cluster.cut |= {(leader, broker), (broker, leader)}
    for number in range(20):
        data = encode_batch([Record(b"key-%d" % (number % 3), b"new" * 20)])
        cluster.ask(leader, Produce(1, 30_000, [ProducePartition(ORDERS, data)]))
    cluster.run(2 * BACKOFF_MS)
    replica = cluster.replica(leader)
    assert replica.partition.high_watermark == committed
    assert replica.log.segments.active.base_offset > committed
    assert 0 < clean_end(cluster, leader) <= committed
    assert offsets(replica.log)[-20:] == list(range(committed, committed + 20))


def test_the_dirtiest_log_comes_first_and_the_next_at_once() -> None:
    cluster = started()
    make(cluster)
    make(cluster, "bills")
    write(cluster, 20)
    write(cluster, 20, BILLS)
    cluster.run(2 * BACKOFF_MS)
    write(cluster, 6)
    write(cluster, 20, BILLS)
    cluster.cleaning_held = True
    cluster.run(BACKOFF_MS + 500)
    ((_, _, effect),) = cluster.cleanings
    assert effect.plan.partition == BILLS, "one at a time, the dirtier one"
    cluster.release_cleanings()
    cluster.run(10)
    ((_, _, effect),) = cluster.cleanings
    assert effect.plan.partition == ORDERS


def test_cleanings_in_parallel_share_the_memory() -> None:
    cluster = started(log_cleaner_threads=2, log_cleaner_dedupe_buffer_size=2_000_000)
    make(cluster)
    make(cluster, "bills")
    write(cluster, 20)
    write(cluster, 20, BILLS)
    cluster.cleaning_held = True
    cluster.run(3 * BACKOFF_MS)
    plans = [effect.plan for _, _, effect in cluster.cleanings]
    assert {plan.partition for plan in plans} == {ORDERS, BILLS}
    assert {plan.map_bytes for plan in plans} == {1_000_000}


def held_cleaning(cluster: Cluster) -> tuple[int, CleanLog]:
    cluster.cleaning_held = True
    cluster.run(2 * BACKOFF_MS)
    ((broker, _, effect),) = cluster.cleanings
    return broker, effect


def tell(cluster: Cluster, broker: int, effect: CleanLog, told: list[CleaningMessage]) -> None:
    for one in told:
        cluster.step(broker, on.LogCleaned(effect.cleaning, one, cluster.now_ms))


def test_a_truncation_ends_a_cleaning_and_cuts_the_checkpoint() -> None:
    """KAFKA-3330: records appended above the truncation were never cleaned."""
    cluster = started()
    make(cluster)
    write(cluster, 20)
    cluster.run(2 * BACKOFF_MS)
    before = clean_end(cluster)
    write(cluster, 20)
    broker, effect = held_cleaning(cluster)
    node, replica = cluster.nodes[broker], cluster.replica(broker)
    told = list(clean(cluster.disks[broker], effect.plan))
    node._replicas._truncate_to(replica, TruncateTo(before - 2, 40, 40))
    assert clean_end(cluster) <= before - 2
    cut = offsets(replica.log)
    tell(cluster, broker, effect, told)
    assert cluster.stopped_cleanings == [effect.cleaning]
    assert offsets(replica.log) == cut, "nothing came back"
    assert node.cleaning.stats.cleanings == 1


def test_a_log_start_that_passes_a_segment_ends_its_cleaning() -> None:
    cluster = started()
    make(cluster)
    write(cluster, 20)
    broker, effect = held_cleaning(cluster)
    log = cluster.replica(broker).log
    told = list(clean(cluster.disks[broker], effect.plan))
    log.drop_before(log.segments.active.base_offset, cluster.now_ms)
    first = log.segments.first
    tell(cluster, broker, effect, told[:1])
    assert cluster.stopped_cleanings == [effect.cleaning]
    assert log.segments.first is first


def test_cleaning_whose_files_were_deleted_did_not_fail() -> None:
    cluster = started()
    make(cluster)
    write(cluster, 20)
    broker, _ = held_cleaning(cluster)
    log = cluster.replica(broker).log
    log.drop_before(log.segments.active.base_offset, cluster.now_ms)
    cluster.release_cleanings()
    assert cluster.nodes[broker].cleaning.stats.failures == 0


def test_a_recreated_topic_is_not_changed_by_the_old_ones_cleaning() -> None:
    cluster = started()
    make(cluster)
    write(cluster, 20)
    broker, effect = held_cleaning(cluster)
    node = cluster.nodes[broker]
    told = list(clean(cluster.disks[broker], effect.plan))
    node._applier._drop(ORDERS, node.replicas[ORDERS].topic_id)
    node._applier._delete_dropped()
    tell(cluster, broker, effect, told)
    assert cluster.stopped_cleanings == [effect.cleaning]
    assert not cluster.disks[broker].exists("orders-0")


def test_files_that_differ_from_the_report_are_not_installed() -> None:
    cluster = started()
    make(cluster)
    write(cluster, 20)
    broker, effect = held_cleaning(cluster)
    disk = cluster.disks[broker]
    told = list(clean(disk, effect.plan))
    for name in disk.list_dir("orders-0"):
        if name.endswith(".log.cleaned"):
            disk.append(f"orders-0/{name}", [b"x"])
    tell(cluster, broker, effect, told)
    assert cluster.stopped_cleanings == [effect.cleaning]
    assert offsets(cluster.replica(broker).log) == list(range(20))


def test_failed_cleaning_is_retried_with_growing_delay() -> None:
    cluster = started()
    make(cluster)
    write(cluster, 20)
    cluster.cleaning_held = True
    tries: list[int] = []
    for _ in range(4):
        cluster.run_until(lambda: bool(cluster.cleanings))
        ((broker, _, effect),) = cluster.cleanings
        cluster.cleanings.clear()
        tries.append(cluster.now_ms)
        cluster.step(broker, on.LogCleaned(effect.cleaning, "it burns", cluster.now_ms))
    gaps = [after - before for before, after in pairwise(tries)]
    assert BACKOFF_MS <= gaps[0] < gaps[1] < gaps[2]
    notes, _ = cluster.nodes[1].journal.take()
    failed = [note.text() for note in notes if note.event == "compaction_failed"]
    assert failed[0] == "could not compact orders-0: it burns; retrying in 1000 ms"
    assert cluster.nodes[1].cleaning.stats.failures == 4
    cluster.cleaning_held = False
    cluster.run(20 * BACKOFF_MS)
    assert clean_end(cluster) > 0


def test_no_long_poll_holds_a_region_of_a_cleaned_file() -> None:
    """Both fetches wait for more bytes than exist; only the active segment can get more."""
    cluster = started()
    make(cluster)
    write(cluster, 20)
    cluster.cleaning_held = True
    cluster.run(2 * BACKOFF_MS)
    old = cluster.ask(1, fetch(0, max_wait_ms=5000, min_bytes=1 << 19))
    assert old in cluster.answers, "before the file is another under the same name"
    active = cluster.replica(1).log.segments.active
    new = cluster.ask(1, fetch(active.base_offset, max_wait_ms=5000, min_bytes=1 << 19))
    cluster.release_cleanings()
    assert new not in cluster.answers
    assert offsets(cluster.replica(1).log) != list(range(20)), "it was cleaned meanwhile"
    cluster.run(6000)
    told = [list(batches(cluster.answers[poll].partitions[0].records)) for poll in (old, new)]
    assert all(found and all(batch.crc_ok() for batch in found) for found in told)
    assert bytes(told[1][0].view()) in bytes(cluster.disks[1].files[active.path])


def test_no_segment_is_replaced_before_a_response_is_sent() -> None:
    """The host has not settled a fetch yet: the region in its response must stay valid."""
    cluster = started()
    make(cluster)
    write(cluster, 20)
    broker, effect = held_cleaning(cluster)
    node, disk = cluster.nodes[broker], cluster.disks[broker]
    before = bytes(disk.files["orders-0/00000000000000000000.log"])
    told = list(clean(disk, effect.plan))
    node.take(on.RequestReceived("client", 999, fetch(0), cluster.now_ms))
    for one in told:
        node.take(on.LogCleaned(effect.cleaning, one, cluster.now_ms))
    assert bytes(disk.files["orders-0/00000000000000000000.log"]) == before
    node.settle()
    assert node.next_deadline_ms() == cluster.now_ms
    cluster.step(broker, on.Ticked(cluster.now_ms))
    assert bytes(disk.files["orders-0/00000000000000000000.log"]) != before
    assert clean_end(cluster) > 0


@pytest.mark.parametrize("moment", ["before", "after"])
def test_cleaned_offset_survives_a_restart(moment: str) -> None:
    cluster = started()
    make(cluster)
    write(cluster, 20)
    if moment == "after":
        cluster.run(3 * BACKOFF_MS)
        left = offsets(cluster.replica(1).log)
        end = clean_end(cluster)
        assert cluster.disks[1].exists(layout.CLEANER_OFFSETS)
    else:
        cluster.cleaning_held = True
        cluster.run(2 * BACKOFF_MS)
        ((_, _, effect),) = cluster.cleanings
        list(clean(cluster.disks[1], effect.plan))  # written, and never put in place
        cluster.cleanings.clear()
        left, end = list(range(20)), -1
    cluster.crash(1, proof=True)
    cluster.start(1)
    cluster.run_until(lambda: cluster.leader() is not None)
    assert offsets(cluster.replica(1).log) == left
    assert clean_end(cluster) == end
    assert not [n for n in cluster.disks[1].list_dir("orders-0") if n.endswith(".cleaned")]


def values_of(cluster: Cluster, broker: int, key: bytes) -> list[bytes | None]:
    """Return the values of this key in a replica's log."""
    log = cluster.replica(broker).log
    found, offset = [], log.log_start_offset
    while offset < log.log_end_offset:
        for batch in batches(log.read_bytes(log.read(offset, 1 << 20))):
            found += [record.value for record in decode(batch) if record.key == key]
            offset = batch.next_offset
    return found


def send(cluster: Cluster, key: bytes, value: bytes | None) -> None:
    leader = cluster.leader()
    assert leader is not None
    data = encode_batch([Record(key, value)])
    cluster.call(leader, Produce(-1, 30_000, [ProducePartition(ORDERS, data)]))


def test_deleted_key_does_not_return_with_a_returned_replica() -> None:
    """It was down for longer than `delete.retention.ms`. If the tombstone were removed, the replica
    would keep the value permanently, and return it when it leads."""
    cluster = started(1, 2, 3)
    make(cluster, delete_retention_ms="0", min_insync_replicas="1")
    send(cluster, b"gone", b"old" * 20)
    write(cluster, 12)
    leader = cluster.leader()
    assert leader is not None
    away = next(broker for broker in cluster.brokers if broker != leader)
    cluster.crash(away, proof=True)
    send(cluster, b"gone", None)
    for _ in range(3):
        write(cluster, 20)
        cluster.run(3 * BACKOFF_MS)
    assert cluster.nodes[leader].cleaning.stats.cleanings >= 3
    assert values_of(cluster, leader, b"gone") == [None], "it waits for the one that is away"
    cluster.start(away)
    cluster.run_until(lambda: len(cluster.replica(leader).isr) == 3)
    for _ in range(3):
        write(cluster, 20)
        cluster.run(3 * BACKOFF_MS)
    for broker in cluster.brokers:
        assert values_of(cluster, broker, b"gone") == []
