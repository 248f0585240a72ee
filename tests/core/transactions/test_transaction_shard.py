"""A transaction from its first partition to its end: states, responses, markers."""

import pytest
from txn_talk import EVENTS, FIRST_PRODUCER_ID, ID, OTHER, TIMEOUT_MS, Talk

from tidelog.core.errors import ErrorCode
from tidelog.core.transactions.messages import (
    AddPartitions,
    EndTransaction,
    InitTransactionalId,
)
from tidelog.core.transactions.transaction import ProducerIdentity

MINE = ProducerIdentity(FIRST_PRODUCER_ID, 0)


def test_a_new_transactional_id_gets_a_producer_id() -> None:
    talk = Talk()
    assert talk.producer() == MINE
    assert talk.labels() == ["Empty"]
    assert talk.producer("another id") == (FIRST_PRODUCER_ID + 1, 0)


def test_a_second_producer_gets_a_higher_epoch_and_fences_the_first() -> None:
    talk = Talk()
    first, second = talk.producer(), talk.producer()
    assert second == (first.producer_id, first.epoch + 1)
    assert talk.add(first) is ErrorCode.PRODUCER_FENCED
    assert talk.end(first).error_code is ErrorCode.PRODUCER_FENCED
    assert talk.add(second) is ErrorCode.NONE


@pytest.mark.parametrize("committed", [True, False])
def test_a_transaction_of_version_2_ends_with_a_higher_epoch(committed: bool) -> None:
    talk = Talk()
    talk.marks = False
    producer = talk.producer()
    assert talk.add(producer, EVENTS) is ErrorCode.NONE
    assert talk.add(producer, OTHER, EVENTS) is ErrorCode.NONE
    ended = talk.end(producer, committed=committed)
    assert ended.error_code is ErrorCode.NONE
    following = ProducerIdentity(ended.producer_id, ended.producer_epoch)
    assert following == (producer.producer_id, producer.epoch + 1)

    [markers] = talk.sent
    assert markers.committed is committed
    assert markers.producer == following, "the marker has the raised epoch"
    assert markers.partitions == {EVENTS, OTHER}
    assert markers.version == 2
    talk.mark(EVENTS)
    outcome = "Commit" if committed else "Abort"
    assert talk.labels() == ["Empty", "Ongoing", "Ongoing", f"Prepare{outcome}"]
    talk.mark(OTHER, EVENTS)
    assert talk.labels()[-1] == f"Complete{outcome}"
    assert talk.add(following) is ErrorCode.NONE


def test_a_transaction_of_version_0_keeps_its_epoch() -> None:
    talk = Talk(version=0)
    producer = talk.producer()
    talk.add(producer, version=0)
    ended = talk.end(producer, version=0)
    assert ended == type(ended)(ErrorCode.NONE, -1, -1)
    assert talk.labels()[-2:] == ["PrepareCommit", "CompleteCommit"]
    assert {state.epoch for state in talk.states() if state} == {0}
    talk.add(producer, version=0)
    assert talk.end(producer, committed=False, version=0).error_code is ErrorCode.NONE


def test_added_partitions_are_not_written_again() -> None:
    talk = Talk()
    producer = talk.producer()
    talk.add(producer, EVENTS, OTHER)
    written = len(talk.log)
    assert talk.add(producer, OTHER) is ErrorCode.NONE
    assert len(talk.log) == written


def test_a_change_that_is_not_committed_blocks_others_and_counts_for_nothing() -> None:
    talk = Talk()
    producer = talk.producer()
    talk.holds = True
    adding = talk.ask(_add(producer))
    assert adding not in talk.answers
    assert talk.add(producer) is ErrorCode.CONCURRENT_TRANSACTIONS
    assert talk.end(producer).error_code is ErrorCode.CONCURRENT_TRANSACTIONS
    assert talk.init().error_code is ErrorCode.CONCURRENT_TRANSACTIONS
    assert talk.verify(producer).missing == {EVENTS}
    talk.write()
    assert talk.answers[adding].error_code is ErrorCode.NONE
    assert not talk.verify(producer).missing


