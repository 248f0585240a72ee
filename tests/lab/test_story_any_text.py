"""Any story text gives at worst an error message with a line number, never a traceback."""

from contextlib import suppress

from hypothesis import given, settings
from hypothesis import strategies as st

from tidelog.lab.spec.invariants import INVARIANTS
from tidelog.lab.story.commands.facts import FACTS
from tidelog.lab.story.grammar import StoryError, parse
from tidelog.lab.story.runner import COMMANDS, play

WORDS = st.sampled_from(
    ["A", "B", "m1", "m1..m3", "0", "2", "all", "not", "unclean", "newest", "latest", "|", "=",
     "controller", "leader-epoch-checkpoint", "lose=reply", "lose=request", "hold=reply", "as=x",
     "x", "to=B", "unseen=A", "times=2", "LEO=1", "offset=1", "from=B", "acks=1", "keep=1",
     *FACTS, *INVARIANTS]
)  # fmt: skip
LINES = st.builds(
    lambda word, rest: " ".join([word, *rest]),
    st.sampled_from(sorted(COMMANDS)),
    st.lists(WORDS, max_size=4),
)


@given(st.text(max_size=200))
@settings(max_examples=200)
def test_any_text_parses_or_raises_story_error(text: str) -> None:
    with suppress(StoryError):
        parse(text)


@given(st.lists(LINES, min_size=1, max_size=12))
@settings(max_examples=150, deadline=None)
def test_any_commands_end_without_an_internal_error(lines: list[str]) -> None:
    text = "\n".join(["cluster A B", "produce m1", "fetch B", *lines]) + "\n"
    with suppress(StoryError):
        for problem in play(parse(text), "leader-epoch").problems:
            assert problem.line > 0
            assert "code raised" not in problem.message
