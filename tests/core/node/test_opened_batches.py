"""Topics for which the leader has to open batches: another codec, or a key in every record."""

from typing import Any

import pytest
from node_cluster import ORDERS, Cluster

from tidelog.core.controller.events import AlterConfigReceived
from tidelog.core.errors import ErrorCode
from tidelog.core.node.messages import Produce, ProducePartition, ProducePartitionResponse
from tidelog.core.record import work_budget
from tidelog.core.record.compression import Codec
from tidelog.core.record.crc32c import crc32c
from tidelog.core.record.decoder import decode
from tidelog.core.record.encoder import Producer, encode_batch
from tidelog.core.record.record import Record
from tidelog.core.record.record_batch import CRC_AT, CRC_FROM, UINT32, RecordBatch, batches

RECORDS = [Record(b"k1", b"one" * 100, 5), Record(b"k2", None, 6)]


def cluster_with(settings: dict[str, Any] | None = None, **configs: Any) -> Cluster:
    cluster = Cluster(brokers=(1,), settings=settings or {})
    cluster.start()
    cluster.create_topic(replicas=(1,), **configs)
    return cluster


def send(cluster: Cluster, records: bytearray) -> ProducePartitionResponse:
    request = Produce(-1, 1000, [ProducePartition(ORDERS, records)])
    answer: ProducePartitionResponse = cluster.call(1, request).partitions[0]
    return answer


def stored(cluster: Cluster) -> list[RecordBatch]:
    log = cluster.replica(1).log
    return list(batches(log.read_bytes(log.read(0, 1 << 20))))


@pytest.mark.parametrize(
    ("wanted", "codec"),
    [
        ("zstd", Codec.ZSTD),
        ("gzip", Codec.GZIP),
        ("snappy", Codec.SNAPPY),
        ("lz4", Codec.LZ4),
        ("uncompressed", Codec.NONE),
        ("producer", Codec.LZ4),
    ],
)
def test_the_log_has_the_topics_codec(wanted: str, codec: Codec) -> None:
    cluster = cluster_with(compression_type=wanted)
    sent = encode_batch(RECORDS, attributes=Codec.LZ4, producer=Producer(9, 0, 0))
    assert send(cluster, sent).error is ErrorCode.NONE
    (batch,) = stored(cluster)
    assert batch.codec == codec
    assert batch.crc_ok()
    assert batch.producer_id == 9
    assert [(r.key, r.value, r.timestamp) for r in decode(batch)] == [
        (r.key, r.value, r.timestamp) for r in RECORDS
    ]


def test_a_batch_in_the_right_codec_is_not_opened() -> None:
    cluster = cluster_with(compression_type="snappy")
    sent = encode_batch(RECORDS, attributes=Codec.SNAPPY)
    send(cluster, sent)
    (batch,) = stored(cluster)
    assert bytes(batch.view())[CRC_FROM:] == bytes(sent)[CRC_FROM:]


def test_codec_of_the_topic_takes_precedence_over_the_brokers() -> None:
    cluster = cluster_with({"compression_type": "gzip"})
    send(cluster, encode_batch(RECORDS))
    assert stored(cluster)[0].codec == Codec.GZIP
    cluster.call(1, AlterConfigReceived(0, "orders", {"compression.type": "producer"}))
    cluster.run(100)
    send(cluster, encode_batch(RECORDS))
    assert stored(cluster)[1].codec == Codec.NONE


@pytest.mark.parametrize(
    ("codec", "level", "rule"),
    [(Codec.GZIP, "4", 4), (Codec.GZIP, "-1", None), (Codec.ZSTD, "-1", -1), (Codec.LZ4, "9", 9)],
)
def test_compression_level_is_used(codec: Codec, level: str, rule: int | None) -> None:
    cluster = cluster_with()
    name = codec.name.lower()
    changes: dict[str, str | None] = {"compression.type": name, f"compression.{name}.level": level}
    cluster.call(1, AlterConfigReceived(0, "orders", changes))
    cluster.run(100)
    assert cluster.replica(1).rules.level == rule
    send(cluster, encode_batch(RECORDS))
    assert stored(cluster)[0].codec == codec


def test_a_retry_is_recognised_after_repacking() -> None:
    cluster = cluster_with(compression_type="zstd")
    sent = encode_batch(RECORDS, producer=Producer(9, 0, 0))
    assert send(cluster, bytearray(sent)).base_offset == 0
    again = send(cluster, sent)
    assert (again.error, again.base_offset) == (ErrorCode.NONE, 0)
    assert len(stored(cluster)) == 1


