"""Reading many partitions at once, from brokers that hang, disconnect, refuse or are wrong."""

import os
import resource
import time
from collections.abc import Iterator
from typing import Any

import pytest
from fake_broker import HANG_UP, SILENCE, FakeBroker, fake_brokers, topic_id

from tidelog.core.record.compression import Codec
from tidelog.core.record.control import ControlType
from tidelog.core.record.encoder import Producer as Stamp
from tidelog.core.record.encoder import encode_batch, encode_marker
from tidelog.core.record.record import Record
from tidelog.core.record.record_batch import TRANSACTIONAL, parse
from tidelog.core.types import TopicPartition
from tidelog.shell.client import consumer as consuming
from tidelog.shell.client.client_errors import BrokerError, ClientError, NoSuchTopic
from tidelog.shell.client.cluster import Cluster
from tidelog.shell.client.consumer import Consumer, Span
from tidelog.shell.client.fetching import READ_COMMITTED, READ_UNCOMMITTED
from tidelog.shell.client.offsets import LATEST, list_all_offsets
from tidelog.shell.client.retry import Retry

FETCH = 1
LIST_OFFSETS = 2
EPOCHS = 23
NOT_LEADER, OUT_OF_RANGE, UNAUTHORIZED = 6, 1, 29
ONE, TWO = TopicPartition("orders", 0), TopicPartition("orders", 1)
PATIENCE_S = 120


class Log:
    """Batches by partition, served as by a leader; errors in `trouble` are returned first."""

    def __init__(self, broker: FakeBroker) -> None:
        self.broker = broker
        self.batches: dict[int, list[bytes]] = {0: [], 1: []}
        self.ends = {0: 0, 1: 0}
        self.starts = {0: 0, 1: 0}
        self.aborted: list[dict[str, int]] = []
        self.trouble: list[Any] = []
        self.epoch_end = (7, 1000)
        broker.answers[FETCH] = self.on_fetch
        broker.answers[LIST_OFFSETS] = self.on_list_offsets
        broker.answers[EPOCHS] = self.on_epochs

    def append(self, partition: int, data: bytearray, epoch: int = 7) -> None:
        batch = parse(data)
        batch.assign(self.ends[partition], epoch)
        self.ends[partition] = batch.next_offset
        self.batches[partition].append(bytes(batch.view()))

    def write(self, partition: int, *values: str, **more: Any) -> None:
        records = [Record(None, value.encode(), 1) for value in values]
        self.append(partition, encode_batch(records, **more))

    def on_fetch(self, _version: int, request: dict[str, Any]) -> Any:
        if self.trouble and not isinstance(self.trouble[0], int):
            return self.trouble.pop(0)
        error = self.trouble.pop(0) if self.trouble else 0
        (topic,) = request["topics"]
        found = [self.partition(each, error) for each in topic["partitions"]]
        if not any(each["records"] or each["error_code"] for each in found):
            time.sleep(request["max_wait_ms"] / 1000)
        return {
            "responses": [{"topic": "orders", "topic_id": topic_id("orders"), "partitions": found}]
        }

    def partition(self, asked: dict[str, Any], error: int) -> dict[str, Any]:
        number, offset = asked["partition"], asked["fetch_offset"]
        if not self.starts[number] <= offset <= self.ends[number]:
            error = error or OUT_OF_RANGE
        data = b"".join(
            batch for batch in self.batches[number] if parse(batch).next_offset > offset
        )
        return {
            "partition_index": number,
            "error_code": error,
            "high_watermark": self.ends[number],
            "last_stable_offset": self.ends[number],
            "log_start_offset": self.starts[number],
            "aborted_transactions": self.aborted,
            "records": b"" if error else data,
        }

    def on_list_offsets(self, _version: int, request: dict[str, Any]) -> dict[str, Any]:
        (topic,) = request["topics"]
        (asked,) = topic["partitions"]
        number = asked["partition_index"]
        offset = self.starts[number] if asked["timestamp"] == -2 else self.ends[number]
        found = {"partition_index": number, "error_code": 0, "timestamp": -1, "offset": offset}
        return {"topics": [{"name": topic["name"], "partitions": [found]}]}

    def on_epochs(self, _version: int, request: dict[str, Any]) -> dict[str, Any]:
        (topic,) = request["topics"]
        (asked,) = topic["partitions"]
        epoch, end = self.epoch_end
        found = {
            "partition": asked["partition"],
            "error_code": 0,
            "leader_epoch": epoch,
            "end_offset": end,
        }
        return {"topics": [{"topic": topic["topic"], "partitions": [found]}]}