@pytest.mark.parametrize(
    ("failed", "answered"),
    [
        (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
def test_a_failed_append_changes_nothing(failed: ErrorCode, answered: ErrorCode) -> None:
    talk = Talk()
    producer = talk.producer()
    talk.add(producer)
    talk.holds = True
    ending = talk.ask(_end(producer))
    talk.write(failed)
    assert talk.answers[ending].error_code is answered
    assert not talk.sent
    assert talk.describe().state == "Ongoing"
    talk.holds = False
    assert talk.end(producer, committed=False).error_code is ErrorCode.NONE


def test_a_transactional_id_whose_first_append_failed_does_not_exist() -> None:
    talk = Talk()
    talk.holds = True
    asking = talk.ask(_init())
    talk.write(ErrorCode.NOT_ENOUGH_REPLICAS)
    assert talk.answers[asking].error_code is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert talk.describe().error_code is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    talk.holds = False
    assert talk.producer() == (FIRST_PRODUCER_ID + 1, 0)


def test_a_transactional_id_waits_for_its_producer_id() -> None:
    talk = Talk()
    talk.allocates = False
    asking = talk.ask(_init())
    assert talk.init().error_code is ErrorCode.CONCURRENT_TRANSACTIONS
    talk.allocate(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    assert talk.answers[asking].error_code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    again = talk.ask(_init())
    talk.allocate()
    assert talk.answers[again].error_code is ErrorCode.NONE


def test_requests_for_an_unknown_transactional_id_fail() -> None:
    talk = Talk()
    unknown = ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert talk.add(MINE) is unknown
    assert talk.verify(MINE).error_code is unknown
    assert talk.end(MINE).error_code is unknown
    assert talk.describe().error_code is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND


def test_another_producer_id_is_not_that_of_the_transactional_id() -> None:
    talk = Talk()
    producer = talk.producer()
    other = ProducerIdentity(producer.producer_id + 1, producer.epoch)
    wrong = ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert talk.add(other) is wrong
    assert talk.verify(other).error_code is wrong
    assert talk.end(other).error_code is wrong
    assert talk.end(other, version=0).error_code is wrong


def test_an_open_transaction_is_described() -> None:
    talk = Talk()
    producer = talk.producer()
    talk.pass_ms(5_000)
    talk.add(producer, OTHER, EVENTS)
    found = talk.describe()
    assert (found.state, found.timeout_ms, found.partitions) == (
        "Ongoing",
        TIMEOUT_MS,
        (EVENTS, OTHER),
    )
    assert found.start_ms == talk.now
    assert (found.producer_id, found.producer_epoch) == producer
    talk.marks = False
    talk.end(producer)
    talk.mark(EVENTS)
    assert talk.describe().partitions == (OTHER,), "only those without a marker"


@pytest.mark.parametrize("timeout_ms", [0, -1, 900_001])
def test_a_time_out_outside_the_limits_is_refused(timeout_ms: int) -> None:
    talk = Talk()
    refused = talk.init(timeout_ms=timeout_ms)
    assert refused.error_code is ErrorCode.INVALID_TRANSACTION_TIMEOUT
    assert talk.init(timeout_ms=900_000).error_code is ErrorCode.NONE


def test_a_shard_that_is_unloaded_answers_everything() -> None:
    talk = Talk()
    producer = talk.producer()
    talk.holds, talk.allocates = True, False
    waiting = [talk.ask(_add(producer)), talk.ask(_init("new id"))]
    talk.shard.unload(ErrorCode.NOT_COORDINATOR)
    talk.settle()
    errors = [talk.answers[each].error_code for each in waiting]
    assert errors == [ErrorCode.NOT_COORDINATOR] * 2


def _init(name: str = ID) -> object:
    return InitTransactionalId(name, TIMEOUT_MS)


def _add(producer: ProducerIdentity) -> object:
    return AddPartitions(ID, producer, frozenset({EVENTS}), 2)


def _end(producer: ProducerIdentity) -> object:
    return EndTransaction(ID, producer, committed=True, version=2)