def test_log_append_time_and_another_codec() -> None:
    cluster = cluster_with(compression_type="zstd", message_timestamp_type="LogAppendTime")
    cluster.run(500)
    answer = send(cluster, encode_batch(RECORDS))
    (batch,) = stored(cluster)
    assert batch.crc_ok()
    assert batch.max_timestamp == answer.log_append_time_ms == cluster.now_ms


def test_batch_that_can_not_be_decompressed_is_refused() -> None:
    cluster = cluster_with(compression_type="zstd")
    sent = encode_batch(RECORDS, attributes=Codec.GZIP)
    sent[65:75] = bytes(10)
    UINT32.pack_into(sent, CRC_AT, crc32c(memoryview(sent)[CRC_FROM:]))
    answer = send(cluster, sent)
    assert answer.error is ErrorCode.CORRUPT_MESSAGE
    assert answer.error_message is not None
    assert "gzip" in answer.error_message
    assert not stored(cluster)


@pytest.mark.parametrize(
    ("config", "error"),
    [
        ("max.message.bytes", ErrorCode.MESSAGE_TOO_LARGE),
        ("segment.bytes", ErrorCode.RECORD_LIST_TOO_LARGE),
    ],
)
def test_decompressed_batch_may_be_too_large(config: str, error: ErrorCode) -> None:
    limit: dict[str, Any] = {config.replace(".", "_"): "1048576"}
    cluster = cluster_with({"message_max_bytes": 1 << 30}, compression_type="uncompressed", **limit)
    large = [Record(b"k", b"x" * 1_100_000, 5)]
    assert send(cluster, encode_batch(large, attributes=Codec.ZSTD)).error is error


def test_compacted_topic_rejects_records_without_a_key() -> None:
    cluster = cluster_with(cleanup_policy="compact")
    keyless = [*RECORDS, Record(None, b"three", 7), Record(None, b"four", 7)]
    for codec in (Codec.NONE, Codec.ZSTD):
        answer = send(cluster, encode_batch(keyless, attributes=codec))
        assert answer.error is ErrorCode.INVALID_RECORD
        assert answer.record_errors == ((2, "no key"), (3, "no key"))
        assert answer.error_message == "2 of 4 records have no key; the topic is compacted"
    assert send(cluster, encode_batch(RECORDS)).error is ErrorCode.NONE
    assert len(stored(cluster)) == 1


def test_compaction_by_the_brokers_default_and_its_end() -> None:
    cluster = cluster_with(cleanup_policy="compact")
    cluster.call(1, AlterConfigReceived(0, "orders", {"cleanup.policy": "delete"}))
    cluster.run(100)
    assert send(cluster, encode_batch([Record(None, b"one", 5)])).error is ErrorCode.NONE
    changes: dict[str, str | None] = {"log.cleanup.policy": "compact"}
    cluster.call(1, AlterConfigReceived(0, None, changes))
    cluster.call(1, AlterConfigReceived(0, "orders", {"cleanup.policy": None}))
    cluster.run(100)
    answer = send(cluster, encode_batch([Record(None, b"one", 5)]))
    assert answer.error is ErrorCode.INVALID_RECORD


def test_records_that_do_not_decode_are_refused_where_keys_are_needed() -> None:
    cluster = cluster_with(cleanup_policy="compact")
    sent = encode_batch(RECORDS)
    sent[61] ^= 0x7E
    UINT32.pack_into(sent, CRC_AT, crc32c(memoryview(sent)[CRC_FROM:]))
    assert send(cluster, sent).error is ErrorCode.CORRUPT_MESSAGE


def test_work_of_one_request_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    """The remaining batches are refused; the next request has a new budget."""
    monkeypatch.setattr(work_budget, "STEPS_MAX", 26)
    cluster = cluster_with(cleanup_policy="compact")
    parts = [ProducePartition(ORDERS, encode_batch(RECORDS)) for _ in range(2)]
    first, second = cluster.call(1, Produce(-1, 1000, parts)).partitions
    assert (first.error, second.error) == (ErrorCode.NONE, ErrorCode.REQUEST_TIMED_OUT)
    assert "send fewer" in second.error_message
    assert send(cluster, encode_batch(RECORDS)).error is ErrorCode.NONE


def test_the_response_names_some_of_many_records_without_key() -> None:
    cluster = cluster_with(cleanup_policy="compact")
    answer = send(cluster, encode_batch([Record(None, b"v", 5)] * 5000))
    assert answer.error is ErrorCode.INVALID_RECORD
    assert len(answer.record_errors) == 100
    assert "5000 of 5000" in (answer.error_message or "")
