"""InitProducerId: which producer continues, which one is fenced."""

import pytest
from txn_talk import EVENTS, TIMEOUT_MS, Talk

from tidelog.core.errors import ErrorCode
from tidelog.core.transactions.messages import InitTransactionalId
from tidelog.core.transactions.transaction import (
    EPOCH_MAX,
    LAST_CLIENT_EPOCH,
    ProducerIdentity,
)

NONE = ErrorCode.NONE
FENCED = ErrorCode.PRODUCER_FENCED


def identity(response: object) -> ProducerIdentity:
    return ProducerIdentity(response.producer_id, response.producer_epoch)  # type: ignore[attr-defined]


@pytest.mark.parametrize("version", [0, 1, 2])
def test_an_open_transaction_is_aborted_with_one_raise_of_the_epoch(version: int) -> None:
    """KAFKA-19367: with version 2 Kafka 4.0 raised the epoch twice."""
    talk = Talk(version=version)
    talk.marks = False
    old = talk.producer()
    talk.add(old, version=version)
    assert talk.init().error_code is ErrorCode.CONCURRENT_TRANSACTIONS
    [markers] = talk.sent
    assert not markers.committed
    assert markers.producer == (old.producer_id, old.epoch + 1)
    assert talk.end(old, version=version).error_code is (
        ErrorCode.CONCURRENT_TRANSACTIONS if version == 2 else FENCED
    )
    assert talk.init().error_code is ErrorCode.CONCURRENT_TRANSACTIONS, "until the markers are done"
    talk.mark()
    assert talk.labels()[-2:] == ["PrepareAbort", "CompleteAbort"]
    assert talk.end(old, version=version).error_code is (
        ErrorCode.INVALID_TXN_STATE if version == 2 else FENCED
    )
    assert talk.add(old) is FENCED
    assert talk.producer() == (old.producer_id, old.epoch + 2)


def test_a_producer_continues_with_its_identity() -> None:
    talk = Talk()
    mine = talk.producer()
    following = identity(talk.init(expected=mine))
    assert following == (mine.producer_id, mine.epoch + 1)
    assert identity(talk.init(expected=mine)) == following, "a retry gets the same epoch"
    assert talk.init(expected=mine._replace(epoch=mine.epoch - 1)).error_code is FENCED


def test_a_producer_cannot_continue_after_another_one() -> None:
    talk = Talk()
    mine = talk.producer()
    talk.producer()
    assert talk.init(expected=mine).error_code is FENCED
    stranger = mine._replace(producer_id=mine.producer_id + 7)
    assert talk.init(expected=stranger).error_code is FENCED


def test_an_older_producer_does_not_abort_the_transaction_of_a_newer_one() -> None:
    talk = Talk()
    old = talk.producer()
    mine = talk.producer()
    assert talk.add(mine) is NONE
    assert talk.init(expected=old).error_code is FENCED
    assert talk.labels()[-1] == "Ongoing"
    assert talk.end(mine).error_code is NONE
    assert talk.init(expected=old).error_code is FENCED


def test_the_producer_of_an_open_transaction_may_abort_it() -> None:
    talk = Talk()
    mine = talk.producer()
    assert talk.add(mine) is NONE
    assert talk.init(expected=mine).error_code is ErrorCode.CONCURRENT_TRANSACTIONS
    assert talk.labels()[-1] == "CompleteAbort"
    assert identity(talk.init(expected=mine)) == (mine.producer_id, mine.epoch + 1)


def test_a_producer_whose_transactional_id_expired_gets_a_new_producer_id() -> None:
    talk = Talk()
    forgotten = ProducerIdentity(77, 5)
    assert talk.init(expected=forgotten).error_code is NONE


def test_a_retry_after_failover_is_fenced_because_the_log_lacks_the_last_epoch() -> None:
    talk = Talk()
    mine = talk.producer()
    following = identity(talk.init(expected=mine))
    other = talk.reload()
    assert other.init(expected=mine).error_code is FENCED
    assert other.init(expected=following).error_code is NONE


def exhausted(talk: Talk, epoch: int = LAST_CLIENT_EPOCH) -> ProducerIdentity:
    producer = talk.producer()
    [entry] = talk.shard.entries.values()
    assert entry.current is not None
    entry.current = entry.current._replace(epoch=epoch)
    return producer._replace(epoch=epoch)


def test_after_the_last_epoch_follows_another_producer_id() -> None:
    talk = Talk()
    last = exhausted(talk)
    following = identity(talk.init(expected=last))
    assert following == (last.producer_id + 1, 0)
    assert identity(talk.init(expected=last)) == following, "a retry with the previous producer id"
    assert talk.add(last) is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    early = last._replace(epoch=last.epoch - 1)
    assert talk.init(expected=early).error_code is FENCED


def test_a_producer_with_an_older_epoch_does_not_use_up_a_producer_id() -> None:
    talk = Talk()
    last = exhausted(talk)
    early = last._replace(epoch=last.epoch - 2)
    assert talk.init(expected=early).error_code is FENCED


@pytest.mark.parametrize("version", [0, 2])
def test_a_producer_with_the_last_epoch_can_be_fenced(version: int) -> None:
    talk = Talk(version=version)
    last = exhausted(talk)
    talk.add(last, version=version)
    assert talk.init().error_code is ErrorCode.CONCURRENT_TRANSACTIONS
    prepared = talk.states()[-2]
    assert prepared is not None
    assert prepared.epoch == EPOCH_MAX
    following = talk.producer()
    assert following.producer_id == last.producer_id + 1
    assert talk.add(last) is ErrorCode.INVALID_PRODUCER_ID_MAPPING


def test_a_fence_that_could_not_be_written_is_repeated_with_the_same_epoch() -> None:
    talk = Talk()
    talk.marks = False
    old = talk.producer()
    talk.add(old)
    talk.holds = True
    fencing = talk.ask(InitTransactionalId("orders-writer", TIMEOUT_MS))
    talk.write(ErrorCode.REQUEST_TIMED_OUT)
    assert talk.answers[fencing].error_code is ErrorCode.COORDINATOR_NOT_AVAILABLE
    talk.holds = False
    assert talk.init().error_code is ErrorCode.CONCURRENT_TRANSACTIONS
    [markers] = talk.sent
    assert markers.producer.epoch == old.epoch + 1
    assert markers.partitions == {EVENTS}


def test_a_new_time_out_takes_effect() -> None:
    talk = Talk()
    talk.producer()
    talk.init(timeout_ms=5_000)
    assert talk.describe().timeout_ms == 5_000
