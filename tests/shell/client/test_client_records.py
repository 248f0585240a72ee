"""Append and read: no duplicates, in order, and unknown outcomes are reported as unknown."""

from collections.abc import Iterator
from typing import Any

import pytest
from fake_broker import HANG_UP, PATIENCE_S, SILENCE, FakeBroker, fake_brokers, topic_id

from tidelog.core.record.compression import Codec
from tidelog.core.record.control import ControlType
from tidelog.core.record.encoder import Producer as Stamp
from tidelog.core.record.encoder import encode_batch, encode_marker
from tidelog.core.record.record import Record
from tidelog.core.record.record_batch import TRANSACTIONAL, CorruptRecord, parse
from tidelog.core.types import TopicPartition
from tidelog.shell.client import producer as producing
from tidelog.shell.client.client_errors import BrokerError, NothingMore, Unresolved
from tidelog.shell.client.cluster import Cluster
from tidelog.shell.client.consumer import Reader
from tidelog.shell.client.fetching import READ_COMMITTED, FetchFrom, fetch
from tidelog.shell.client.producer import Producer, init_producer_id, produce

PRODUCE = 0
FETCH = 1
INIT_PRODUCER_ID = 22
NOT_LEADER = 6
TIMED_OUT = 7
ORDERS = TopicPartition("orders", 0)


class OneLog:
    """A partition with producer state, as in a broker, in few lines."""

    def __init__(self, broker: FakeBroker) -> None:
        self.broker = broker
        self.batches: list[bytes] = []
        self.end = 0
        self.seen: dict[tuple[int, int, int], int] = {}
        self.producers = 100
        self.mishaps: list[Any] = []
        """What to answer instead, one for each request; None is nothing unusual."""
        self.aborted: list[dict[str, int]] = []
        broker.answers[PRODUCE] = self.on_produce
        broker.answers[INIT_PRODUCER_ID] = self.on_init
        broker.answers[FETCH] = self.on_fetch

    def on_init(self, _version: int, _request: object) -> dict[str, int]:
        self.producers += 1
        return {"error_code": 0, "producer_id": self.producers, "producer_epoch": 0}

    def on_produce(self, version: int, request: dict[str, Any]) -> Any:
        (topic,) = request["topic_data"]
        assert topic.get("name", "orders") == "orders"
        assert topic.get("topic_id", topic_id("orders")) == topic_id("orders")
        data = bytes(topic["partition_data"][0]["records"])
        mishap = self.mishaps.pop(0) if self.mishaps else None
        if isinstance(mishap, int):
            return self.answer(version, mishap)
        offset = self.write(data)
        if mishap is not None:  # after the batch was written
            return mishap[1] if mishap[0] == "answer" else self.answer(version, mishap[1])
        return SILENCE if request["acks"] == 0 else self.answer(version, 0, offset)

    def write(self, data: bytes) -> int:
        batch = parse(bytearray(data))
        key = (batch.producer_id, batch.producer_epoch, batch.base_sequence)
        if batch.has_producer and key in self.seen:
            return self.seen[key]
        offset = self.seen[key] = self.end
        batch.assign(offset, 7)
        self.batches.append(bytes(batch.view()))
        self.end = batch.next_offset
        return offset

    def answer(self, _version: int, error: int, offset: int = -1) -> dict[str, Any]:
        found = {"index": 0, "error_code": error, "base_offset": offset, "error_message": "why"}
        topic = {"name": "orders", "topic_id": topic_id("orders"), "partition_responses": [found]}
        return {"responses": [topic]}

    def on_fetch(self, _version: int, request: dict[str, Any]) -> dict[str, Any]:
        (topic,) = request["topics"]
        (place,) = topic["partitions"]
        offset = place["fetch_offset"]
        data = b"".join(b for b in self.batches if parse(bytearray(b)).last_offset >= offset)
        found = {
            "partition_index": 0,
            "error_code": 1 if offset > self.end else 0,
            "high_watermark": self.end,
            "last_stable_offset": self.end,
            "log_start_offset": 0,
            "aborted_transactions": self.aborted,
            "records": data[: place["partition_max_bytes"]],
        }
        names = {"topic": "orders", "topic_id": topic_id("orders")}
        return {"error_code": 0, "responses": [{**names, "partitions": [found]}]}

    def stamps(self) -> list[tuple[int, int]]:
        parsed = [parse(batch) for batch in self.batches]
        return [(batch.producer_id, batch.base_sequence) for batch in parsed]


@pytest.fixture
def log() -> Iterator[OneLog]:
    with fake_brokers(1) as (broker,):
        broker.tell_metadata([broker], {"orders": [1]})
        yield OneLog(broker)


@pytest.fixture
def cluster(log: OneLog) -> Iterator[Cluster]:
    with Cluster(log.broker.address, timeout_s=PATIENCE_S) as one:
        yield one


