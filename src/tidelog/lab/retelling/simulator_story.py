"""Translate a failed run of the simulator into the shortest story that shows the failure.

    retold = retell_run(plan, policy, violation)

The simulator's recorder writes several candidate stories of the run. This module plays them. It
prefers a story that shows the failure under the given rule and not under the shipped rule, and
leaves out each step that this difference does not need. If no candidate shows the failure, the
text says so, and keeps the steps that could be played.
"""

from tidelog.lab.retelling.draft import Retelling, StoryDraft, replay, story_text
from tidelog.lab.retelling.simpler import shorten
from tidelog.lab.sim.simulation import Violation
from tidelog.lab.sim.story_recorder import NEEDS_QUIET, write_stories
from tidelog.lab.sim.swarm import Plan
from tidelog.lab.spec.invariants import INVARIANTS
from tidelog.lab.story.grammar import StoryError, parse
from tidelog.lab.story.rules import SHIPPED

PROMISE = "acked-records-survive"
"""The invariant to check if stories have no name for the violated one."""
NEEDED = "Steps that the failure does not need are left out."
WHOLE = (
    "All steps of the run are kept. The invariant is also violated under the shipped rule, so the"
    " cause may be an operator's action, and fewer steps might show a different cause."
)


def retell_run(plan: Plan, policy: str, violation: Violation) -> Retelling:
    """Translate the run of a plan that violated an invariant into a story."""
    invariant = "logs-agree" if violation.invariant in NEEDS_QUIET else violation.invariant
    known = invariant in INVARIANTS
    drafts = [_played(text, policy) for text in write_stories(plan, policy, violation)]
    shows = [draft for draft, _ in drafts if known and draft.violates(invariant)]
    for draft in shows:
        if _blames_the_rule(draft, invariant):
            short = shorten(draft, lambda other: _blames_the_rule(other, invariant))
            text = story_text(_prose(plan, policy, violation, NEEDED), short, [], invariant)
            return Retelling(text, True, "", invariant)
    if shows:
        text = story_text(_prose(plan, policy, violation, WHOLE), shows[0], [], invariant)
        return Retelling(text, True, "", invariant)
    draft, left_out = drafts[0]
    departure = f"{invariant} holds there" if known else f"stories can't check {invariant}"
    if left_out:
        departure += f"; these steps can't be played: {'; '.join(left_out)}"
    prose = _prose(plan, policy, violation, f"The story does not show the violation: {departure}.")
    text = story_text(prose, draft, [], invariant if known else PROMISE)
    return Retelling(text, False, departure, "")


def _blames_the_rule(draft: StoryDraft, invariant: str) -> bool:
    """Return whether the story violates the invariant here and not under the shipped rule.

    A violation under both may be the result of an operator's action: a lost disk, an unclean
    election.
    """
    if draft.policy == SHIPPED or not draft.violates(invariant):
        return False
    cure = replay(draft.steps, SHIPPED)
    return cure is not None and not cure.violates(invariant)


def _played(text: str, policy: str) -> tuple[StoryDraft, list[str]]:
    """Play every step that can be played, and return those that can't.

    The last step is the recorder's own check, which is not played.
    """
    draft = StoryDraft(policy)
    left_out = []
    for step in parse(text).steps[:-1]:
        try:
            draft.add(step.text)
        except StoryError as error:
            left_out.append(f"{step.text} ({error.message})")
    return draft, left_out


def _prose(plan: Plan, policy: str, violation: Violation, note: str) -> list[str]:
    return [
        f"Seed {plan.seed} breaks {violation.invariant} under {policy}",
        "",
        f"Found by the simulator after {violation.event:,} events; `tidelog sim replay {plan.seed}"
        f" --policy {policy}` repeats the run. The violation:",
        *violation.what.splitlines(),
        "",
        note,
    ]
