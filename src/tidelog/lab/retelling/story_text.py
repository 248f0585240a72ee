"""A telling as the text of a story file, with what it prints where it matters.

The shipped rule is played beside the one that failed, if it can be and if the invariant holds
there: then the story shows the harm and the cure.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from textwrap import wrap

from tidelog.lab.retelling.telling import Said, Telling, play_again
from tidelog.lab.story.grammar import SHIPPED, parse
from tidelog.lab.story.runner import rewrite

WIDTH = 96


@dataclass(frozen=True, slots=True)
class Retelling:
    """A story, and what playing it has shown."""

    text: str
    faithful: bool
    """It ends as what it tells of did."""
    departure: str
    """Where it leaves what it tells of; empty if it doesn't."""
    broken: str
    """The stories' invariant that is violated at its end; empty if none is."""

    @property
    def shown(self) -> bool:
        """Whether the story shows what is wrong."""
        return bool(self.broken)


def story_text(
    prose: Sequence[str], telling: Telling, ending: Sequence[str], invariant: str
) -> str:
    """Prose, commands with what they stand for, `state`, what follows from it, and a check."""
    check = f"check {invariant}"
    rules = [telling.policy]
    everything = [*telling.said, *map(Said, ending), Said(check)]
    if telling.policy != SHIPPED and play_again(everything, SHIPPED) is not None:
        rules.append(SHIPPED)
    lines = [f"# {line}".rstrip() for text in prose for line in wrap(text, WIDTH) or [""]]
    lines += ["", f"policies: {', '.join(rules)}", ""]
    told: tuple[str, ...] = ()
    for each in telling.said:
        if each.stands_for != told:
            lines += ["", f"# {', '.join(each.stands_for)}"]
        told = each.stands_for
        lines.append(each.command)
    lines += ["", "state", "----", "", *ending, "", check, "----", ""]
    text = re.sub(r"\n{3,}", "\n\n", "\n".join(lines))
    return rewrite(text, parse(text))
