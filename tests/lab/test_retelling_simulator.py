"""The story of a failed simulator run is short; a note says if it does not show the failure."""

import pytest

from tidelog.lab.retelling.draft import StoryDraft
from tidelog.lab.retelling.simpler import shorten
from tidelog.lab.retelling.simulator_story import retell_run
from tidelog.lab.sim.runner import run_seed
from tidelog.lab.sim.shrink import shrink
from tidelog.lab.sim.simulation import Violation
from tidelog.lab.sim.swarm import FAULTS, Plan, draw_plan
from tidelog.lab.story.grammar import parse
from tidelog.lab.story.runner import perform_all

FAILURES_WANTED = 1
SEEDS = range(900, 1000)
"""Seeds whose failures under the high-watermark rule a story can show. In other seeds a disk fails
or the controller moves at that moment, which no story command expresses."""


def failures(policy: str) -> list[tuple[Plan, Violation]]:
    """Return the first few seeds that violate an invariant, with shortened plans."""
    found = []
    for seed in SEEDS:
        plan = draw_plan(seed)
        if any(action.kind not in ("produce", *FAULTS) for action in plan.actions):
            continue  # no story command expresses damaged files, wrong clocks and similar faults
        result = run_seed(seed, policy)
        if not result.clean:
            shrunk = shrink(plan, result, policy)
            broken = (v for v in shrunk.result.violations if v.invariant == shrunk.invariant)
            found.append((shrunk.plan, next(broken)))
        if len(found) == FAILURES_WANTED:
            break
    return found


@pytest.mark.ci
def test_failures_become_stories_that_play() -> None:
    told = [
        retell_run(plan, "high-watermark", broken) for plan, broken in failures("high-watermark")
    ]
    assert any(retold.shown for retold in told), "stories can tell most of what happens"
    for retold in told:
        story = parse(retold.text)
        assert all(performance.passed for performance in perform_all(story))
        expected = story.steps[-1].expected
        assert expected is not None
        assert expected["high-watermark"][0].startswith("VIOLATED") is retold.shown
        assert retold.faithful is retold.shown


@pytest.mark.parametrize(
    ("invariant", "reason"),
    [
        ("hw-below-leo", "hw-below-leo holds there"),
        ("logs-agree", "logs-agree holds there"),
        ("what-no-story-knows", "stories can't check what-no-story-knows"),
    ],
)
def test_story_says_which_violation_it_does_not_show(invariant: str, reason: str) -> None:
    violation = Violation(invariant, "t-0: so it seems", 1, 1, ())
    plan = draw_plan(3)
    plan.duration_ms, plan.actions = 300, []
    told = retell_run(plan, "leader-epoch", violation)
    assert (told.faithful, told.shown) == (False, False)
    assert told.departure.startswith(reason)
    assert "The story does not show the violation" in told.text
    assert all(performance.passed for performance in perform_all(parse(told.text)))


def test_shortened_story_keeps_the_violation() -> None:
    draft = StoryDraft("high-watermark")
    for command in (
        "cluster A B C",
        "produce m1",
        "note nothing",
        "fetch B",
        "fetch C times=2",
        "isr",
        "produce m2",
        "crash C",
    ):
        draft.add(command)
    short = shorten(draft, lambda other: other.world.brokers["B"].visible.log_end_offset == 1)
    assert [step.command for step in short.steps] == ["cluster A B C", "produce m1", "fetch B"]
