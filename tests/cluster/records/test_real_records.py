"""Records through librdkafka: read as written, and stored as the client encoded them."""

import time

import pytest
from confluent_kafka import TIMESTAMP_LOG_APPEND_TIME, KafkaError, TopicPartition
from real_cluster import (
    PATIENCE_S,
    Sent,
    consumer,
    eventually,
    make_topic,
    partition_dir,
    read,
    read_values,
    segment_bytes,
    send_all,
    take,
)

from tidelog.core.record.compression import Codec
from tidelog.core.record.decoder import decode
from tidelog.core.record.encoder import encode_batch
from tidelog.core.record.record import Header, Record
from tidelog.core.record.record_batch import batches
from tidelog.core.types import TopicPartition as Partition
from tidelog.shell.client.cluster import Cluster
from tidelog.shell.client.consumer import Reader
from tidelog.shell.client.fetching import FetchFrom, fetch
from tidelog.shell.client.offsets import MAX_TIMESTAMP, epoch_end, list_offset
from tidelog.shell.client.producer import Producer, produce
from tidelog.shell.supervisor.cluster import LocalCluster

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
LONG_AGO_MS = (int(time.time()) - 86_400) * 1000
"""A day, well within what is kept."""


@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_every_kind_of_acks(calm: LocalCluster, name: str, acks: str) -> None:
    make_topic(calm.bootstrap, name)
    wanted = [f"record {number}".encode() for number in range(500)]
    send_all(calm.bootstrap, name, wanted, conf={"acks": acks})
    found = read(calm.bootstrap, name, 500)
    assert [message.value() for message in found] == wanted
    assert [message.offset() for message in found] == list(range(500))


def test_key_value_headers_and_timestamp_are_preserved(calm: LocalCluster, name: str) -> None:
    make_topic(calm.bootstrap, name)
    sent = Sent(calm.bootstrap, name)
    headers: list[tuple[str, str | bytes | None]] = [
        ("one", b"1"),
        ("one", b"again"),
        ("none", None),
        ("leer", b""),
    ]
    sent.client.produce(name, b"v", b"k", 0, timestamp=LONG_AGO_MS, headers=headers)
    sent.client.produce(name, None, "schlüssel".encode(), 0, timestamp=LONG_AGO_MS + 1)
    sent.client.produce(name, b"", None, 0, timestamp=LONG_AGO_MS - 1)
    sent.settle()
    first, second, third = read(calm.bootstrap, name, 3)
    assert first.headers() == headers
    assert [(m.key(), m.value(), m.timestamp()) for m in (first, second, third)] == [
        (b"k", b"v", (1, LONG_AGO_MS)),
        ("schlüssel".encode(), None, (1, LONG_AGO_MS + 1)),
        (None, b"", (1, LONG_AGO_MS - 1)),
    ]
    assert first.leader_epoch() == 0


@pytest.mark.parametrize("codec", CODECS)
def test_batches_keep_the_clients_codec(calm: LocalCluster, name: str, codec: str) -> None:
    """All three replicas store the same bytes, with the client's codec."""
    make_topic(calm.bootstrap, name)
    wanted = [b"%d " % number * 100 for number in range(300)]
    conf = {"compression.type": codec, "linger.ms": 100, "acks": "all"}
    send_all(calm.bootstrap, name, wanted, conf=conf)
    assert [m.value() for m in read(calm.bootstrap, name, 300)] == wanted

    eventually(lambda: len({segment_bytes(calm, b, name) for b in calm.ids}) == 1, "replicas alike")
    seen = list(batches(segment_bytes(calm, 1, name)))
    assert {batch.attributes & 7 for batch in seen} == {Codec[codec.upper()]}
    assert sum(batch.count for batch in seen) == 300
    assert all(batch.crc_ok() for batch in seen)