class Reading:
    """Two brokers, a topic with two partitions that the first broker leads, and a consumer."""

    def __init__(self, brokers: list[FakeBroker]) -> None:
        self.brokers = brokers
        self.leaders: dict[str, list[int]] = {"orders": [1, 1]}
        for broker in brokers:
            broker.tell_metadata(brokers, self.leaders)
        self.logs = [Log(broker) for broker in brokers]
        self.log = self.logs[0]
        bootstrap = [broker.address for broker in brokers]
        self.cluster = Cluster(bootstrap, timeout_s=PATIENCE_S)
        self.told: list[str] = []
        self.consumer()

    def consumer(self, isolation: int = READ_UNCOMMITTED, **more: Any) -> Consumer:
        self.reader = Consumer(self.cluster, isolation, self.told.append, max_wait_ms=20, **more)
        return self.reader

    def values(self, consumer: Consumer, *, until: int | None = None) -> list[str]:
        """Return the values until the consumer is done or the count is reached."""
        found: list[str] = []
        deadline = time.monotonic() + PATIENCE_S
        while not consumer.done or until is not None:
            assert time.monotonic() < deadline, (found, self.told)
            for chunk in consumer.poll(0.2):
                found += [(record.value or b"").decode() for record in chunk.records]
            if until is not None and len(found) >= until:
                break
        return found


@pytest.fixture
def reading() -> Iterator[Reading]:
    with fake_brokers(2) as brokers:
        one = Reading(brokers)
        try:
            yield one
        finally:
            one.reader.close()
            one.cluster.close()


