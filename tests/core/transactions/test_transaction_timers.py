"""Time-outs abort transactions; transactional ids expire."""

import pytest
from txn_talk import EVENTS, ID, OTHER, TIMEOUT_MS, Talk

from tidelog.core.errors import ErrorCode
from tidelog.core.transactions.config import TransactionConfig
from tidelog.core.transactions.messages import EndTransaction
from tidelog.core.transactions.shard import IDS_AT_ONCE

DAY_MS = 86_400_000
HOUR_MS = 3_600_000
INTERVAL_MS = 10_000


def test_a_transaction_that_is_open_for_too_long_is_aborted() -> None:
    talk = Talk()
    talk.marks = False
    mine = talk.producer()
    talk.add(mine)
    talk.pass_ms(TIMEOUT_MS - 1)
    assert talk.describe().state == "Ongoing"
    talk.pass_ms(INTERVAL_MS)
    assert talk.describe().state == "PrepareAbort"
    [markers] = talk.sent
    assert not markers.committed
    assert markers.producer.epoch == mine.epoch + 1
    assert talk.end(mine).error_code is ErrorCode.CONCURRENT_TRANSACTIONS
    talk.mark()
    assert talk.end(mine).error_code is ErrorCode.INVALID_TXN_STATE
    assert talk.end(mine, committed=False).error_code is ErrorCode.NONE, "as if it aborted itself"
    assert talk.add(mine) is ErrorCode.PRODUCER_FENCED


@pytest.mark.parametrize("version", [0, 1])
def test_before_version_2_a_time_out_fences_the_producer(version: int) -> None:
    talk = Talk(version=version)
    mine = talk.producer()
    talk.add(mine, version=0)
    talk.pass_ms(TIMEOUT_MS + INTERVAL_MS)
    assert talk.describe().state == "CompleteAbort"
    assert talk.end(mine, version=0).error_code is ErrorCode.PRODUCER_FENCED
    assert talk.end(mine, committed=False, version=0).error_code is ErrorCode.PRODUCER_FENCED


def test_more_partitions_do_not_extend_the_time_out() -> None:
    talk = Talk()
    mine = talk.producer()
    talk.add(mine, EVENTS)
    talk.pass_ms(TIMEOUT_MS - 1_000)
    talk.add(mine, OTHER)
    talk.pass_ms(1_000 + INTERVAL_MS)
    assert talk.describe().state == "CompleteAbort"


def test_an_ended_transaction_does_not_time_out_and_the_next_one_has_its_own_time() -> None:
    talk = Talk()
    mine = talk.producer()
    talk.add(mine)
    ended = talk.end(mine)
    talk.pass_ms(TIMEOUT_MS - 5_000)
    following = mine._replace(epoch=ended.producer_epoch)
    talk.add(following)
    talk.pass_ms(TIMEOUT_MS - 5_000)
    assert talk.describe().state == "Ongoing"
    assert talk.end(following).error_code is ErrorCode.NONE


def test_a_time_out_that_could_not_be_written_is_tried_again() -> None:
    talk = Talk()
    mine = talk.producer()
    talk.add(mine)
    talk.holds = True
    talk.pass_ms(TIMEOUT_MS + INTERVAL_MS)
    assert len(talk.unwritten) == 1
    talk.write(ErrorCode.NOT_ENOUGH_REPLICAS)
    assert talk.describe().state == "Ongoing"
    talk.holds = False
    talk.pass_ms(INTERVAL_MS)
    assert talk.describe().state == "CompleteAbort"


def test_a_change_that_is_pending_at_the_time_out_comes_first() -> None:
    talk = Talk()
    mine = talk.producer()
    talk.add(mine)
    talk.holds = True
    ending = talk.ask(EndTransaction(ID, mine, committed=True, version=2))
    talk.pass_ms(TIMEOUT_MS + INTERVAL_MS)
    talk.write()
    assert talk.answers[ending].error_code is ErrorCode.NONE
    talk.holds = False
    while talk.unwritten:
        talk.write()
    talk.pass_ms(INTERVAL_MS)
    assert talk.describe().state == "CompleteCommit"


# -- expiration ----------------------------------------------------------------------------


def test_an_unused_transactional_id_expires() -> None:
    talk = Talk()
    talk.producer()
    talk.pass_ms(7 * DAY_MS - HOUR_MS)
    assert talk.describe().error_code is ErrorCode.NONE
    talk.pass_ms(2 * HOUR_MS)
    assert talk.describe().error_code is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    assert talk.labels()[-1] == ""
    assert talk.reload().describe().error_code is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND


def test_use_keeps_a_transactional_id() -> None:
    talk = Talk()
    talk.producer()
    talk.pass_ms(5 * DAY_MS)
    mine = talk.producer()
    talk.pass_ms(5 * DAY_MS)
    assert talk.add(mine) is ErrorCode.NONE


@pytest.mark.parametrize("state", ["Ongoing", "PrepareCommit"])
def test_a_transactional_id_with_a_transaction_does_not_expire(state: str) -> None:
    config = TransactionConfig(
        transaction_max_timeout_ms=2**31 - 1, transactional_id_expiration_ms=DAY_MS
    )
    talk = Talk(config)
    talk.marks = False
    mine = talk.producer(timeout_ms=2**31 - 1)
    talk.add(mine)
    if state == "PrepareCommit":
        talk.end(mine)
    talk.pass_ms(3 * DAY_MS)
    assert talk.describe().state == state


def test_a_transactional_id_whose_tombstone_failed_stays() -> None:
    talk = Talk()
    mine = talk.producer()
    talk.holds = True
    talk.pass_ms(7 * DAY_MS + HOUR_MS)
    assert talk.add(mine) is ErrorCode.CONCURRENT_TRANSACTIONS
    talk.write(ErrorCode.NOT_ENOUGH_REPLICAS)
    talk.holds = False
    assert talk.add(mine) is ErrorCode.NONE


def test_many_transactional_ids_expire_a_few_at_a_time() -> None:
    talk = Talk()
    count = IDS_AT_ONCE + 50
    for number in range(count):
        talk.producer(f"id-{number}")
    talk.pass_ms(7 * DAY_MS + HOUR_MS)
    assert not talk.shard.entries


def test_a_clock_that_jumped_ahead_expires_nothing() -> None:
    talk = Talk()
    talk.producer()
    talk.pass_ms(HOUR_MS)
    talk.wall.read(talk.now, talk.now + 30 * DAY_MS)
    talk.pass_ms(2 * HOUR_MS)
    assert talk.describe().error_code is ErrorCode.NONE
