"""EndTxn in each state, as Kafka 4.3.1 answers it."""

import pytest
from txn_talk import EVENTS, Talk

from tidelog.core.errors import ErrorCode
from tidelog.core.transactions.messages import EndTransaction
from tidelog.core.transactions.transaction import LAST_CLIENT_EPOCH, ProducerIdentity

NONE = ErrorCode.NONE
FENCED = ErrorCode.PRODUCER_FENCED
INVALID = ErrorCode.INVALID_TXN_STATE
CONCURRENT = ErrorCode.CONCURRENT_TRANSACTIONS


def in_state(state: str, version: int) -> tuple[Talk, ProducerIdentity]:
    """A coordinator with a transactional id in this state, and the current producer."""
    talk = Talk()
    producer = talk.producer()
    if state == "Empty":
        return talk, producer
    talk.add(producer, version=version)
    if state == "Ongoing":
        return talk, producer
    talk.marks = state.startswith("Complete")
    ended = talk.end(producer, committed=state.endswith("Commit"), version=version)
    assert ended.error_code is NONE
    assert talk.describe().state == state
    if version < 2:
        return talk, producer
    return talk, ProducerIdentity(ended.producer_id, ended.producer_epoch)


def earlier(producer: ProducerIdentity) -> ProducerIdentity:
    return producer._replace(epoch=producer.epoch - 1)


@pytest.mark.parametrize(
    ("state", "committed", "retried", "current"),
    [
        ("CompleteCommit", True, NONE, INVALID),
        ("CompleteCommit", False, INVALID, NONE),
        ("CompleteAbort", True, INVALID, INVALID),
        ("CompleteAbort", False, NONE, NONE),
        ("PrepareCommit", True, CONCURRENT, CONCURRENT),
        ("PrepareAbort", False, CONCURRENT, CONCURRENT),
    ],
)
def test_with_version_2_the_epoch_tells_a_retry_from_the_next_end(
    state: str, committed: bool, retried: ErrorCode, current: ErrorCode
) -> None:
    talk, producer = in_state(state, 2)
    assert talk.end(earlier(producer), committed=committed).error_code is retried
    assert talk.end(producer, committed=committed).error_code is current


def test_a_retry_gets_the_identity_again_and_writes_nothing() -> None:
    talk, producer = in_state("CompleteCommit", 2)
    written = len(talk.log)
    again = talk.end(earlier(producer))
    assert (again.producer_id, again.producer_epoch) == producer
    assert len(talk.log) == written


@pytest.mark.parametrize("state", ["Empty", "CompleteCommit", "CompleteAbort"])
def test_with_version_2_an_abort_without_partitions_raises_the_epoch(state: str) -> None:
    talk, producer = in_state(state, 2)
    ended = talk.end(producer, committed=False)
    assert ended.error_code is NONE
    assert (ended.producer_id, ended.producer_epoch) == (
        producer.producer_id,
        producer.epoch + 1,
    )
    assert not talk.sent
    assert talk.labels()[-2:] == ["PrepareAbort", "CompleteAbort"]
    last = talk.states()[-1]
    assert last is not None
    assert last.start_ms == talk.now


def test_with_version_2_nothing_is_committed_without_partitions() -> None:
    talk, producer = in_state("Empty", 2)
    assert talk.end(producer).error_code is INVALID
    assert talk.end(earlier(producer)).error_code is FENCED


@pytest.mark.parametrize(
    ("state", "committed", "answer"),
    [
        ("Empty", True, INVALID),
        ("Empty", False, INVALID),
        ("CompleteCommit", True, NONE),
        ("CompleteCommit", False, INVALID),
        ("CompleteAbort", True, INVALID),
        ("CompleteAbort", False, NONE),
        ("PrepareCommit", True, CONCURRENT),
        ("PrepareAbort", False, CONCURRENT),
    ],
)
def test_before_version_2_the_outcome_tells_a_retry(
    state: str, committed: bool, answer: ErrorCode
) -> None:
    talk, producer = in_state(state, 0)
    assert talk.end(producer, committed=committed, version=0).error_code is answer


@pytest.mark.parametrize("version", [0, 2])
@pytest.mark.parametrize("by", [-1, 1])
def test_an_end_with_another_epoch_is_fenced(version: int, by: int) -> None:
    talk = Talk()
    talk.producer()
    producer = talk.producer()
    talk.add(producer)
    other = producer._replace(epoch=producer.epoch + by)
    assert talk.end(other, version=version).error_code is FENCED
    assert talk.describe().state == "Ongoing"


def test_a_reloaded_coordinator_refuses_the_other_outcome() -> None:
    """The first coordinator sent no marker; its successor knows the outcome from the log."""
    talk, producer = in_state("PrepareCommit", 2)
    other = talk.reload(marks=False)
    wrong = other.end(earlier(producer), committed=False)
    assert wrong.error_code is CONCURRENT, "the markers are pending"
    other.marks = True
    other.mark()
    assert other.end(earlier(producer), committed=False).error_code is INVALID
    assert other.end(earlier(producer)).error_code is NONE


# -- epochs that are used up ---------------------------------------------------------------


def exhausted(talk: Talk) -> ProducerIdentity:
    """A producer with the last epoch that a client gets."""
    producer = talk.producer()
    [entry] = talk.shard.entries.values()
    assert entry.current is not None
    entry.current = entry.current._replace(epoch=LAST_CLIENT_EPOCH)
    return producer._replace(epoch=LAST_CLIENT_EPOCH)


def test_the_last_epoch_ends_with_another_producer_id() -> None:
    talk = Talk()
    last = exhausted(talk)
    talk.marks = False
    talk.add(last)
    ended = talk.end(last)
    following = ProducerIdentity(ended.producer_id, ended.producer_epoch)
    assert following == (last.producer_id + 1, 0)
    [markers] = talk.sent
    assert markers.producer == (last.producer_id, LAST_CLIENT_EPOCH + 1)
    prepared = talk.states()[-1]
    assert prepared is not None
    assert prepared.next_producer_id == following.producer_id

    other = talk.reload()
    assert other.labels()[-1] == "CompleteCommit"
    again = other.end(last)
    assert again.error_code is NONE, "a retry with the old identity"
    assert (again.producer_id, again.producer_epoch) == following
    assert other.end(last, committed=False).error_code is INVALID
    assert other.add(following) is NONE


def test_an_end_waits_for_the_next_producer_id() -> None:
    talk = Talk()
    last = exhausted(talk)
    talk.add(last)
    talk.allocates = False
    request = EndTransaction(talk_id(talk), last, committed=True, version=2)
    ending = talk.ask(request)
    assert ending not in talk.answers
    assert talk.end(last).error_code is CONCURRENT
    talk.allocate(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    assert talk.answers[ending].error_code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert talk.describe().state == "Ongoing"
    talk.allocates = True
    assert talk.end(last).error_code is NONE


def talk_id(talk: Talk) -> str:
    [name] = talk.shard.entries
    return name


def test_before_version_2_init_gives_another_producer_id() -> None:
    talk = Talk(version=0)
    last = exhausted(talk)
    talk.add(last, EVENTS, version=0)
    assert talk.end(last, version=0).error_code is NONE
    assert talk.producer() == (last.producer_id + 1, 0)
