"""Transactional Produce: the coordinator confirms a transaction before its first append."""

import pytest
from node_cluster import ORDERS, Cluster
from txn_cluster import (
    ADDING,
    ID,
    PID,
    VERIFYING,
    Coordinator,
    batch,
    end,
    marker,
    request,
    started,
    write,
)

from tidelog.core.coordinator.lookup import TRANSACTIONS_TOPIC
from tidelog.core.errors import ErrorCode
from tidelog.core.node.messages import Produce, ProducePartition, TxnPartitions, WriteTxnMarkers
from tidelog.core.node.serving import txn_produce, txn_verification
from tidelog.core.record import work_budget
from tidelog.core.record.encoder import Producer, encode_batch
from tidelog.core.record.record import Record
from tidelog.core.record.record_batch import TRANSACTIONAL
from tidelog.core.types import TopicPartition

OK = ErrorCode.NONE
OTHER = TopicPartition("payments", 0)
STATE = TopicPartition(TRANSACTIONS_TOPIC, 0)


@pytest.fixture
def cluster() -> Cluster:
    return started()[0]


@pytest.fixture
def leader(cluster: Cluster) -> int:
    found = cluster.leader()
    assert found is not None
    return found


@pytest.fixture
def coordinator(cluster: Cluster, leader: int) -> Coordinator:
    """On another broker than the leader of `orders`."""
    return Coordinator(cluster, leader % 3 + 1)


@pytest.mark.parametrize(("version", "verify_only"), [(VERIFYING, True), (ADDING, False)])
def test_the_first_batch_asks_the_coordinator_and_later_ones_do_not(
    cluster: Cluster, leader: int, coordinator: Coordinator, version: int, verify_only: bool
) -> None:
    assert write(cluster, leader, batch(0), version=version).base_offset == 0
    assert write(cluster, leader, batch(1), version=version).base_offset == 1
    assert coordinator.asked == [TxnPartitions(ID, PID, 0, verify_only, (ORDERS,))]
    assert cluster.replica(leader).log.producers.open_transactions == {PID: 0}


def test_the_coordinator_may_be_this_broker(cluster: Cluster, leader: int) -> None:
    coordinator = Coordinator(cluster, leader)
    assert write(cluster, leader, batch(0)).error is OK
    assert len(coordinator.asked) == 1


def test_without_a_coordinator_the_producer_retries(cluster: Cluster, leader: int) -> None:
    answer = write(cluster, leader, batch(0))
    assert answer.error is ErrorCode.NOT_ENOUGH_REPLICAS
    assert "COORDINATOR_NOT_AVAILABLE" in (answer.error_message or "")
    assert cluster.replica(leader).partition.log_end_offset == 0


@pytest.mark.parametrize(
    ("version", "answer", "expected"),
    [
        (ADDING, ErrorCode.INVALID_TXN_STATE, ErrorCode.INVALID_TXN_STATE),
        (ADDING, ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH),
        (VERIFYING, ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.INVALID_PRODUCER_EPOCH),
        (10, ErrorCode.TRANSACTION_ABORTABLE, ErrorCode.INVALID_TXN_STATE),
        (VERIFYING, ErrorCode.TRANSACTION_ABORTABLE, ErrorCode.TRANSACTION_ABORTABLE),
        (ADDING, ErrorCode.TRANSACTION_ABORTABLE, ErrorCode.TRANSACTION_ABORTABLE),
        (VERIFYING, ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.NOT_ENOUGH_REPLICAS),
        (ADDING, ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.CONCURRENT_TRANSACTIONS),
        (ADDING, ErrorCode.NOT_COORDINATOR, ErrorCode.NOT_ENOUGH_REPLICAS),
        (ADDING, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_ENOUGH_REPLICAS),
        (
            ADDING,
            ErrorCode.INVALID_PRODUCER_ID_MAPPING,
            ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ),
    ],
)
def test_errors_of_the_coordinator_by_version(
    cluster: Cluster,
    leader: int,
    coordinator: Coordinator,
    version: int,
    answer: ErrorCode,
    expected: ErrorCode,
) -> None:
    coordinator.answers[ID] = answer
    assert write(cluster, leader, batch(0), version=version).error is expected
    assert cluster.replica(leader).partition.log_end_offset == 0
    coordinator.answers.clear()
    assert write(cluster, leader, batch(0), version=version).error is OK