@pytest.fixture
def many_open_files() -> Iterator[None]:
    """Open files until the next descriptor is above 1,024."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < 2048:
        pytest.skip("the hard limit of open files is too low")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 2048), hard))
    opened = [os.open(os.devnull, os.O_RDONLY) for _ in range(1100)]
    try:
        yield
    finally:
        for each in opened:
            os.close(each)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.usefixtures("many_open_files")
def test_reads_in_a_process_with_more_than_1024_open_files(reading: Reading) -> None:
    reading.log.write(0, "a", "b")
    consumer = reading.consumer()
    consumer.add({ONE: Span(0, 2)})
    assert reading.values(consumer) == ["a", "b"]


def test_exactly_the_records_of_a_span_are_read(reading: Reading) -> None:
    reading.log.write(0, "a", "b", "c", "d", attributes=Codec.ZSTD)
    reading.log.write(0, "e", "f")
    reading.log.write(1, "x", "y")
    consumer = reading.consumer()
    consumer.assign({ONE: Span(1, 5), TWO: Span(1, 2)})
    assert sorted(reading.values(consumer)) == ["b", "c", "d", "e", "y"]
    assert consumer.positions == {ONE: (6, 7), TWO: (2, 7)}
    assert reading.told == []


def test_a_broker_as_old_as_2_1(reading: Reading) -> None:
    for broker in reading.brokers:
        broker.offered = {3: (0, 7), FETCH: (0, 10), LIST_OFFSETS: (0, 4), EPOCHS: (0, 2)}
    reading.log.write(0, "a", "b")
    consumer = reading.consumer()
    consumer.assign({ONE: Span(0, 2)})
    assert reading.values(consumer) == ["a", "b"]
    assert set(reading.log.broker.versions(FETCH)) == {10}


def test_one_leader_does_not_wait_for_another(reading: Reading) -> None:
    reading.leaders["orders"] = [1, 2]
    reading.logs[1].write(1, "x")
    reading.logs[0].trouble = [SILENCE]
    consumer = reading.consumer()
    consumer.assign({ONE: Span(0), TWO: Span(0)})
    began = time.monotonic()
    assert reading.values(consumer, until=1) == ["x"]
    assert time.monotonic() - began < 45  # the silent one: two minutes


def test_a_request_is_retried_if_the_leader_disconnects(reading: Reading) -> None:
    reading.log.write(0, "a")
    reading.log.trouble = [HANG_UP, NOT_LEADER]
    consumer = reading.consumer()
    consumer.assign({ONE: Span(0, 1)})
    assert reading.values(consumer) == ["a"]
    (line,) = reading.told
    assert line.startswith("orders-0: can't reach broker 1: ")
    assert line.endswith("; retrying")


def test_a_leader_that_is_silent_is_given_up(reading: Reading) -> None:
    reading.log.write(0, "a")
    reading.log.trouble = [SILENCE]
    reading.cluster.timeout_s = 2
    consumer = reading.consumer()
    consumer.assign({ONE: Span(0, 1)})
    assert reading.values(consumer) == ["a"]
    assert "did not answer Fetch" in reading.told[0]


def test_reading_fails_when_patience_ends(reading: Reading) -> None:
    reading.leaders["orders"] = [-1, 1]
    consumer = reading.consumer(patience_s=0.3)
    consumer.assign({ONE: Span(0, 1)})
    with pytest.raises(BrokerError, match="orders-0 has no leader"):
        reading.values(consumer)
    assert len(reading.told) == 1


def test_the_offsets_of_a_partition_without_a_leader_are_awaited(reading: Reading) -> None:
    reading.leaders["orders"] = [-1, 1]
    reading.log.write(0, "a", "b")

    class Election(Retry):
        def wait(self, error: Exception) -> None:
            reading.leaders["orders"] = [1, 1]
            super().wait(error)

    found = list_all_offsets(reading.cluster, {ONE: LATEST}, Election(PATIENCE_S))
    assert found[ONE].offset == 2
    reading.leaders["orders"] = [-1, 1]
    reading.cluster.refresh(["orders"])
    with pytest.raises(BrokerError, match="orders-0 has no leader"):
        list_all_offsets(reading.cluster, {ONE: LATEST}, Retry(0))


def test_a_partition_without_a_leader_does_not_delay_others(reading: Reading) -> None:
    reading.leaders["orders"] = [-1, 1]
    reading.log.write(1, "x")
    consumer = reading.consumer()
    consumer.assign({ONE: Span(0), TWO: Span(0)})
    assert reading.values(consumer, until=1) == ["x"]


def test_an_error_that_is_not_retriable_is_raised(reading: Reading) -> None:
    reading.log.trouble = [UNAUTHORIZED]
    consumer = reading.consumer()
    consumer.assign({ONE: Span(0)})
    with pytest.raises(BrokerError, match="fetch of orders-0 at offset 0"):
        reading.values(consumer, until=1)


def move_leader(reading: Reading, epoch: int) -> None:
    """Make the second broker the leader, in another epoch."""
    reading.leaders["orders"] = [2, 2]
    for broker in reading.brokers:
        answer = broker.answers[3]

        def newer(version: int, request: Any, answer: Any = answer) -> Any:
            found = answer(version, request)
            for topic in found["topics"]:
                for partition in topic["partitions"]:
                    partition["leader_epoch"] = epoch
            return found

        broker.answers[3] = newer
    reading.log.trouble = [NOT_LEADER] * 5


def test_a_new_leader_that_has_it_all_is_followed(reading: Reading) -> None:
    for log in reading.logs:
        log.write(0, "a", "b")
    consumer = reading.consumer()
    consumer.assign({ONE: Span(0)})
    assert reading.values(consumer, until=2) == ["a", "b"]
    reading.logs[1].write(0, "c")
    reading.logs[1].epoch_end = (7, 2)
    move_leader(reading, 8)
    assert reading.values(consumer, until=1) == ["c"]
    assert reading.told == ["orders-0 is now led by broker 2; continuing at offset 2"]


def test_truncated_records_are_reported_and_read_again(reading: Reading) -> None:
    reading.logs[0].write(0, "a", "b", "c")
    reading.logs[1].write(0, "a")
    reading.logs[1].write(0, "other")
    consumer = reading.consumer()
    consumer.assign({ONE: Span(0)})
    assert reading.values(consumer, until=3) == ["a", "b", "c"]
    reading.logs[1].epoch_end = (7, 1)
    move_leader(reading, 8)
    assert reading.values(consumer, until=1) == ["other"]
    assert reading.told[0] == (
        "orders-0 was truncated: offsets 1 to 2, which were read, are no longer in the log;"
        " continuing at offset 1"
    )


def test_an_end_that_was_truncated_is_not_waited_for(reading: Reading) -> None:
    reading.logs[0].write(0, "a", "b", "c")
    reading.logs[1].write(0, "a")
    consumer = reading.consumer()
    consumer.assign({ONE: Span(0, 10)})
    assert reading.values(consumer, until=3) == ["a", "b", "c"]
    reading.logs[1].epoch_end = (7, 1)
    move_leader(reading, 8)
    assert reading.values(consumer) == []
    assert consumer.positions[ONE][0] == 1


@pytest.mark.parametrize(
    ("start", "told"),
    [
        (0, "the log of orders-0 begins at offset 2, after offset 0; continuing at offset 2"),
        (9, "the log of orders-0 ends at offset 3, before 9; continuing at offset 3"),
    ],
)
def test_offsets_out_of_range_are_reported(reading: Reading, start: int, told: str) -> None:
    reading.log.write(0, "a", "b")
    reading.log.write(0, "c")
    reading.log.starts[0] = 2
    consumer = reading.consumer()
    consumer.assign({ONE: Span(start, 12)})
    assert reading.values(consumer) == (["c"] if start == 0 else [])
    assert reading.told == [told]


def test_a_topic_that_is_deleted_is_left_out(
    reading: Reading, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consuming, "GONE_S", 0.3)
    reading.log.write(0, "a")
    consumer = reading.consumer()
    consumer.assign({ONE: Span(0)})
    assert reading.values(consumer, until=1) == ["a"]
    del reading.leaders["orders"]
    reading.log.trouble = [100] * 50
    with pytest.raises(NoSuchTopic):
        reading.values(consumer, until=1)


def test_a_recreated_topic_is_read_from_its_beginning(reading: Reading) -> None:
    reading.log.write(0, "a", "b")
    consumer = reading.consumer()
    consumer.assign({ONE: Span(0)})
    assert reading.values(consumer, until=2) == ["a", "b"]
    for broker in reading.brokers:
        answer = broker.answers[3]

        def anew(version: int, request: Any, answer: Any = answer) -> Any:
            found = answer(version, request)
            for topic in found["topics"]:
                topic["topic_id"] = b"n" * 16
                topic["partitions"][0]["leader_epoch"] = 0
            return found

        broker.answers[3] = anew
    log = reading.log
    log.batches[0], log.ends[0] = [], 0
    log.write(0, "new")

    def by_new_id(version: int, request: Any) -> Any:
        if request["topics"][0]["topic_id"] != b"n" * 16:
            return {"responses": [_refused(request, 100)]}
        found = log.on_fetch(version, request)
        found["responses"][0]["topic_id"] = b"n" * 16
        return found

    log.broker.answers[FETCH] = by_new_id
    assert reading.values(consumer, until=1) == ["new"]
    assert "topic orders was deleted and recreated" in reading.told[-1]


def _refused(request: dict[str, Any], error: int) -> dict[str, Any]:
    (topic,) = request["topics"]
    partitions = [
        {"partition_index": each["partition"], "error_code": error, "records": b""}
        for each in topic["partitions"]
    ]
    return {"topic_id": topic["topic_id"], "partitions": partitions}


def test_aborted_transactions_are_left_out_and_passed_over(reading: Reading) -> None:
    log = reading.log
    log.write(0, "plain")
    log.write(0, "aborted", attributes=TRANSACTIONAL, producer=Stamp(9, 0, 0))
    log.append(0, encode_marker(ControlType.ABORT, Stamp(9, 0), 0, 1))
    log.write(0, "committed", attributes=TRANSACTIONAL, producer=Stamp(8, 0, 0))
    log.append(0, encode_marker(ControlType.COMMIT, Stamp(8, 0), 0, 1))
    log.aborted = [{"producer_id": 9, "first_offset": 1}]
    consumer = reading.consumer(READ_COMMITTED)
    consumer.assign({ONE: Span(0, 5)})
    assert reading.values(consumer) == ["plain", "committed"]
    assert consumer.positions[ONE][0] == 5
    consumer.close()
    log.aborted = []
    everything = reading.consumer()
    everything.assign({ONE: Span(0, 5)})
    assert reading.values(everything) == ["plain", "aborted", "committed"]


def test_a_damaged_batch_is_named(reading: Reading) -> None:
    reading.log.write(0, "a")
    reading.log.write(0, "b")
    data = bytearray(reading.log.batches[0][1])
    data[-3] ^= 1
    reading.log.batches[0][1] = bytes(data)
    consumer = reading.consumer()
    consumer.assign({ONE: Span(0)})
    with pytest.raises(ClientError, match="orders-0 is damaged at offset 1: checksum"):
        reading.values(consumer, until=2)
