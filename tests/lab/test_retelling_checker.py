"""A story of a counterexample ends in the same state, or says that it does not."""

import random

import pytest

from tidelog.lab.historical_truncation import POLICIES
from tidelog.lab.modelcheck.explorer import Step, Violation, explore
from tidelog.lab.modelcheck.shipped import invariants
from tidelog.lab.modelcheck.shipped.cluster_model import Bounds, ClusterModel
from tidelog.lab.retelling.checker_story import CHECKS, retell
from tidelog.lab.retelling.draft import StoryDraft, replay, same_outcome
from tidelog.lab.retelling.simpler import simplify
from tidelog.lab.spec.invariants import INVARIANTS
from tidelog.lab.story.grammar import parse
from tidelog.lab.story.library import list_stories, story_folder
from tidelog.lab.story.runner import perform_all

WALK_STEPS = 14


def walk(seed: int, damages: int = 0) -> tuple[ClusterModel, str, list[Step]]:
    """Return a random path of a small cluster, whether an invariant breaks on it or not."""
    choose = random.Random(seed)
    policy = choose.choice(list(POLICIES))
    bounds = Bounds(
        replicas=choose.choice((2, 3)),
        records=choose.choice((1, 2, 3)),
        leader_epoch=3,
        partition_epoch=choose.choice((4, 8)),
        messages=choose.choice((0, 1, 2)),
        restarts=choose.choice((0, 1)),
        min_insync_replicas=choose.choice((1, 1, 2)),
        damages=damages,
    )
    model = ClusterModel(bounds, POLICIES[policy])
    path = [Step("", next(iter(model.initial())))]
    for _ in range(WALK_STEPS):
        possible = list(model.successors(path[-1].state))
        if not possible:
            break
        kind = choose.choice(sorted({action.partition("(")[0] for action, _ in possible}))
        path.append(Step(*choose.choice([s for s in possible if s[0].startswith(kind + "(")])))
    return model, policy, path


@pytest.mark.parametrize(
    "seed", [*range(8), *(pytest.param(seed, marks=pytest.mark.ci) for seed in range(8, 24))]
)
def test_every_history_of_the_checker_becomes_a_story(seed: int) -> None:
    model, policy, path = walk(seed)
    told = retell(model, Violation(invariants.ONE_LEADER, WALK_STEPS, path), policy)
    assert (told.faithful, told.departure) == (True, "")
    assert all(performance.passed for performance in perform_all(parse(told.text)))


@pytest.mark.parametrize(
    "seed", [*range(4), *(pytest.param(seed, marks=pytest.mark.ci) for seed in range(4, 16))]
)
def test_log_that_lost_its_end_becomes_a_story(seed: int) -> None:
    model, policy, path = walk(seed, damages=1)
    told = retell(model, Violation(invariants.ONE_LEADER, WALK_STEPS, path), policy)
    if not any(step.action.startswith("Report") for step in path):
        assert (told.faithful, told.departure) == (True, "")


SHIPPED_STORIES = {
    "one-follower-cut-another-confirmed": (
        "high-watermark",
        Bounds(3, 1, 1, 1, messages=0),
        invariants.COMMITTED_ON_CANDIDATES,
    ),
    "a-late-fetch-commits-what-was-cut": (
        "high-watermark",
        Bounds(2, 2, 2, 2, messages=1),
        invariants.COMMITTED_ON_CANDIDATES,
    ),
    "kip-101-believes-an-offset-of-another-epoch": (
        "kip-101",
        Bounds(2, 2, 2, 4, messages=0),
        invariants.ONLY_COMMITTED_SHOWN,
    ),
}


@pytest.mark.parametrize("name", SHIPPED_STORIES)
def test_the_checker_finds_the_stories_that_ship_as_found(name: str) -> None:
    policy, bounds, invariant = SHIPPED_STORIES[name]
    model = ClusterModel(bounds, POLICIES[policy])
    found = explore(model, workers=1, stop_at_violation=True)
    told = retell(model, found.violations[invariant], policy)
    assert told.faithful
    assert told.shown
    story = parse(told.text)
    assert story.policies == (policy, "leader-epoch")
    assert story.steps[-1].expected is not None
    assert story.steps[-1].expected[policy][0].startswith("VIOLATED")
    assert story.steps[-1].expected["leader-epoch"] == ("holds",)
    shipped = (story_folder() / "found" / f"{name}.txt").read_text()
    assert [step.text for step in parse(shipped).steps] == [step.text for step in story.steps]


def test_every_story_that_ships_as_found_is_found_here() -> None:
    shipped = {story.path.rpartition("/")[2] for story in list_stories(story_folder() / "found")}
    assert shipped == {f"{name}.txt" for name in SHIPPED_STORIES}


def test_story_names_the_step_at_which_it_departs_from_the_checker() -> None:
    model, policy, path = walk(1)
    path[-1] = Step(path[-1].action, path[0].state)
    told = retell(model, Violation(invariants.ONE_LEADER, WALK_STEPS, path), policy)
    assert not told.faithful
    assert told.departure.startswith(f"after step {WALK_STEPS}, ")
    assert "differs from the checker's path" in " ".join(parse(told.text).prose)


def test_story_ends_at_a_step_without_a_command() -> None:
    model = ClusterModel(Bounds(2, 1, messages=1))
    start = next(iter(model.initial()))
    asked = dict(model.successors(start))["FollowerAsk(B)"]
    path = [Step("", start), Step("FollowerAsk(B)", asked), Step("Restart(A)", asked)]
    path += [Step("LeaderWrite(A)", asked), Step("Deliver(Fetch B->A)", asked)]
    told = retell(model, Violation(invariants.ONE_LEADER, 4, path), "leader-epoch")
    assert told.departure
    assert all(performance.passed for performance in perform_all(parse(told.text)))


def test_story_includes_the_prologue() -> None:
    prologue = ("LeaderWrite(A)", "FollowerAsk(B)", "FollowerAsk(B)")
    bounds = Bounds(2, 2, 2, 2, messages=0)
    model = ClusterModel(bounds, prologue=prologue)
    start = next(iter(model.initial()))
    path = [Step("", start), Step(*next(iter(model.successors(start))))]
    told = retell(model, Violation(invariants.ONE_HISTORY, 1, path), "leader-epoch", prologue)
    assert told.faithful
    assert not told.shown
    assert "4 steps" in told.text
    assert [step.word for step in parse(told.text).steps][:4] == [
        "cluster",
        "produce",
        "ask",
        "ask",
    ]


def test_every_checker_invariant_maps_to_a_story_invariant() -> None:
    assert set(CHECKS) == {*invariants.NAMES, invariants.KNOWN_BY_TWO_SURVIVES}
    assert {name for names in CHECKS.values() for name in names} <= set(INVARIANTS)


def test_simplified_story_is_shorter_and_has_the_same_result() -> None:
    draft = StoryDraft("leader-epoch")
    for command in (
        "cluster A B replica.fetch.max.bytes=1",
        "ask B hold=request as=x",
        "produce m1",
        "deliver x hold=reply as=y",
        "elect B unseen=A,B",
        "tell B",
        "tell A",
    ):
        draft.add(command)
    simple = simplify(draft)
    assert [step.command for step in simple.steps] == ["cluster A B", "produce m1", "elect B"]
    assert same_outcome(simple.world, draft.world)
    assert replay([*simple.steps, *simple.steps], "leader-epoch") is None