def test_an_empty_transactional_id_is_refused(
    cluster: Cluster, leader: int, coordinator: Coordinator
) -> None:
    answer = write(cluster, leader, batch(0), transactional_id="")
    assert answer.error is ErrorCode.INVALID_REQUEST
    assert coordinator.asked == []


def test_an_addition_is_repeated_while_the_previous_transaction_ends(
    cluster: Cluster, leader: int, coordinator: Coordinator
) -> None:
    coordinator.answers[ID] = ErrorCode.CONCURRENT_TRANSACTIONS
    number = cluster.ask(leader, request(batch(0)))
    cluster.run_until(lambda: len(coordinator.asked) == 3)
    coordinator.answers.clear()
    cluster.run_until(lambda: number in cluster.answers)
    assert cluster.answers[number].partitions[0].error is OK
    assert len(coordinator.asked) == 4


def test_a_marker_of_the_previous_transaction_does_not_refuse_the_next_one(
    cluster: Cluster, leader: int, coordinator: Coordinator
) -> None:
    """A producer of version 2 sends the next transaction as soon as the end of the previous one is
    decided, so the marker may arrive while its batches wait."""
    assert write(cluster, leader, batch(0)).error is OK
    coordinator.answers[ID] = ErrorCode.CONCURRENT_TRANSACTIONS
    numbers = [cluster.ask(leader, request(batch(0, epoch=1)))]
    cluster.run_until(lambda: len(coordinator.asked) == 2)
    assert end(cluster, leader, epoch=1, version=2) is OK
    numbers.append(cluster.ask(leader, request(batch(1, epoch=1))))
    coordinator.answers.clear()
    cluster.run_until(lambda: all(number in cluster.answers for number in numbers))
    errors = [cluster.answers[number].partitions[0].error for number in numbers]
    assert errors == [OK, OK]
    assert list(cluster.replica(leader).log.producers.open_transactions) == [PID]


def test_a_marker_after_the_last_question_refuses_the_batch(
    cluster: Cluster, leader: int, coordinator: Coordinator
) -> None:
    coordinator.answers[ID] = ErrorCode.CONCURRENT_TRANSACTIONS
    number = cluster.ask(leader, request(batch(0)))
    cluster.run_until(lambda: len(coordinator.asked) == 2)
    coordinator.answers.clear()
    coordinator.hold()
    cluster.run_until(lambda: len(coordinator.asked) == 3)
    assert end(cluster, leader, epoch=1, committed=False, version=2) is OK
    coordinator.release()
    cluster.run_until(lambda: number in cluster.answers)
    error = cluster.answers[number].partitions[0].error
    assert error in (ErrorCode.INVALID_TXN_STATE, ErrorCode.INVALID_PRODUCER_EPOCH)
    assert not cluster.replica(leader).log.producers.open_transactions


def test_a_lost_coordinator_fails_the_batch(
    cluster: Cluster, leader: int, coordinator: Coordinator
) -> None:
    cluster.crash(coordinator.broker)
    answer = write(cluster, leader, batch(0))
    assert answer.error is ErrorCode.NOT_ENOUGH_REPLICAS
    assert "NETWORK_EXCEPTION" in (answer.error_message or "")


def test_batches_wait_behind_the_first_one_in_order(
    cluster: Cluster, leader: int, coordinator: Coordinator
) -> None:
    coordinator.hold()
    numbers = [cluster.ask(leader, request(batch(sequence))) for sequence in range(5)]
    cluster.run(10)
    assert len(coordinator.asked) == 1
    assert cluster.replica(leader).partition.log_end_offset == 0
    coordinator.release()
    cluster.run_until(lambda: all(number in cluster.answers for number in numbers))
    answers = [cluster.answers[number].partitions[0] for number in numbers]
    assert [(answer.error, answer.base_offset) for answer in answers] == [
        (OK, offset) for offset in range(5)
    ]


