"""Translate a failed run of the simulator into the shortest story that shows the failure.

    retold = retell_run(plan, policy, violation)

The simulator's scribe writes several candidate stories of the run. This module plays them. It
prefers a story that shows the failure under the given rule and not under the shipped rule, and
leaves out each step that this difference does not need. If no candidate shows the failure, the
text says so, and keeps the steps that could be played.
"""

from tidelog.lab.retelling.simpler import shorten
from tidelog.lab.retelling.story_text import Retelling, story_text
from tidelog.lab.retelling.telling import Telling, play_again
from tidelog.lab.sim.scribe import NEEDS_QUIET, write_stories
from tidelog.lab.sim.simulation import Violation
from tidelog.lab.sim.swarm import Plan
from tidelog.lab.spec.invariants import INVARIANTS
from tidelog.lab.story.grammar import SHIPPED, StoryError, parse

PROMISE = "acked-records-survive"
"""The invariant to check if stories have no name for the violated one."""
NEEDED = "Told with what the failure needs, and nothing else."
WHOLE = (
    "Told whole, since other rules do no better here: what breaks under every rule may be"
    " an operator's will, and fewer steps might tell another story."
)


def retell_run(plan: Plan, policy: str, violation: Violation) -> Retelling:
    """Translate the run of a plan that violated an invariant into a story."""
    invariant = "logs-agree" if violation.invariant in NEEDS_QUIET else violation.invariant
    known = invariant in INVARIANTS
    tellings = [_played(text, policy) for text in write_stories(plan, policy, violation)]
    shows = [telling for telling, _ in tellings if known and telling.violates(invariant)]
    for telling in shows:
        if _blames_the_rule(telling, invariant):
            short = shorten(telling, lambda other: _blames_the_rule(other, invariant))
            text = story_text(_prose(plan, policy, violation, NEEDED), short, [], invariant)
            return Retelling(text, True, "", invariant)
    if shows:
        text = story_text(_prose(plan, policy, violation, WHOLE), shows[0], [], invariant)
        return Retelling(text, True, "", invariant)
    telling, left_out = tellings[0]
    departure = f"there {invariant} holds" if known else f"it has no word for {invariant}"
    if left_out:
        departure += f", and it can't say: {'; '.join(left_out)}"
    prose = _prose(plan, policy, violation, f"A story can't tell all of it: {departure}.")
    text = story_text(prose, telling, [], invariant if known else PROMISE)
    return Retelling(text, False, departure, "")


def _blames_the_rule(telling: Telling, invariant: str) -> bool:
    """Return whether the story violates the invariant here and not under the shipped rule.

    A violation under both may be the result of an operator's action: a lost disk, an unclean
    election.
    """
    if telling.policy == SHIPPED or not telling.violates(invariant):
        return False
    cure = play_again(telling.said, SHIPPED)
    return cure is not None and not cure.violates(invariant)


def _played(text: str, policy: str) -> tuple[Telling, list[str]]:
    """Play every step that can be played, and return those that can't.

    The last step is the scribe's own check, which is not played.
    """
    telling = Telling(policy)
    left_out = []
    for step in parse(text).steps[:-1]:
        try:
            telling.say(step.text)
        except StoryError as error:
            left_out.append(f"{step.text} ({error.message})")
    return telling, left_out


def _prose(plan: Plan, policy: str, violation: Violation, told: str) -> list[str]:
    return [
        f"Seed {plan.seed} breaks {violation.invariant} under {policy}",
        "",
        f"Found by the simulator after {violation.event:,} events; `tidelog sim replay {plan.seed}"
        f" --policy {policy}` runs it again. It saw:",
        *violation.what.splitlines(),
        "",
        told,
    ]
