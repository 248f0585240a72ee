"""A story under construction: each command is played as soon as it is added.

So the writer sees the effect of a command before it chooses the next one, and never writes a
story that can't be played. A draft can be played again from the start, unchanged or changed,
under any rule. This is how drafts are compared and made simpler.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from textwrap import wrap

from tidelog.lab.spec.invariants import INVARIANTS
from tidelog.lab.story.grammar import StoryError, parse
from tidelog.lab.story.play import Play
from tidelog.lab.story.rules import RULES, SHIPPED
from tidelog.lab.story.runner import perform, rewrite
from tidelog.lab.story.stage.world import World


@dataclass(frozen=True, slots=True)
class DraftStep:
    """One command, and the actions of the checker that it stands for."""

    command: str
    stands_for: tuple[str, ...] = ()

    def named(self, key: str) -> str | None:
        """Return the value of an option; None if it is not given."""
        return next((w[len(key) + 1 :] for w in self.words if w.startswith(key + "=")), None)

    @property
    def words(self) -> list[str]:
        """The command's name and arguments."""
        return self.command.split()


@dataclass(slots=True)
class StoryDraft:
    """The commands so far, and the world in which they were played."""

    policy: str
    steps: list[DraftStep] = field(default_factory=list)
    _play: Play = field(init=False)

    def __post_init__(self) -> None:
        self._play = Play(RULES[self.policy])

    @property
    def world(self) -> World:
        """The world after the last command."""
        return self._play.world

    def add(self, command: str, *stands_for: str) -> None:
        """Play a command and add it; raise StoryError if it can't be played."""
        step = parse(command).steps[0]
        try:
            frame = perform(self._play, step)
        except StoryError:
            raise
        except Exception as error:
            reason = f"the broker's code raised {type(error).__name__}: {error}"
            raise StoryError(reason) from error
        if frame.problems:
            raise StoryError("; ".join(frame.problems))
        self.steps.append(DraftStep(command, stands_for))

    def violates(self, invariant: str) -> bool:
        """Return whether an invariant of the stories is violated now."""
        return any(INVARIANTS[invariant](self.world.snapshot()))


def replay(steps: Sequence[DraftStep], policy: str) -> StoryDraft | None:
    """Play the same commands from the start; return None if not all can be played."""
    draft = StoryDraft(policy)
    try:
        for each in steps:
            draft.add(each.command, *each.stands_for)
    except StoryError:
        return None
    return draft


def same_outcome(one: World, other: World) -> bool:
    """Return whether two worlds have equal replicas, controller and promises to clients."""
    return one.snapshot() == other.snapshot()


WIDTH = 96


@dataclass(frozen=True, slots=True)
class Retelling:
    """The text of a story, and the results of playing it."""

    text: str
    faithful: bool
    """Whether the story ends like the run or the path that it translates."""
    departure: str
    """The first difference from that run or path; empty if there is no difference."""
    broken: str
    """The stories' invariant that is violated at its end; empty if none is."""

    @property
    def shown(self) -> bool:
        """Whether an invariant is violated at the end of the story."""
        return bool(self.broken)


def story_text(
    prose: Sequence[str], draft: StoryDraft, ending: Sequence[str], invariant: str
) -> str:
    """Return the text of a story file: prose, commands, `state`, the ending and a check.

    If the commands can be played under the shipped rule too, the story runs under both rules, and
    its text has the output of each.
    """
    check = f"check {invariant}"
    rules = [draft.policy]
    everything = [*draft.steps, *map(DraftStep, ending), DraftStep(check)]
    if draft.policy != SHIPPED and replay(everything, SHIPPED) is not None:
        rules.append(SHIPPED)
    lines = [f"# {line}".rstrip() for text in prose for line in wrap(text, WIDTH) or [""]]
    lines += ["", f"rules: {', '.join(rules)}", ""]
    actions: tuple[str, ...] = ()
    for each in draft.steps:
        if each.stands_for != actions:
            lines += ["", f"# {', '.join(each.stands_for)}"]
        actions = each.stands_for
        lines.append(each.command)
    lines += ["", "state", "----", "", *ending, "", check, "----", ""]
    text = re.sub(r"\n{3,}", "\n\n", "\n".join(lines))
    return rewrite(text, parse(text))
