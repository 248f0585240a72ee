"""KIP-497's model: the need for its two rules, and the number of states."""

from functools import cache
from itertools import pairwise

import pytest

from tidelog.lab.modelcheck.explorer import Exploration, explore
from tidelog.lab.modelcheck.published.async_isr import (
    NO_VERSION,
    PENDING_IN_HIGH_WATERMARK,
    RULES,
    VALID_HIGH_WATERMARK,
    VERSION_COMPARE,
    AsyncIsr,
    State,
)


@cache
def search(without: str | None = None, symmetric: bool = True) -> Exploration:
    return explore(AsyncIsr(without=without, symmetric=symmetric), workers=2)


@pytest.mark.parametrize(
    ("symmetric", "states"), [(False, 22_456), (True, 11_234)], ids=["unreduced", "reduced"]
)
def test_high_watermark_is_always_valid(symmetric: bool, states: int) -> None:
    outcome = search(symmetric=symmetric)
    assert outcome.states == states
    assert outcome.holds
    assert not outcome.missed_goals


@pytest.mark.parametrize("rule", RULES)
def test_each_rule_is_needed(rule: str) -> None:
    outcome = search(rule)
    assert {v.invariant: v.depth for v in outcome.violations.values()} == {VALID_HIGH_WATERMARK: 6}


def test_ignoring_the_pending_isr_commits_records_that_a_new_member_lacks() -> None:
    path = search(PENDING_IN_HIGH_WATERMARK).violations[VALID_HIGH_WATERMARK].path
    actions = [step.action.split("(")[0] for step in path[1:]]
    assert "LeaderRequestExpandIsr" in actions
    assert "LeaderWrite" in actions
    assert actions[-1] == "ControllerHandleRequest"


def test_without_the_version_compare_an_old_request_undoes_a_newer_decision() -> None:
    path = search(VERSION_COMPARE).violations[VALID_HIGH_WATERMARK].path
    handled = [
        (before.state.controller_version, step.action)
        for before, step in pairwise(path)
        if step.action.startswith("ControllerHandleRequest")
    ]
    [(version, action)] = handled
    assert f"version {version} " not in action


def test_unknown_rule_is_refused() -> None:
    with pytest.raises(ValueError, match="unknown rule"):
        AsyncIsr(without="gravity")


def state(*, isr: int, pending: int, offsets: tuple[int, ...]) -> State:
    return State(0b111, 0, isr, 0, pending, NO_VERSION, offsets, (), ())


@pytest.mark.parametrize(
    ("isr", "pending", "offsets", "high_watermark"),
    [
        pytest.param(0b111, 0, (2, 1, 0), 0, id="the slowest member decides"),
        pytest.param(0b011, 0, (2, 1, 0), 1, id="outside the ISR does not count"),
        pytest.param(0b011, 0b111, (2, 1, 0), 0, id="asked for counts already"),
        pytest.param(0b001, 0, (2, 1, 0), 2, id="alone"),
    ],
)
def test_high_watermark_counts_isr_and_pending(
    isr: int, pending: int, offsets: tuple[int, ...], high_watermark: int
) -> None:
    model = AsyncIsr()
    assert model.high_watermark(state(isr=isr, pending=pending, offsets=offsets)) == high_watermark


def test_followers_are_interchangeable_and_the_leader_is_not() -> None:
    model = AsyncIsr()
    one = state(isr=0b011, pending=0, offsets=(2, 1, 0))
    other = state(isr=0b101, pending=0, offsets=(2, 0, 1))
    leader_behind = state(isr=0b011, pending=0, offsets=(1, 2, 0))
    assert model.canonical(one) == model.canonical(other)
    assert model.canonical(one) != model.canonical(leader_behind)


def test_state_is_described_in_lines() -> None:
    model = AsyncIsr()
    assert model.describe(state(isr=0b011, pending=0b111, offsets=(2, 1, 0))) == [
        "A leader   LEO=2 HW=0 version=0 ISR={A B} pending={A B C}",
        "B follower LEO=1",
        "C follower LEO=0",
        "controller version=0 ISR={A B C}",
    ]