def test_a_later_batch_is_not_appended_before_one_that_failed(
    cluster: Cluster, leader: int, coordinator: Coordinator
) -> None:
    coordinator.answers[ID] = ErrorCode.NOT_COORDINATOR
    assert write(cluster, leader, batch(0), version=VERIFYING).error is not OK
    coordinator.answers.clear()
    late = write(cluster, leader, batch(1), version=VERIFYING)
    assert late.error is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert write(cluster, leader, batch(0), version=VERIFYING).error is OK
    assert write(cluster, leader, batch(1), version=VERIFYING).error is OK


def test_an_unknown_producer_of_version_2_starts_at_sequence_0(
    cluster: Cluster, leader: int, coordinator: Coordinator
) -> None:
    error = write(cluster, leader, batch(3)).error
    assert error is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert write(cluster, leader, batch(3, of=8), version=VERIFYING).error is OK


def test_a_marker_that_comes_before_the_append_takes_the_permission_back(
    cluster: Cluster, leader: int, coordinator: Coordinator
) -> None:
    """The batch would begin a transaction that no marker ends (KAFKA-15653)."""
    coordinator.hold()
    number = cluster.ask(leader, request(batch(0), version=VERIFYING))
    cluster.run(10)
    assert end(cluster, leader, committed=False) is OK
    coordinator.release()
    cluster.run_until(lambda: number in cluster.answers)
    assert cluster.answers[number].partitions[0].error is ErrorCode.INVALID_TXN_STATE
    assert not cluster.replica(leader).log.producers.open_transactions


def test_a_batch_after_the_marker_has_a_question_of_its_own(
    cluster: Cluster, leader: int, coordinator: Coordinator
) -> None:
    """The question from before the marker was about the transaction that it ended."""
    coordinator.hold()
    early = cluster.ask(leader, request(batch(0), version=VERIFYING))
    cluster.run(10)
    assert end(cluster, leader, committed=False) is OK
    late = cluster.ask(leader, request(batch(0), version=VERIFYING))
    cluster.run(10)
    coordinator.release()
    cluster.run_until(lambda: early in cluster.answers and late in cluster.answers)
    errors = [cluster.answers[number].partitions[0].error for number in (early, late)]
    assert errors == [ErrorCode.INVALID_TXN_STATE, OK]
    assert len(coordinator.asked) == 2


def test_a_batch_that_timed_out_is_not_appended(
    cluster: Cluster, leader: int, coordinator: Coordinator
) -> None:
    coordinator.hold()
    short = request(batch(0))
    short.timeout_ms = 50
    assert cluster.call(leader, short).partitions[0].error is ErrorCode.REQUEST_TIMED_OUT
    coordinator.release()
    cluster.run(10)
    assert cluster.replica(leader).partition.log_end_offset == 0


def test_the_records_are_kept_while_the_batch_waits(
    cluster: Cluster, leader: int, coordinator: Coordinator
) -> None:
    coordinator.hold()
    records = batch(0, b"kept")
    number = cluster.ask(leader, request(records))
    records[:] = bytes(len(records))
    coordinator.release()
    cluster.run_until(lambda: number in cluster.answers)
    assert cluster.answers[number].partitions[0].error is OK
    assert cluster.consume(leader) == [b"kept"]


