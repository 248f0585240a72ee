"""Where a follower cuts (KAFKA.md 2.4), by itself."""

import pytest

from tidelog.core.lineage.leader_epochs import LeaderEpochs
from tidelog.core.replication.truncation import LEADER_EPOCH, Cut, diverging_cut
from tidelog.core.types import EpochEnd, EpochEntry

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
def test_diverging_cut(mine: Pairs, log_end: int, told: tuple[int, int], cut: Cut) -> None:
    assert diverging_cut(EpochEnd(*told), cache(mine), log_end) == cut


@pytest.mark.parametrize(("mine", "log_end", "told", "cut"), CUTS)
def test_the_shipped_rule_cuts_so_whatever_the_high_watermark(
    mine: Pairs, log_end: int, told: tuple[int, int], cut: Cut
) -> None:
    for high_watermark in range(log_end + 1):
        answer = LEADER_EPOCH.cut_on_answer(EpochEnd(*told), cache(mine), log_end, high_watermark)
        assert answer == cut


def test_m23_the_shipped_rule_cuts_nothing_unasked() -> None:
    assert LEADER_EPOCH.cut_on_following(cache([(0, 0)]), 8, 3) == 8


def test_m23_a_log_without_epochs_has_only_its_high_watermark() -> None:
    assert LEADER_EPOCH.cut_on_following(cache([]), 8, 3) == 3


def test_the_shipped_rule_asks_inline() -> None:
    assert (LEADER_EPOCH.asks_first, LEADER_EPOCH.fetches_with_epoch) == (False, True)
