"""The next coordinator continues from the log, in whatever state its predecessor stopped."""

import pytest
from txn_talk import EVENTS, ID, OTHER, TIMEOUT_MS, Talk

from tidelog.core.errors import ErrorCode
from tidelog.core.transactions.messages import EndTransaction
from tidelog.core.transactions.records import encode_key
from tidelog.core.transactions.shard import RETRY_MS
from tidelog.core.transactions.transaction import ProducerIdentity

NONE = ErrorCode.NONE


def test_an_empty_transactional_id_keeps_its_identity() -> None:
    talk = Talk()
    mine = talk.producer()
    other = talk.reload()
    assert other.add(mine) is NONE
    assert other.init().error_code is ErrorCode.CONCURRENT_TRANSACTIONS


@pytest.mark.parametrize("committed", [True, False])
def test_an_open_transaction_can_be_ended(committed: bool) -> None:
    talk = Talk()
    mine = talk.producer()
    talk.add(mine, EVENTS, OTHER)
    other = talk.reload(marks=False)
    assert not other.sent
    assert other.add(mine, EVENTS) is NONE
    assert other.end(mine, committed=committed).error_code is NONE
    assert other.sent[0].partitions == {EVENTS, OTHER}


@pytest.mark.parametrize("committed", [True, False])
def test_a_decided_transaction_gets_all_its_markers_again(committed: bool) -> None:
    talk = Talk()
    talk.marks = False
    mine = talk.producer()
    talk.add(mine, EVENTS, OTHER)
    talk.end(mine, committed=committed)
    talk.mark(EVENTS)
    other = talk.reload(marks=False)
    assert other.sent == talk.sent
    assert other.init().error_code is ErrorCode.CONCURRENT_TRANSACTIONS
    other.mark()
    assert other.describe().state == ("CompleteCommit" if committed else "CompleteAbort")
    assert other.producer().epoch == mine.epoch + 2


def test_a_complete_transaction_sends_nothing() -> None:
    talk = Talk()
    mine = talk.producer()
    talk.add(mine)
    ended = talk.end(mine)
    other = talk.reload(marks=False)
    assert not other.sent
    assert other.add(ProducerIdentity(ended.producer_id, ended.producer_epoch)) is NONE


def test_an_outcome_that_is_not_committed_is_not_sent() -> None:
    talk = Talk()
    mine = talk.producer()
    talk.add(mine)
    talk.holds = True
    talk.ask(EndTransaction(ID, mine, committed=True, version=2))
    assert not talk.sent
    other = talk.reload(marks=False)
    assert not other.sent
    assert other.describe().state == "Ongoing"


@pytest.mark.parametrize(
    "error",
    [
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        # For a moment: the metadata store does not respond, and a follower is silent.
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ],
)
def test_the_completion_is_written_until_it_is_in_the_log(error: ErrorCode) -> None:
    talk = Talk()
    talk.marks = False
    mine = talk.producer()
    talk.add(mine)
    talk.end(mine)
    talk.holds = True
    talk.mark()
    talk.write(error)
    assert talk.describe().state == "PrepareCommit"
    assert talk.shard.unwritten, "for metrics"
    assert talk.init().error_code is ErrorCode.CONCURRENT_TRANSACTIONS
    talk.pass_ms(RETRY_MS)
    talk.write()
    assert talk.describe().state == "CompleteCommit"
    assert not talk.shard.unwritten


def test_an_unloaded_shard_writes_no_more_completions() -> None:
    talk = Talk()
    talk.marks = False
    mine = talk.producer()
    talk.add(mine)
    talk.end(mine)
    talk.holds = True
    talk.mark()
    talk.shard.unload(ErrorCode.NOT_COORDINATOR)
    talk.unwritten.clear()
    talk.pass_ms(10 * RETRY_MS)
    assert not talk.unwritten


def test_a_deleted_transactional_id_stays_deleted() -> None:
    talk = Talk()
    talk.producer()
    talk.log.append((encode_key(ID), None))
    other = talk.reload()
    assert other.describe().error_code is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND


def test_the_time_out_runs_from_the_first_partition_not_from_the_failover() -> None:
    talk = Talk()
    mine = talk.producer()
    talk.add(mine)
    talk.pass_ms(TIMEOUT_MS - 10_000)
    other = talk.reload()
    other.pass_ms(30_000)
    assert other.describe().state == "CompleteAbort"
