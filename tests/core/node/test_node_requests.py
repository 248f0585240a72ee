"""Requests of clients to a broker."""

from typing import Any

import pytest
from node_cluster import ORDERS, Cluster, fetch, produce

from tidelog.core.errors import ErrorCode
from tidelog.core.node.messages import (
    EARLIEST,
    LATEST,
    MAX_TIMESTAMP,
    DeleteRecords,
    DeleteRecordsPartition,
    EpochPartition,
    Fetch,
    FetchPartition,
    FetchResponse,
    ListOffsets,
    ListOffsetsPartition,
    OffsetForLeaderEpoch,
    Produce,
    ProducePartition,
)
from tidelog.core.node.serving import fetch as serving_fetch
from tidelog.core.record.decoder import decode
from tidelog.core.record.encoder import Producer, encode_batch, encode_value
from tidelog.core.record.record import Record
from tidelog.core.record.record_batch import TRANSACTIONAL, parse
from tidelog.core.types import EpochEnd, TopicPartition

NOWHERE = TopicPartition("nowhere", 0)
GONE_ID = b"x" * 16


@pytest.fixture
def cluster() -> Cluster:
    """One broker, so that every produce is committed at once."""
    cluster = Cluster(brokers=(1,))
    cluster.start()
    cluster.create_topic(replicas=(1,))
    return cluster


def send(cluster: Cluster, records: bytearray, acks: int = -1, **settings: Any) -> Any:
    request = Produce(acks, 1000, [ProducePartition(ORDERS, records, **settings)])
    return cluster.call(1, request).partitions[0]


# -- produce -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("records", "acks", "settings", "error"),
    [
        (encode_value(b"x"), 2, {}, ErrorCode.INVALID_REQUIRED_ACKS),
        (bytearray(b"short"), -1, {}, ErrorCode.INVALID_RECORD),
        (encode_value(b"x" * 2_000_000), -1, {}, ErrorCode.MESSAGE_TOO_LARGE),
        (encode_value(b"x"), -1, {"topic_id": GONE_ID}, ErrorCode.UNKNOWN_TOPIC_ID),
        (encode_value(b"x"), -1, {"topic_id": b"t" * 16}, ErrorCode.NONE),
    ],
    ids=["acks", "no batch", "too large", "another topic id", "right topic id"],
)
def test_produce_is_checked(
    cluster: Cluster, records: bytearray, acks: int, settings: Any, error: ErrorCode
) -> None:
    assert send(cluster, bytearray(records), acks, **settings).error is error


def test_a_batch_larger_than_a_segment_is_refused_before_it_counts() -> None:
    cluster = Cluster(brokers=(1,))
    cluster.start()
    cluster.create_topic(replicas=(1,), segment_bytes="500")
    assert send(cluster, encode_value(b"x" * 600)).error is ErrorCode.RECORD_LIST_TOO_LARGE
    assert cluster.replica(1).partition.log_end_offset == 0


def test_a_transactional_batch_without_a_transactional_id_is_rejected(cluster: Cluster) -> None:
    records = [Record(None, b"x", 0, ())]
    batch = encode_batch(records, attributes=TRANSACTIONAL, producer=Producer(7, 0, 0))
    assert send(cluster, batch).error is ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert cluster.replica(1).partition.log_end_offset == 0


def test_an_empty_produce_is_answered(cluster: Cluster) -> None:
    assert cluster.call(1, Produce(-1, 1000, [])).partitions == []


def test_acks_0_is_answered_only_by_closing_the_connection(cluster: Cluster) -> None:
    number = cluster.ask(1, produce(b"one", acks=0))
    cluster.run(10)
    assert number not in cluster.answers
    assert cluster.closed == []
    assert cluster.consume(1) == [b"one"]
    request = produce(b"two", acks=0)
    request.partitions[0].topic_partition = NOWHERE
    cluster.ask(1, request)
    assert cluster.closed == ["client"]


def test_retry_of_a_committed_batch_gets_the_first_offset(cluster: Cluster) -> None:
    records = encode_value(b"one", producer=Producer(7, 0, 0))
    first = send(cluster, bytearray(records))
    assert (first.error, first.base_offset) == (ErrorCode.NONE, 0)
    again = send(cluster, bytearray(records))
    assert (again.error, again.base_offset) == (ErrorCode.NONE, 0)
    assert cluster.consume(1) == [b"one"]