def test_a_batch_that_waited_has_the_work_budget_of_its_own_request(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Other requests use up theirs meanwhile."""
    monkeypatch.setattr(work_budget, "STEPS_MAX", 25)
    cluster = Cluster()
    cluster.start()
    cluster.create_topic(cleanup_policy="compact")
    leader = cluster.leader()
    assert leader is not None
    coordinator = Coordinator(cluster, leader)
    coordinator.hold()
    records = [Record(b"k1", b"v", 5), Record(b"k2", b"v", 6)]
    mine = encode_batch(records, attributes=TRANSACTIONAL, producer=Producer(PID, 0, 0))
    number = cluster.ask(leader, request(mine))
    other = Produce(-1, 1000, [ProducePartition(ORDERS, encode_batch(records))])
    assert cluster.call(leader, other).partitions[0].error is OK
    coordinator.release()
    cluster.run_until(lambda: number in cluster.answers)
    answer = cluster.answers[number].partitions[0]
    assert (answer.error, answer.error_message) == (OK, None)


def test_too_many_waiting_bytes_are_refused(
    cluster: Cluster, leader: int, coordinator: Coordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(txn_produce, "WAITING_BYTES_MAX", 300)
    coordinator.hold()
    first = cluster.ask(leader, request(batch(0, b"x" * 200)))
    assert write(cluster, leader, batch(1)).error is ErrorCode.NOT_ENOUGH_REPLICAS
    coordinator.release()
    cluster.run_until(lambda: first in cluster.answers)
    assert write(cluster, leader, batch(1)).error is OK


def test_partitions_of_one_request_share_a_question(
    cluster: Cluster, leader: int, coordinator: Coordinator
) -> None:
    cluster.create_topic(OTHER.topic, (leader,), b"p" * 16)
    both = request(batch(0), batch(0), names=(ORDERS, OTHER))
    answers = cluster.call(leader, both).partitions
    assert [answer.error for answer in answers] == [OK, OK]
    assert coordinator.asked == [TxnPartitions(ID, PID, 0, False, (ORDERS, OTHER))]


def test_questions_to_one_broker_share_requests(
    cluster: Cluster, leader: int, coordinator: Coordinator
) -> None:
    coordinator.hold()
    numbers = [cluster.ask(leader, request(batch(0, of=pid))) for pid in range(10, 20)]
    cluster.run(10)
    assert len(coordinator.requests) == txn_verification.REQUESTS_AT_ONCE
    coordinator.release()
    cluster.run_until(lambda: all(number in cluster.answers for number in numbers))
    assert len(coordinator.requests) == txn_verification.REQUESTS_AT_ONCE + 1
    assert len(coordinator.asked) == 10


def test_questions_do_not_wait_for_a_former_coordinator_that_hangs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """They wait while the open requests to it have no answer."""
    monkeypatch.setattr(txn_verification, "REQUESTS_AT_ONCE", 1)
    cluster = Cluster(settings={"request_timeout_ms": 300_000})
    cluster.start()
    cluster.create_topic(replicas=(1,))
    coordinator = Coordinator(cluster, replicas=(3, 2))
    cluster.run_until(lambda: cluster.leader(STATE) == 3)
    cluster.cut |= {(1, 3), (3, 1)}
    cluster.ask(1, request(batch(0)))
    cluster.run(10)
    waiting = request(batch(0, of=8), transactional_id="another")
    waiting.timeout_ms = 120_000
    second = cluster.ask(1, waiting)
    cluster.lose_session(3)
    cluster.run_until(lambda: cluster.leader(STATE) == 2)
    cluster.run_until(lambda: second in cluster.answers)
    assert cluster.answers[second].partitions[0].error is OK
    assert len(coordinator.requests) == 1


@pytest.mark.parametrize("transactional_id", [None, ID])
def test_requests_that_fail_as_a_whole(
    cluster: Cluster, leader: int, coordinator: Coordinator, transactional_id: str | None
) -> None:
    cluster.create_topic(OTHER.topic, (leader,), b"p" * 16)
    second = batch(0, transactional=False) if transactional_id is None else batch(0, of=8)
    asked = request(batch(0), second, names=(ORDERS, OTHER), transactional_id=transactional_id)
    errors = [answer.error for answer in cluster.call(leader, asked).partitions]
    if transactional_id is None:
        assert errors == [ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED] * 2
    else:
        assert errors == [ErrorCode.INVALID_PRODUCER_ID_MAPPING] * 2
    assert coordinator.asked == []


def test_a_transactional_producer_may_send_plain_batches_first(
    cluster: Cluster, leader: int, coordinator: Coordinator
) -> None:
    assert write(cluster, leader, batch(0, transactional=False)).error is OK
    assert write(cluster, leader, batch(1)).error is OK
    plain = write(cluster, leader, batch(2, transactional=False))
    assert plain.error is ErrorCode.INVALID_TXN_STATE
    assert len(coordinator.asked) == 1


def test_an_older_epoch_is_fenced_without_a_question(
    cluster: Cluster, leader: int, coordinator: Coordinator
) -> None:
    assert write(cluster, leader, batch(0, epoch=3)).error is OK
    assert write(cluster, leader, batch(1, epoch=2)).error is ErrorCode.INVALID_PRODUCER_EPOCH
    assert len(coordinator.asked) == 1


def test_a_newer_epoch_asks_again(cluster: Cluster, leader: int, coordinator: Coordinator) -> None:
    assert write(cluster, leader, batch(0)).error is OK
    assert write(cluster, leader, batch(0, epoch=1)).error is OK
    assert [asked.producer_epoch for asked in coordinator.asked] == [0, 1]


def test_acks_0_closes_the_connection_if_the_coordinator_refuses(
    cluster: Cluster, leader: int, coordinator: Coordinator
) -> None:
    cluster.ask(leader, request(batch(0), acks=0))
    cluster.run_until(lambda: cluster.replica(leader).partition.log_end_offset == 1)
    assert cluster.closed == []
    coordinator.answers[ID] = ErrorCode.INVALID_TXN_STATE
    cluster.ask(leader, request(batch(0, of=8), acks=0))
    cluster.run_until(lambda: cluster.closed == ["client"])


def test_verification_can_be_turned_off_for_old_transaction_versions() -> None:
    cluster, leader = started(transaction_partition_verification_enable=False)
    coordinator = Coordinator(cluster)
    assert write(cluster, leader, batch(0), version=VERIFYING).error is OK
    assert coordinator.asked == []
    assert write(cluster, leader, batch(0, of=8), version=ADDING).error is OK
    assert len(coordinator.asked) == 1


def test_a_follower_and_an_unknown_partition_ask_nothing(
    cluster: Cluster, leader: int, coordinator: Coordinator
) -> None:
    follower = leader % 3 + 1
    assert write(cluster, follower, batch(0)).error is ErrorCode.NOT_LEADER_OR_FOLLOWER
    nowhere = request(batch(0), names=(TopicPartition("nowhere", 0),))
    error = cluster.call(leader, nowhere).partitions[0].error
    assert error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert coordinator.asked == []


def test_a_retry_of_an_appended_batch_is_a_duplicate(
    cluster: Cluster, leader: int, coordinator: Coordinator
) -> None:
    assert write(cluster, leader, batch(0)).base_offset == 0
    again = write(cluster, leader, batch(0))
    assert (again.error, again.base_offset) == (OK, 0)


def test_the_next_transaction_asks_again(
    cluster: Cluster, leader: int, coordinator: Coordinator
) -> None:
    assert write(cluster, leader, batch(0)).error is OK
    assert end(cluster, leader, epoch=1, version=2) is OK
    assert write(cluster, leader, batch(0, epoch=1)).error is OK
    assert len(coordinator.asked) == 2


def test_markers_for_several_producers_and_partitions(
    cluster: Cluster, leader: int, coordinator: Coordinator
) -> None:
    cluster.create_topic(OTHER.topic, (leader,), b"p" * 16)
    nowhere = TopicPartition("nowhere", 0)
    response = cluster.call(
        leader,
        WriteTxnMarkers((marker(names=(ORDERS, OTHER)), marker(of=8, names=(nowhere, ORDERS)))),
    )
    assert response.markers == (
        (PID, {ORDERS: OK, OTHER: OK}),
        (8, {nowhere: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ORDERS: OK}),
    )
    assert cluster.call(leader, WriteTxnMarkers(())).markers == ()
