"""Write a telling as the text of a story file, with the output of its last commands.

If the commands can be played under the shipped rule, and the invariant holds there, the story
runs under both rules. Then it shows the failure, and that the shipped rule prevents it.
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
    prose: Sequence[str], telling: Telling, ending: Sequence[str], invariant: str
) -> str:
    """Return the text: prose, commands with their origins, `state`, the ending and a check."""
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