def test_log_append_time_is_stamped_and_returned() -> None:
    cluster = Cluster(brokers=(1,))
    cluster.start()
    cluster.create_topic(
        replicas=(1,),
        message_timestamp_type="LogAppendTime",
        max_message_bytes="1000",
        message_timestamp_before_max_ms="10",
        message_timestamp_after_max_ms="10",
        cleanup_policy="compact",
    )
    cluster.run(500)
    answer = send(cluster, encode_batch([Record(b"key", b"one", timestamp=3)]))
    assert answer.log_append_time_ms == cluster.now_ms
    log = cluster.replica(1).log
    batch = parse(log.read_bytes(log.read(0, 1000)))
    assert (batch.max_timestamp, batch.crc_ok()) == (cluster.now_ms, True)
    assert not log.config.cleanup_delete


def test_a_retry_gets_the_append_time_of_the_first_attempt() -> None:
    cluster = Cluster(brokers=(1,))
    cluster.start()
    cluster.create_topic(replicas=(1,), message_timestamp_type="LogAppendTime")
    records = encode_value(b"one", producer=Producer(7, 0, 0))
    first = send(cluster, bytearray(records))
    assert first.log_append_time_ms == cluster.now_ms
    cluster.run(500)
    assert send(cluster, bytearray(records)) == first


# -- fetch ---------------------------------------------------------------------------------


def test_fetch_errors_per_partition(cluster: Cluster) -> None:
    request = Fetch(
        None,
        None,
        0,
        1,
        1000,
        [
            FetchPartition(NOWHERE, None, 0, 1000),
            FetchPartition(ORDERS, GONE_ID, 0, 1000),
            FetchPartition(ORDERS._replace(partition=7), None, 0, 1000),
        ],
    )
    # Sessionless, a partition named twice would be one: so three requests.
    errors = []
    for partition in request.partitions:
        single = Fetch(None, None, 0, 1, 1000, [partition])
        errors.append(cluster.call(1, single).partitions[0].error)
    assert errors == [
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]


def test_fetch_beyond_the_end_is_out_of_range(cluster: Cluster) -> None:
    response: FetchResponse = cluster.call(1, fetch(5, max_wait_ms=1000))
    assert response.partitions[0].error is ErrorCode.OFFSET_OUT_OF_RANGE


def test_fetch_waits_for_min_bytes(cluster: Cluster) -> None:
    number = cluster.ask(1, fetch(0, max_wait_ms=5000, min_bytes=100))
    cluster.produce(1, b"one")
    assert number not in cluster.answers
    cluster.produce(1, b"two")
    part = cluster.answers[number].partitions[0]
    assert len(part.records) >= 100


def test_fetch_of_a_closed_segment_does_not_wait_for_min_bytes() -> None:
    """A closed segment gets no more records, so a reader at its end would wait for nothing."""
    cluster = Cluster(brokers=(1,))
    cluster.start()
    cluster.create_topic(replicas=(1,), segment_bytes="100")
    cluster.produce(1, b"one", b"two", b"three")
    number = cluster.ask(1, fetch(1, max_wait_ms=5000, min_bytes=10_000))
    records = cluster.answers[number].partitions[0].records
    assert [record.value for record in decode(parse(records))] == [b"two"]
    number = cluster.ask(1, fetch(2, max_wait_ms=5000, min_bytes=10_000))
    assert number not in cluster.answers, "the last segment may get more"


def test_records_that_do_not_fit_count_for_min_bytes(cluster: Cluster) -> None:
    """The second batch does not fit into the response, and waiting would not change that."""
    cluster.produce(1, b"x" * 300, b"y" * 300)
    asked = FetchPartition(ORDERS, None, 0, 500)
    number = cluster.ask(1, Fetch(None, None, 5000, 500, 10_000, [asked]))
    assert 300 < len(cluster.answers[number].partitions[0].records) < 500
    number = cluster.ask(1, Fetch(None, None, 5000, 501, 10_000, [asked]))
    assert number not in cluster.answers, "Kafka, too, waits if all it may take is too little"
    last = FetchPartition(ORDERS, None, 1, 500)
    number = cluster.ask(1, Fetch(None, None, 5000, 500, 10_000, [last]))
    assert number not in cluster.answers
    cluster.produce(1, b"z" * 300)
    assert number in cluster.answers


