"""Batches that compaction emptied: clients see none where Kafka would show none."""

from node_cluster import ORDERS, Cluster, fetch

from tidelog.core.errors import ErrorCode
from tidelog.core.node.messages import Produce, ProducePartition
from tidelog.core.node.serving.long_poll import failed, past_emptied
from tidelog.core.record.encoder import encode_batch
from tidelog.core.record.record import Record
from tidelog.core.record.record_batch import HEADER_SIZE, RecordBatch, batches
from tidelog.core.storage.log import Log


def compacted() -> Cluster:
    """A log with two batches in each segment; compaction emptied the second, or both."""
    cluster = Cluster((1,), settings={"log_cleaner_backoff_ms": 1000})
    cluster.start()
    cluster.create_topic(
        replicas=(1,),
        cleanup_policy="compact",
        segment_bytes="200",
        min_cleanable_dirty_ratio="0.1",
    )
    for number, key in enumerate(["a", "same", "b", "same", *["same"] * 6, "c", "same", "d"]):
        data = encode_batch([Record(key.encode(), b"%d" % number * 10)])
        cluster.call(1, Produce(-1, 30_000, [ProducePartition(ORDERS, data)]))
    cluster.run(5000)
    return cluster


def emptied(log: Log) -> list[RecordBatch]:
    found = []
    for segment in log.segments:
        whole = log.read_bytes(segment.read(0, segment.size, segment.size))
        found += [batch for batch in batches(whole) if batch.count == 0]
    return found


def test_a_consumer_continues_after_a_batch_without_records() -> None:
    """kafka-go restarts at the log start if a response begins with an empty batch."""
    cluster = compacted()
    assert len(emptied(cluster.replica(1).log)) >= 3
    told: list[int] = []
    for offset in range(13):
        (part,) = cluster.call(1, fetch(offset)).partitions
        first, *_ = batches(part.records)
        assert first.count, f"at offset {offset}"
        assert first.last_offset >= offset
        told += [first.base_offset]
    assert told == sorted(told)
    assert told[-1] == 12


def test_a_batch_without_records_is_given_if_nothing_follows() -> None:
    """Otherwise the reader would never reach the end."""
    log = compacted().replica(1).log
    answer = failed(fetch(0).partitions[0], ErrorCode.NONE)
    last = emptied(log)[-1]
    answer.offset = answer.upto = last.next_offset
    answer.offset -= 1
    region = log.read(answer.offset, 1000, answer.upto)
    assert region.length == HEADER_SIZE
    assert past_emptied(log, region, answer, 1000) == region
    answer.upto = log.log_end_offset
    assert past_emptied(log, region, answer, 1000).length > HEADER_SIZE