def give_up_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait less than usual for the response to a Produce request."""
    monkeypatch.setattr(producing, "REQUEST_TIMEOUT_MS", 200)


def records(*values: str) -> list[Record]:
    return [Record(None, value.encode(), 1) for value in values]


def values(cluster: Cluster, **reader: int) -> list[str]:
    found = Reader(cluster, **reader).read("orders", 0, 0)
    return [(record.value or b"").decode() for record in found]


# -- appending -------------------------------------------------------------------------------


def test_batches_are_numbered_record_by_record(log: OneLog, cluster: Cluster) -> None:
    producer = Producer(cluster)
    assert producer.append("orders", 0, records("a", "b")) == 0
    assert producer.append("orders", 0, records("c")) == 2
    assert log.stamps() == [(101, 0), (101, 2)]
    assert values(cluster) == ["a", "b", "c"]
    assert log.broker.versions(PRODUCE) == [13, 13]


@pytest.mark.parametrize(
    "mishap",
    [
        NOT_LEADER,
        ("code", NOT_LEADER),
        ("code", TIMED_OUT),
        ("answer", HANG_UP),
        ("answer", SILENCE),
        ("answer", {"responses": []}),
    ],
    ids=["refused", "deposed", "timed out", "hung up", "silent", "partition missing"],
)
def test_a_batch_is_in_the_log_once_even_if_the_response_is_lost(
    log: OneLog, cluster: Cluster, mishap: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    if mishap == ("answer", SILENCE):
        give_up_soon(monkeypatch)
    log.mishaps = [None, mishap, mishap]
    producer = Producer(cluster)
    offsets = [producer.append("orders", 0, records(name)) for name in "abc"]
    assert offsets == [0, 1, 2]
    assert values(cluster) == ["a", "b", "c"]


def test_an_append_that_times_out_has_an_unknown_outcome(log: OneLog, cluster: Cluster) -> None:
    producer = Producer(cluster, timeout_s=0.4)
    log.mishaps = [("code", TIMED_OUT)] * 50
    with pytest.raises(Unresolved, match="the batch may be in the log"):
        producer.append("orders", 0, records("a"))
    log.mishaps = []
    producer.append("orders", 0, records("b"))
    assert log.stamps() == [(101, 0), (102, 0)], "another producer, or `b` were taken for `a`"


def test_a_permanent_error_means_that_nothing_was_written(log: OneLog, cluster: Cluster) -> None:
    producer = Producer(cluster)
    log.mishaps = [10]
    with pytest.raises(BrokerError, match=r"append to orders-0 failed: MESSAGE_TOO_LARGE \(why\)"):
        producer.append("orders", 0, records("a"))
    producer.append("orders", 0, records("b"))
    assert log.stamps() == [(102, 0)], "numbers that were given once are given to nobody else"


def test_an_error_after_silence_does_not_mean_that_nothing_was_written(
    log: OneLog, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    give_up_soon(monkeypatch)
    log.mishaps = [("answer", SILENCE), 45]  # OUT_OF_ORDER_SEQUENCE_NUMBER
    with pytest.raises(Unresolved, match="OUT_OF_ORDER_SEQUENCE_NUMBER"):
        Producer(cluster).append("orders", 0, records("a"))


def test_an_append_survives_a_short_outage_of_the_cluster(log: OneLog) -> None:
    """Metadata requests fail too; the batch is still written once."""
    with fake_brokers(1) as (other,):
        other.tell_metadata([log.broker], {"orders": [1]})
        moments = [True]
        tell = other.answers[3]

        def answer(version: int, request: dict[str, Any]) -> Any:
            return (
                HANG_UP
                if len(log.batches) == 1 and moments and moments.pop()
                else tell(version, request)
            )

        other.answers[3] = answer
        other.answers[INIT_PRODUCER_ID] = log.on_init
        with Cluster(other.address, timeout_s=PATIENCE_S) as cluster:
            producer = Producer(cluster)
            log.mishaps = [("answer", HANG_UP)]
            assert producer.append("orders", 0, records("a")) == 0
            assert producer.append("orders", 0, records("b")) == 1
    assert log.stamps() == [(101, 0), (101, 1)]


def test_without_idempotence_nothing_is_sent_twice_that_may_be_written(
    log: OneLog, cluster: Cluster
) -> None:
    producer = Producer(cluster, idempotent=False)
    log.mishaps = [19, None]  # NOT_ENOUGH_REPLICAS comes before the write
    producer.append("orders", 0, records("a"))
    log.mishaps = [("code", NOT_LEADER)]
    with pytest.raises(Unresolved):
        producer.append("orders", 0, records("b"))
    log.mishaps = [("answer", HANG_UP)]
    with pytest.raises(Unresolved):
        producer.append("orders", 0, records("c"))
    assert log.stamps() == [(-1, -1)] * 3
    assert log.producers == 100


def test_acks_0_waits_for_nothing(log: OneLog, cluster: Cluster) -> None:
    producer = Producer(cluster, acks=0, idempotent=False)
    assert producer.append("orders", 0, records("a")) == -1
    assert producer.append("orders", 0, records("b")) == -1
    assert values(cluster) == ["a", "b"]
    with pytest.raises(ValueError, match="acks=all"):
        Producer(cluster, acks=1)


def test_a_broker_without_topic_ids_gets_topic_names(log: OneLog) -> None:
    log.broker.tell_metadata([log.broker], {"orders": [1]}, ids=False)
    with Cluster(log.broker.address) as cluster:
        Producer(cluster).append("orders", 0, records("a"))
        assert values(cluster) == ["a"]
    assert (log.broker.versions(PRODUCE), log.broker.versions(FETCH)[0]) == ([12], 12)


def test_append_and_read_with_the_oldest_versions(log: OneLog, cluster: Cluster) -> None:
    """The versions of Kafka 2.1 and older."""
    log.broker.offered[PRODUCE] = (0, 3)
    log.broker.offered[FETCH] = (0, 4)
    Producer(cluster).append("orders", 0, records("a"))
    assert values(cluster) == ["a"]


def test_ready_made_batches(log: OneLog, cluster: Cluster) -> None:
    batch = encode_batch(records("a"))
    topic = cluster.topic("orders")
    found = produce(cluster.broker(1), topic, 0, batch)
    assert (found.error, found.base_offset) == (0, 0)
    log.mishaps = [TIMED_OUT]
    assert produce(cluster.broker(1), topic, 0, batch).error == TIMED_OUT
    assert init_producer_id(cluster) == (101, 0)


@pytest.mark.parametrize("codec", list(Codec))
def test_codecs(log: OneLog, cluster: Cluster, codec: Codec) -> None:
    Producer(cluster, codec=codec).append("orders", 0, records("a" * 500, "b"))
    assert parse(log.batches[0]).codec == codec
    assert values(cluster) == ["a" * 500, "b"]


# -- reading ---------------------------------------------------------------------------------


def test_reading_begins_inside_a_batch(log: OneLog, cluster: Cluster) -> None:
    log.write(bytes(encode_batch(records("a", "b", "c"))))
    found = Reader(cluster).fetch("orders", 0, 1)
    assert [record.value for record in found.records] == [b"b", b"c"]
    assert found[1:] == (3, 3, 3, 0)
    assert [record.value for record in Reader(cluster).read("orders", 0, 1, 2)] == [b"b"]


def test_reading_continues_after_an_incomplete_batch(log: OneLog, cluster: Cluster) -> None:
    names = [str(number) for number in range(20)]
    for each in names:
        log.write(bytes(encode_batch(records(each))))
    size = len(log.batches[0])
    assert values(cluster, max_bytes=3 * size + 5) == names
    assert len(log.broker.requests(FETCH)) == 7


def test_reading_to_an_end_that_is_not_reached_times_out(log: OneLog, cluster: Cluster) -> None:
    log.write(bytes(encode_batch(records("a"))))
    found = Reader(cluster).read("orders", 0, 0, 5)
    assert next(found).value == b"a"
    cluster.timeout_s = 1
    with pytest.raises(NothingMore, match="ends at offset 1, before the requested end 5"):
        next(found)


def test_control_records_are_not_returned(log: OneLog, cluster: Cluster) -> None:
    stamp = Stamp(9, 0, 0)
    log.write(bytes(encode_batch(records("x"), attributes=TRANSACTIONAL, producer=stamp)))
    log.write(bytes(encode_marker(ControlType.ABORT, stamp, 0, 1)))
    log.write(bytes(encode_batch(records("y"))))
    log.aborted = [{"producer_id": 9, "first_offset": 0}]
    assert values(cluster) == ["x", "y"]
    assert values(cluster, isolation=READ_COMMITTED) == ["y"]
    assert log.broker.requests(FETCH)[-1]["isolation_level"] == 1


def test_a_batch_with_a_wrong_checksum_raises_corrupt_record(log: OneLog, cluster: Cluster) -> None:
    log.write(bytes(encode_batch(records("abc"))))
    log.batches[0] = log.batches[0][:-2] + b"\xff" + log.batches[0][-1:]
    with pytest.raises(CorruptRecord, match="checksum of the batch at offset 0 differs"):
        Reader(cluster).fetch("orders", 0, 0)


def test_an_offset_beyond_the_end(log: OneLog, cluster: Cluster) -> None:
    with pytest.raises(
        BrokerError, match="fetch of orders-0 at offset 5 failed: OFFSET_OUT_OF_RANGE"
    ):
        Reader(cluster).fetch("orders", 0, 5)


def test_raw_fetch(log: OneLog, cluster: Cluster) -> None:
    log.write(bytes(encode_batch(records("a"))))
    place = FetchFrom(0, current_leader_epoch=7, max_bytes=1000)
    found = fetch(cluster.broker(1), cluster.metadata.topics, {ORDERS: place})
    assert found[ORDERS][:4] == (0, 1, 1, 0)
    assert bytes(found[ORDERS].records) == log.batches[0]
    asked = log.broker.requests(FETCH)[0]
    assert asked["topics"][0]["partitions"][0]["current_leader_epoch"] == 7
    assert (asked["session_id"], asked["session_epoch"]) == (0, -1)