def test_a_batch_is_stored_as_it_was_sent(calm: LocalCluster, name: str) -> None:
    make_topic(calm.bootstrap, name)
    records = [Record(b"k", b"value " * 50, LONG_AGO_MS, (Header("h", b"1"),))] * 20
    for codec in Codec:
        batch = encode_batch(records, attributes=codec)
        with Cluster(calm.bootstrap, timeout_s=PATIENCE_S) as cluster:
            cluster.refresh([name])
            leader = cluster.broker(cluster.leader(name, 0).leader)
            produced = produce(leader, cluster.topic(name), 0, batch)
            assert produced.error == 0
            key = Partition(name, 0)
            topics = {name: cluster.topic(name)}
            fetched = fetch(leader, topics, {key: FetchFrom(produced.base_offset)})[key]
            # All but the base offset and the leader epoch, which the leader assigns.
            assert bytes(fetched.records[16:]) == bytes(batch[16:])
            (back,) = batches(fetched.records)
            assert back.base_offset == produced.base_offset
            assert [(r.key, r.value, r.headers) for r in decode(back)] == [
                (r.key, r.value, r.headers) for r in records
            ]
        assert bytes(batch[16:]) in segment_bytes(calm, 1, name)


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd", "uncompressed"])
def test_a_topic_may_have_its_own_codec(calm: LocalCluster, name: str, codec: str) -> None:
    make_topic(calm.bootstrap, name, configs={"compression.type": codec})
    wanted = [b"%d " % number * 50 for number in range(200)]
    for sent_as in ("none", "lz4"):
        send_all(calm.bootstrap, name, wanted, conf={"compression.type": sent_as, "linger.ms": 50})
    assert read_values(calm.bootstrap, name) == wanted * 2
    expected = Codec.NONE if codec == "uncompressed" else Codec[codec.upper()]
    data = segment_bytes(calm, 1, name)
    assert {batch.attributes & 7 for batch in batches(data)} == {expected}


def test_large_messages(calm: LocalCluster, name: str) -> None:
    make_topic(calm.bootstrap, name)
    wanted = [bytes([number]) * 900_000 for number in range(12)]
    send_all(calm.bootstrap, name, wanted, conf={"acks": "all"})
    assert read_values(calm.bootstrap, name) == wanted


def test_a_message_larger_than_one_fetch_is_read(calm: LocalCluster, name: str) -> None:
    """A consumer continues even if one batch exceeds all its limits."""
    make_topic(calm.bootstrap, name)
    wanted = [bytes([number]) * 500_000 for number in range(3)]
    send_all(calm.bootstrap, name, wanted)
    conf = {"fetch.message.max.bytes": 1000, "fetch.max.bytes": 1000, "message.max.bytes": 1000}
    found = read(calm.bootstrap, name, 3, conf=conf)
    assert [message.value() for message in found] == wanted


def test_a_message_that_is_too_large_is_refused(calm: LocalCluster, name: str) -> None:
    make_topic(calm.bootstrap, name, configs={"max.message.bytes": "20000"})
    sent = Sent(calm.bootstrap, name, {"message.max.bytes": 3_000_000, "acks": "all"})
    sent.send(b"small")
    sent.settle()
    sent.send(b"x" * 30_000)
    sent.settle()
    sent.send(b"also small")
    sent.settle()
    assert [error.code() for error in sent.failed.values()] == [KafkaError.MSG_SIZE_TOO_LARGE]
    assert read_values(calm.bootstrap, name) == [b"small", b"also small"]
    default = make_topic(calm.bootstrap, f"{name}-default")
    sent = Sent(calm.bootstrap, default, {"message.max.bytes": 3_000_000})
    sent.send(b"x" * 2_000_000)
    sent.settle()
    assert [error.code() for error in sent.failed.values()] == [KafkaError.MSG_SIZE_TOO_LARGE]


@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_log_append_time(calm: LocalCluster, name: str, codec: str) -> None:
    configs = {"message.timestamp.type": "LogAppendTime"}
    make_topic(calm.bootstrap, name, configs=configs)
    before_ms = int(time.time() * 1000)
    values = [b"%d" % number for number in range(50)]
    conf = {"compression.type": codec, "linger.ms": 20}
    send_all(calm.bootstrap, name, values, conf=conf, timestamp=LONG_AGO_MS)
    after_ms = int(time.time() * 1000)
    for message in read(calm.bootstrap, name, 50):
        kind, timestamp = message.timestamp()
        assert kind == TIMESTAMP_LOG_APPEND_TIME
        assert before_ms - 1000 <= timestamp <= after_ms + 1000
    assert all(batch.crc_ok() for batch in batches(segment_bytes(calm, 1, name)))


def test_a_time_too_far_ahead_is_refused(calm: LocalCluster, name: str) -> None:
    make_topic(calm.bootstrap, name, configs={"message.timestamp.after.max.ms": "10000"})
    sent = Sent(calm.bootstrap, name)
    sent.send(b"from the future", timestamp=int(time.time() * 1000) + 3_600_000)
    sent.settle()
    (error,) = sent.failed.values()
    assert error.code() == 32  # INVALID_TIMESTAMP
    sent.send(b"from now")
    sent.settle()
    assert read_values(calm.bootstrap, name) == [b"from now"]


