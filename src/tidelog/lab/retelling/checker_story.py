"""Translate the model checker's shortest counterexample into a playable story.

    retold = retell(model, violation, policy)
    retold.text       a story file in the grammar of scenarios/README.md
    retold.faithful   the story ends in the checker's last state: logs, HWs, epochs, ISR
    retold.shown      an invariant of the stories is VIOLATED at its end

The text claims only results that were played, and says where the story differs from the checker.
If the invariant holds under the shipped rule, the text also prints the outcome under that rule.
"""

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from itertools import pairwise

from tidelog.core.replication.truncation import TruncationPolicy
from tidelog.lab.historical_truncation import POLICIES
from tidelog.lab.modelcheck.explorer import Step, Violation
from tidelog.lab.modelcheck.shipped import invariants
from tidelog.lab.modelcheck.shipped.cluster_model import Bounds, ClusterModel
from tidelog.lab.modelcheck.shipped.invariants import broker_name
from tidelog.lab.modelcheck.shipped.state import State
from tidelog.lab.retelling.checker_actions import CheckerActions
from tidelog.lab.retelling.comparison import difference
from tidelog.lab.retelling.simpler import simplify
from tidelog.lab.retelling.story_text import Retelling, story_text
from tidelog.lab.retelling.telling import Said, Telling, play_again
from tidelog.lab.story.grammar import StoryError

CHECKS = {
    invariants.HW_AT_MOST_LEO: ("hw-below-leo",),
    invariants.COMMITTED_ON_CANDIDATES: ("isr-holds-committed", "leader-complete"),
    invariants.KNOWN_BY_TWO_SURVIVES: ("acked-records-survive", "leader-complete"),
    invariants.ONE_HISTORY: ("committed-agree", "leader-complete"),
    invariants.ONLY_COMMITTED_SHOWN: ("committed-agree", "isr-holds-committed"),
    invariants.LOG_MATCHING: ("log-matching",),
    invariants.HW_NEVER_FALLS: (),  # one snapshot can't show it; its consequences may
    invariants.ONE_LEADER: ("one-leader-per-epoch",),
    invariants.NONE_REFUSED: ("leader-complete", "isr-holds-committed"),
}
"""For each invariant of the checker, the matching ones of the stories; the closest first."""
PROMISES = ("acked-records-survive", "committed-agree", "leader-complete")
"""The invariants that a cluster promises to its clients; checked after an election."""


def retell(
    model: ClusterModel, violation: Violation, policy: str, prologue: Sequence[str] = ()
) -> Retelling:
    """Translate a violation into a story; `prologue` has the actions before the model's start."""
    path = [*_walk(model.bounds, POLICIES[policy], prologue), *violation.path[1:]]
    telling = Telling(policy)
    departure = _translate(telling, model.bounds, path)
    last = path[-1].state
    faithful = not difference(telling.world, last)
    telling = simplify(telling)
    ending, broken = _ending(telling, violation.invariant, last)
    prose = [
        *_head(model.bounds, violation.invariant, policy, len(path) - 1),
        *_verdict(faithful, departure, broken),
    ]
    text = story_text(prose, telling, ending, broken or PROMISES[0])
    return Retelling(text, faithful, departure, broken)


def _walk(bounds: Bounds, policy: TruncationPolicy, prologue: Sequence[str]) -> list[Step]:
    """Return the prologue as steps of a path, from the initial state."""
    model = ClusterModel(bounds, policy)
    path = [Step("", next(iter(model.initial())))]
    for wanted in prologue:
        state = next(s for action, s in model.successors(path[-1].state) if action == wanted)
        path.append(Step(wanted, state))
    return path


def _translate(telling: Telling, bounds: Bounds, path: Sequence[Step]) -> str:
    """Translate every step. Return the first difference between story and checker.

    Return an empty string if there is no difference.
    """
    lags = any(step.action.startswith("FollowerLags") for step in path)
    actions = CheckerActions(telling, bounds, lags=lags)
    departure = ""
    for number, (before, step) in enumerate(pairwise(path), start=1):
        try:
            actions.tell(number, step.action, before.state, step.state)
        except StoryError as error:
            return departure or f"step {number}, {step.action}, can't be told: {error.message}"
        parted = difference(telling.world, step.state)
        if parted and not departure:
            departure = f"after step {number}, {step.action}, {parted}"
    return departure


def _ending(telling: Telling, invariant: str, state: State) -> tuple[list[str], str]:
    """Return the commands until an invariant of the stories is violated, and its name.

    The name is empty if no invariant is violated.
    """
    for name in CHECKS[invariant]:
        if telling.violates(name):
            return [], name
    for words in _consequences(telling, state):
        after = play_again([*telling.said, *map(Said, words)], telling.policy)
        for name in (*CHECKS[invariant], *PROMISES):
            if after is not None and after.violates(name):
                return words, name
    return [], ""


def _consequences(telling: Telling, state: State) -> Iterator[list[str]]:
    """Yield likely next commands.

    The leader learns that it leads, the cluster settles, or another broker is elected.
    """
    leader = telling.world.leader()
    if leader is not None:
        yield [f"tell {leader.name} newest"]
    yield ["settle"]
    _, _, _, isr, elr = state[1][-1]
    for broker in isr or elr:
        yield [f"elect {broker_name(broker)}", "settle"]


# -- the text ----------------------------------------------------------------------------------


def _head(bounds: Bounds, invariant: str, policy: str, steps: int) -> list[str]:
    limits = ", ".join(f"{name.replace('_', ' ')} {n}" for name, n in asdict(bounds).items())
    return [
        f"Under {policy} this breaks: {invariant}",
        "",
        f"Found by the model checker, {steps} steps from the start; no fewer steps break it"
        f" within these bounds: {limits}.",
    ]


def _verdict(faithful: bool, departure: str, broken: str) -> list[str]:
    if not faithful:
        where = departure or "at the end"
        return ["", f"A story can't tell all of it. This one departs from the checker: {where}."]
    said = "Played as a story, `state` shows what the checker saw last."
    return ["", said if broken else f"{said} No invariant of the stories says what is wrong."]