def test_response_stays_below_max_bytes_except_for_its_first_batch() -> None:
    cluster = Cluster(brokers=(1,))
    cluster.start()
    cluster.create_topic(replicas=(1,))
    cluster.create_topic("other", replicas=(1,), topic_id=b"o" * 16)
    other = TopicPartition("other", 0)
    for name in (ORDERS, other):
        request = Produce(1, 1000, [ProducePartition(name, encode_value(b"x" * 300))])
        cluster.call(1, request)
    asked = [FetchPartition(ORDERS, None, 0, 10), FetchPartition(other, None, 0, 1000)]
    response = cluster.call(1, Fetch(None, None, 0, 1, 100, asked))
    assert [part.records is not None for part in response.partitions] == [True, False]
    response = cluster.call(1, Fetch(None, None, 0, 1, 10_000, asked))
    assert [part.records is not None for part in response.partitions] == [True, True]


def test_a_consumers_session_gets_only_changes(cluster: Cluster) -> None:
    first = cluster.call(1, fetch(0, session_epoch=0))
    assert first.session_id
    assert len(first.partitions) == 1
    quiet = cluster.call(1, Fetch(None, None, 0, 1, 1000, [], first.session_id, 1))
    assert quiet.partitions == []
    cluster.produce(1, b"one")
    news = cluster.call(1, Fetch(None, None, 0, 1, 1000, [], first.session_id, 2))
    assert news.partitions[0].high_watermark == 1
    wrong = cluster.call(1, Fetch(None, None, 0, 1, 1000, [], first.session_id, 9))
    assert wrong.error is ErrorCode.INVALID_FETCH_SESSION_EPOCH
    forgotten = Fetch(None, None, 0, 1, 1000, [], first.session_id, 3, [ORDERS])
    assert cluster.call(1, forgotten).partitions == []
    strange = cluster.call(1, Fetch(None, None, 0, 1, 1000, [], 99, 1))
    assert strange.error is ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_read_committed_names_aborted_transactions(cluster: Cluster) -> None:
    cluster.produce(1, b"one")
    response = cluster.call(1, fetch(0, read_committed=True))
    assert response.partitions[0].aborted == []
    assert cluster.call(1, fetch(0)).partitions[0].aborted is None


# -- offsets -------------------------------------------------------------------------------


def list_offsets(cluster: Cluster, timestamp: int, broker: int = 1) -> Any:
    request = ListOffsets(None, [ListOffsetsPartition(ORDERS, None, timestamp)])
    return cluster.call(broker, request).partitions[0]


@pytest.mark.parametrize(
    ("timestamp", "offset"),
    [(EARLIEST, 0), (LATEST, 3), (MAX_TIMESTAMP, 1), (15, 1), (25, 1), (99, None)],
    ids=["earliest", "latest", "largest time", "a time", "a later time", "no such time"],
)
def test_list_offsets(cluster: Cluster, timestamp: int, offset: int | None) -> None:
    for at in (10, 30, 20):
        send(cluster, encode_value(b"x", timestamp=at))
    answer = list_offsets(cluster, timestamp)
    assert (answer.error, answer.offset) == (ErrorCode.NONE, offset)


def test_list_offsets_refuses_unknown_topics_and_old_epochs(cluster: Cluster) -> None:
    request = ListOffsets(
        None,
        [ListOffsetsPartition(NOWHERE, None, LATEST), ListOffsetsPartition(ORDERS, 99, LATEST)],
    )
    answers = cluster.call(1, request).partitions
    assert [a.error for a in answers] == [
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
    ]


@pytest.mark.parametrize("timestamp", [LATEST, 5], ids=["latest", "a time"])
def test_new_leader_does_not_return_an_unknown_end(timestamp: int) -> None:
    cluster = Cluster()
    cluster.start()
    cluster.create_topic()
    old = cluster.leader()
    assert old is not None
    # Records reach the followers, word of their commit does not.
    cluster.tamper = lambda _from, _to, response: response if has_records(response) else None
    cluster.ask(old, produce(b"one"))
    cluster.run(10)
    cluster.crash(old, proof=True)
    cluster.tamper = lambda _from, _to, response: (
        None if isinstance(response, FetchResponse) else response
    )
    cluster.run_until(lambda: cluster.leader() is not None)
    new = cluster.leader()
    assert new is not None
    assert list_offsets(cluster, timestamp, new).error is ErrorCode.OFFSET_NOT_AVAILABLE
    assert list_offsets(cluster, EARLIEST, new).offset == 0
    cluster.tamper = None
    cluster.run(2000)
    assert list_offsets(cluster, LATEST, new).offset == 1