def test_reading_from_a_time(calm: LocalCluster, name: str) -> None:
    configs = {"segment.bytes": "5000", "index.interval.bytes": "500"}
    make_topic(calm.bootstrap, name, configs=configs)
    sent = Sent(calm.bootstrap, name, {"batch.num.messages": 7})
    for number in range(1000):
        sent.send(b"%d" % number, timestamp=LONG_AGO_MS + 10 * number)
    sent.settle()
    with consumer(calm.bootstrap) as client:
        for wanted_ms, offset in ((0, 0), (1, 1), (10, 1), (5004, 501), (9990, 999)):
            asked = TopicPartition(name, 0, LONG_AGO_MS + wanted_ms)
            (found,) = client.offsets_for_times([asked], timeout=PATIENCE_S)
            assert found.offset == offset, wanted_ms
        later = TopicPartition(name, 0, LONG_AGO_MS + 9991)
        (found,) = client.offsets_for_times([later], timeout=PATIENCE_S)
        assert found.offset == -1  # the end: nothing is that young
        client.assign([TopicPartition(name, 0, 501)])
        assert take(client, 1)[0].value() == b"501"
    with Cluster(calm.bootstrap, timeout_s=PATIENCE_S) as cluster:
        newest = list_offset(cluster, name, 0, MAX_TIMESTAMP)
        assert (newest.offset, newest.timestamp) == (999, LONG_AGO_MS + 9990)
        assert len(list(partition_dir(calm, 1, name).glob("*.log"))) > 1


def test_the_largest_time_need_not_be_last(calm: LocalCluster, name: str) -> None:
    make_topic(calm.bootstrap, name)
    with Cluster(calm.bootstrap, timeout_s=PATIENCE_S) as cluster:
        producer = Producer(cluster)
        for times in ([5, 9, 7], [8, 2], [9, 1]):
            records = [Record(None, b"x", LONG_AGO_MS + ms, ()) for ms in times]
            producer.append(name, 0, records)
        newest = list_offset(cluster, name, 0, MAX_TIMESTAMP)
        assert (newest.offset, newest.timestamp) == (1, LONG_AGO_MS + 9)


def test_reading_from_the_end_waits_for_new_records(calm: LocalCluster, name: str) -> None:
    make_topic(calm.bootstrap, name)
    send_all(calm.bootstrap, name, [b"old"] * 1)
    # A fetch would wait longer than the test: the record, not the end of the wait, ends it.
    longer_ms = int(2 * PATIENCE_S * 1000)
    conf = {"fetch.wait.max.ms": longer_ms, "socket.timeout.ms": 300_000}
    with consumer(calm.bootstrap, conf) as client:
        client.assign([TopicPartition(name, 0, 1)])
        assert client.consume(1, 0.3) == []
        send_all(calm.bootstrap, name, [b"new"])
        assert take(client, 1)[0].value() == b"new"


def test_a_consumer_gets_an_error_for_an_offset_out_of_range(calm: LocalCluster, name: str) -> None:
    make_topic(calm.bootstrap, name)
    send_all(calm.bootstrap, name, [b"one", b"two"])
    with consumer(calm.bootstrap) as client:
        client.assign([TopicPartition(name, 0, 17)])
        (message,) = eventually(lambda: client.consume(1, 1), "an error")
        error = message.error()
        assert error is not None
        assert error.code() == KafkaError._AUTO_OFFSET_RESET
    with consumer(calm.bootstrap, {"auto.offset.reset": "earliest"}) as client:
        client.assign([TopicPartition(name, 0, 17)])
        assert take(client, 1)[0].value() == b"one"


def test_our_reader_and_librdkafka_see_the_same(calm: LocalCluster, name: str) -> None:
    make_topic(calm.bootstrap, name, partitions=3)
    for partition in range(3):
        values = [b"%d/%d" % (partition, number) for number in range(2000)]
        send_all(calm.bootstrap, name, values, partition, {"compression.type": "lz4"})
        with Cluster(calm.bootstrap, timeout_s=PATIENCE_S) as cluster:
            ours = [r.value for r in Reader(cluster).read(name, partition, 0)]
            assert epoch_end(cluster, name, partition, 0) == (0, 2000)
        assert ours == values == read_values(calm.bootstrap, name, partition)
