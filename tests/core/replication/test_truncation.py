"""Where a follower truncates: the shipped rule, and one that sends a request first."""

import pytest
from playbook import A, B, Playbook, elected, epochs_of, follower, replica

from tidelog.core.errors import ErrorCode
from tidelog.core.lineage.leader_epochs import LeaderEpochs
from tidelog.core.replication import effects as do
from tidelog.core.replication import events as on
from tidelog.core.replication.truncation import LEADER_EPOCH, Cut, diverging_cut
from tidelog.core.types import EpochEnd, EpochEntry
from tidelog.lab.historical_truncation import POLICIES

Pairs = list[tuple[int, int]]


def cache(pairs: Pairs) -> LeaderEpochs:
    return LeaderEpochs([EpochEntry(*pair) for pair in pairs])


CUTS = [
    pytest.param([(0, 0)], 8, (0, 5), Cut(5, done=True), id="same epoch: the leader's end"),
    pytest.param([(0, 0)], 8, (0, 9), Cut(8, done=True), id="same epoch: never beyond the own end"),
    pytest.param(
        [(0, 0), (2, 4)], 8, (0, 6), Cut(4, done=True), id="same epoch, it ended earlier here"
    ),
    pytest.param(
        [(0, 0), (2, 4), (4, 6)], 8, (3, 7), Cut(6, done=False), id="unknown epoch: ask again"
    ),
    pytest.param(
        [(3, 4)], 8, (2, 3), Cut(3, done=True), id="all here is newer: the leader's end of it"
    ),
    pytest.param([(3, 4)], 8, (2, 6), Cut(4, done=True), id="all here is newer: nothing is left"),
    pytest.param([], 8, (2, 6), Cut(6, done=True), id="no epochs here: the leader's offset"),
    pytest.param([(1, 0)], 8, (2, 6), Cut(6, done=True), id="nothing so new here: its offset"),
    pytest.param([(1, 0)], 5, (2, 6), Cut(5, done=True), id="but never beyond the own end"),
    pytest.param([(0, 0), (1, 5)], 5, (0, 5), Cut(5, done=True), id="an epoch without records"),
]


@pytest.mark.parametrize(("mine", "log_end", "told", "cut"), CUTS)
def test_truncation_offset_of_a_diverging_log(
    mine: Pairs, log_end: int, told: tuple[int, int], cut: Cut
) -> None:
    assert diverging_cut(EpochEnd(*told), cache(mine), log_end) == cut


@pytest.mark.parametrize(("mine", "log_end", "told", "cut"), CUTS)
def test_shipped_rule_ignores_the_high_watermark(
    mine: Pairs, log_end: int, told: tuple[int, int], cut: Cut
) -> None:
    for high_watermark in range(log_end + 1):
        answer = LEADER_EPOCH.cut_on_answer(EpochEnd(*told), cache(mine), log_end, high_watermark)
        assert answer == cut


def test_m23_shipped_rule_truncates_nothing_before_a_response() -> None:
    assert LEADER_EPOCH.cut_on_following(cache([(0, 0)]), 8, 3) == 8


def test_m23_a_log_without_epochs_has_only_its_high_watermark() -> None:
    assert LEADER_EPOCH.cut_on_following(cache([]), 8, 3) == 3


def test_shipped_rule_sends_its_epoch_in_the_fetch() -> None:
    assert (LEADER_EPOCH.asks_first, LEADER_EPOCH.fetches_with_epoch) == (False, True)


# --- a rule that asks before the first fetch ------------------------------------------------

ASKS = POLICIES["kip-279"]


def told(
    epoch: int, end: tuple[int, int] | None, *, error: ErrorCode = ErrorCode.NONE, leader: int = 5
) -> on.EpochEndAnswered:
    """Return the leader's response with the end of an epoch."""
    return on.EpochEndAnswered(leader, epoch, error, EpochEnd(*end) if end else None, now_ms=0)


def test_follower_requests_epochs_until_both_agree_and_then_fetches() -> None:
    partition = replica(B, epochs=[(0, 0), (2, 2), (4, 4)], log=(0, 6), hw=1, policy=ASKS)
    partition.step(elected(A, 5))
    assert partition.next_question(0) == do.EpochQuestion(4, 5)
    assert (
        Playbook(partition)
        >> told(4, (3, 6))
        << do.TruncateTo(4, log_end_offset=6, high_watermark=1)
        << do.WriteEpochs()
    )
    assert partition.next_question(0) == do.EpochQuestion(2, 5)
    assert (
        Playbook(partition)
        >> told(2, (2, 3))
        << do.TruncateTo(3, log_end_offset=4, high_watermark=1)
    )
    assert partition.next_question(0) == do.FetchPosition(3, 5, None, 0)


def test_no_epoch_is_requested_when_none_is_left() -> None:
    """Every epoch here is newer than the returned one: the whole log is truncated, and fetching
    begins."""
    partition = follower(epoch=5, epochs=[(3, 0), (4, 2)], log=(0, 4), policy=ASKS)
    partition.step(told(4, (2, 9)))
    assert epochs_of(partition) == []
    assert partition.next_question(0) == do.FetchPosition(0, 5, None, 0)


def test_an_unknown_epoch_leaves_the_high_watermark() -> None:
    partition = follower(epoch=5, epochs=[(4, 0)], log=(0, 6), hw=2, policy=ASKS)
    assert (
        Playbook(partition) >> told(4, None) << do.TruncateTo(2, log_end_offset=6, high_watermark=2)
    )


@pytest.mark.parametrize(
    "late",
    [
        pytest.param(told(4, (4, 1), leader=3), id="KAFKA-7786: asked under an older epoch"),
        pytest.param(told(3, (3, 1)), id="about another epoch than the last"),
    ],
)
def test_a_response_to_an_outdated_epoch_request_is_ignored(late: on.EpochEndAnswered) -> None:
    partition = follower(epoch=5, epochs=[(4, 0)], log=(0, 6), policy=ASKS)
    before = partition.freeze()
    assert Playbook(partition) >> late << None
    assert partition.freeze() == before


def test_error_of_an_epoch_request_pauses_and_fencing_stops() -> None:
    partition = follower(epoch=5, epochs=[(4, 0)], log=(0, 6), policy=ASKS)
    partition.step(told(4, None, error=ErrorCode.UNKNOWN_LEADER_EPOCH))
    assert partition.next_question(9) is None
    assert partition.next_question(10) == do.EpochQuestion(4, 5)
    fenced = told(4, None, error=ErrorCode.FENCED_LEADER_EPOCH)
    assert Playbook(partition) >> fenced << do.StopFollowing()
    assert partition.next_question(9_999) is None
