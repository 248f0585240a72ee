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
from tidelog.lab.modelcheck.shipped.local_step import (
    HIGH_WATERMARK,
    LEADER,
    LEADER_EPOCH,
    fields_of,
)
from tidelog.lab.modelcheck.shipped.state import State
from tidelog.lab.retelling.checker_actions import CheckerActions
from tidelog.lab.retelling.draft import DraftStep, Retelling, StoryDraft, replay, story_text
from tidelog.lab.retelling.simpler import simplify
from tidelog.lab.spec.snapshot import ReplicaSnapshot
from tidelog.lab.story.grammar import StoryError
from tidelog.lab.story.stage.world import World

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
    draft = StoryDraft(policy)
    departure = _translate(draft, model.bounds, path)
    last = path[-1].state
    faithful = not difference(draft.world, last)
    draft = simplify(draft)
    ending, broken = _ending(draft, violation.invariant, last)
    prose = [
        *_head(model.bounds, violation.invariant, policy, len(path) - 1),
        *_verdict(faithful, departure, broken),
    ]
    text = story_text(prose, draft, ending, broken or PROMISES[0])
    return Retelling(text, faithful, departure, broken)


def _walk(bounds: Bounds, policy: TruncationPolicy, prologue: Sequence[str]) -> list[Step]:
    """Return the prologue as steps of a path, from the initial state."""
    model = ClusterModel(bounds, policy)
    path = [Step("", next(iter(model.initial())))]
    for wanted in prologue:
        state = next(s for action, s in model.successors(path[-1].state) if action == wanted)
        path.append(Step(wanted, state))
    return path


def _translate(draft: StoryDraft, bounds: Bounds, path: Sequence[Step]) -> str:
    """Translate every step. Return the first difference between story and checker.

    Return an empty string if there is no difference.
    """
    lags = any(step.action.startswith("FollowerLags") for step in path)
    actions = CheckerActions(draft, bounds, lags=lags)
    departure = ""
    for number, (before, step) in enumerate(pairwise(path), start=1):
        try:
            actions.add_action(number, step.action, before.state, step.state)
        except StoryError as error:
            reason = f"no command expresses step {number}, {step.action}: {error.message}"
            return departure or reason
        different = difference(draft.world, step.state)
        if different and not departure:
            departure = f"after step {number}, {step.action}, {different}"
    return departure


def _ending(draft: StoryDraft, invariant: str, state: State) -> tuple[list[str], str]:
    """Return the commands until an invariant of the stories is violated, and its name.

    The name is empty if no invariant is violated.
    """
    for name in CHECKS[invariant]:
        if draft.violates(name):
            return [], name
    for words in _consequences(draft, state):
        after = replay([*draft.steps, *map(DraftStep, words)], draft.policy)
        for name in (*CHECKS[invariant], *PROMISES):
            if after is not None and after.violates(name):
                return words, name
    return [], ""


def _consequences(draft: StoryDraft, state: State) -> Iterator[list[str]]:
    """Yield likely next commands.

    The leader learns that it leads, the cluster settles, or another broker is elected.
    """
    leader = draft.world.leader()
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
        f"Under {policy} these steps violate: {invariant}",
        "",
        f"Found by the model checker after {steps} steps. No shorter path violates it within"
        f" these bounds: {limits}.",
    ]


def _verdict(faithful: bool, departure: str, broken: str) -> list[str]:
    if not faithful:
        where = departure or "at the end"
        return ["", f"This story differs from the checker's path: {where}."]
    end = "The story ends in the last state of the checker's path."
    return ["", end if broken else f"{end} It violates no invariant that stories can check."]


# -- comparison of story and checker -----------------------------------------------------


def difference(world: World, state: State) -> str:
    """Describe the first difference between a story and a state of the checker; "" if none.

    Both have each replica's log, high watermark, leader epoch and role, and the controller's
    leader, epoch, ISR and ELR. The checker numbers brokers from 0, stories from 1.
    """
    return next(_differences(world, state), "")


def _differences(world: World, state: State) -> Iterator[str]:
    replicas = world.snapshot().replicas
    for broker, (frozen, log) in enumerate(state[0]):
        fields = fields_of(frozen)
        wanted = {
            "log": " ".join(f"m{record + 1}@{epoch}" for epoch, record in log),
            "HW": fields[HIGH_WATERMARK],
            "epoch": fields[LEADER_EPOCH],
            "leads": fields[LEADER] == broker,
        }
        yield from _compare(broker_name(broker), _facts(replicas[broker + 1]), wanted)
    leader, epoch, _, isr, elr = state[1][-1]
    partition = world.controller.partition
    decided = {
        "leader": -1 if partition.leader is None else partition.leader - 1,
        "epoch": partition.leader_epoch,
        "ISR": {broker - 1 for broker in partition.isr},
        "ELR": {broker - 1 for broker in partition.elr},
    }
    checked = {"leader": leader, "epoch": epoch, "ISR": set(isr), "ELR": set(elr)}
    yield from _compare("the controller", decided, checked)


def _facts(replica: ReplicaSnapshot) -> dict[str, object]:
    return {
        "log": " ".join(f"{entry.id}@{entry.epoch}" for entry in replica.log),
        "HW": replica.high_watermark,
        "epoch": replica.leader_epoch,
        "leads": replica.leads,
    }


def _compare(name: str, found: dict[str, object], wanted: dict[str, object]) -> Iterator[str]:
    for key, value in wanted.items():
        if found[key] != value:
            yield f"{name} has {key}={found[key]} in the story, {key}={value} in the checker"