def has_records(response: Any) -> bool:
    if not isinstance(response, FetchResponse):
        return True
    return any(part.records is not None for part in response.partitions)


def test_epoch_ends_are_returned(cluster: Cluster) -> None:
    cluster.produce(1, b"one")
    request = OffsetForLeaderEpoch(
        None,
        [
            EpochPartition(ORDERS, None, 0),
            EpochPartition(ORDERS, None, 9),
            EpochPartition(NOWHERE, None, 0),
        ],
    )
    answers = cluster.call(1, request).partitions
    assert [(a.error, a.end) for a in answers] == [
        (ErrorCode.NONE, EpochEnd(0, 1)),
        (ErrorCode.NONE, None),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, None),
    ]


# -- delete records ------------------------------------------------------------------------


def delete(cluster: Cluster, broker: int, offset: int, timeout_ms: int = 5000) -> Any:
    request = DeleteRecords(timeout_ms, [DeleteRecordsPartition(ORDERS, offset)])
    return cluster.call(broker, request).partitions[0]


def test_delete_records_waits_for_every_live_replica() -> None:
    cluster = Cluster()
    cluster.start()
    cluster.create_topic()
    leader = cluster.leader()
    assert leader is not None
    cluster.produce(leader, b"one", b"two", b"three")
    answer = delete(cluster, leader, 2)
    assert (answer.error, answer.low_watermark) == (ErrorCode.NONE, 2)
    starts = {b: cluster.replica(b).log.log_start_offset for b in (1, 2, 3)}
    assert starts == {1: 2, 2: 2, 3: 2}
    assert delete(cluster, leader, -1).low_watermark == 3


def test_delete_records_times_out_and_is_forgotten() -> None:
    cluster = Cluster()
    cluster.start()
    cluster.create_topic()
    leader = cluster.leader()
    assert leader is not None
    cluster.produce(leader, b"one")
    cluster.cut |= {(other, leader) for other in {1, 2, 3} - {leader}}
    assert delete(cluster, leader, 1, timeout_ms=300).error is ErrorCode.REQUEST_TIMED_OUT
    assert len(cluster.replica(leader).deletions) == 0


@pytest.mark.parametrize(
    ("offset", "name", "error"),
    [
        (9, ORDERS, ErrorCode.OFFSET_OUT_OF_RANGE),
        (0, NOWHERE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ],
    ids=["beyond the high watermark", "unknown"],
)
def test_delete_records_is_refused(
    cluster: Cluster, offset: int, name: TopicPartition, error: ErrorCode
) -> None:
    request = DeleteRecords(1000, [DeleteRecordsPartition(name, offset)])
    assert cluster.call(1, request).partitions[0].error is error


def test_an_empty_delete_is_answered(cluster: Cluster) -> None:
    assert cluster.call(1, DeleteRecords(1000, [])).partitions == []


def test_a_batch_of_many_records_counts_them(cluster: Cluster) -> None:
    records = encode_batch([Record(None, b"a", timestamp=0), Record(None, b"b", timestamp=0)])
    assert send(cluster, records).base_offset == 0
    assert send(cluster, encode_value(b"c")).base_offset == 2


def test_client_fetch_without_a_free_waiting_slot_is_answered_at_once(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each waiting fetch takes memory. One that ends makes room for the next."""
    monkeypatch.setattr(serving_fetch, "PARKED_PARTITIONS_MAX", 2)
    first, second, third = (
        cluster.ask(1, fetch(0, max_wait_ms=wait_ms)) for wait_ms in (1000, 5000, 5000)
    )
    assert third in cluster.answers
    assert not {first, second} & set(cluster.answers)
    cluster.run_until(lambda: first in cluster.answers)
    assert cluster.ask(1, fetch(0, max_wait_ms=5000)) not in cluster.answers
