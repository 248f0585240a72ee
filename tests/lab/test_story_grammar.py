"""Parsing of story text, and the error messages for invalid text."""

import pytest

from tidelog.lab.story.grammar import StoryError, expand, parse

STORY = """\
# The moral
#
# Why it matters.
# Covers: M07, M12

policies: high-watermark, leader-epoch

given:
    cluster A B
    produce m1..m3 acks=1

# Look.
state
---- high-watermark
one
two
---- leader-epoch
three

fetch B lose=reply
----

expect[high-watermark] lost m1
# The end.
"""


def test_a_whole_story() -> None:
    story = parse(STORY, "moral.txt")
    assert story.title == "The moral"
    assert story.covers == ("M07", "M12")
    assert story.prose == ("", "Why it matters.")
    assert story.policies == ("high-watermark", "leader-epoch")
    assert story.closing == ("The end.",)
    cluster, produce, state, fetch, expect = story.steps
    assert (cluster.word, cluster.arguments, cluster.given) == ("cluster", ("A", "B"), True)
    assert produce.arguments == ("m1", "m2", "m3")
    assert produce.options == {"acks": "1"}
    assert state.prose == ("Look.",)
    assert state.expected == {"high-watermark": ("one", "two"), "leader-epoch": ("three",)}
    assert not state.given
    assert fetch.expected == {"high-watermark": (), "leader-epoch": ()}
    assert expect.expected is None
    assert expect.played_under("high-watermark")
    assert not expect.played_under("leader-epoch")


def test_story_without_policies_plays_the_shipped_one() -> None:
    assert parse("cluster A\n").policies == ("leader-epoch",)


def test_several_policies_can_share_one_output() -> None:
    text = "rules: kip-101, kip-279, leader-epoch\ncluster A\nstate\n---- kip-101, kip-279\nx\n"
    with pytest.raises(StoryError, match="no output given for rule leader-epoch"):
        parse(text)
    (_, state) = parse(text + "---- leader-epoch\ny\n").steps
    assert state.expected == {"kip-101": ("x",), "kip-279": ("x",), "leader-epoch": ("y",)}


@pytest.mark.parametrize(
    ("word", "names"),
    [
        ("m1", ["m1"]),
        ("m1..m3", ["m1", "m2", "m3"]),
        ("m9..m11@2", ["m9@2", "m10@2", "m11@2"]),
        ("m1..x3", ["m1..x3"]),
    ],
)
def test_ranges_of_names_are_expanded(word: str, names: list[str]) -> None:
    assert expand(word) == names


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("", 1, "at least one command"),
        ("# only prose\n", 1, "at least one command"),
        ("cluster A\n\n----\nx\n", 3, "output without a command"),
        ("policies: leader-epok\ncluster A\n", 1, "did you mean leader-epoch?"),
        ("policies:\ncluster A\n", 1, "at least one rule"),
        ("policies: kip-101, kip-101\ncluster A\n", 1, "named twice"),
        ("cluster A\npolicies: kip-101\n", 2, "before the first command"),
        ("cluster A\nstate\n---- kip-101\nx\n", 3, "unknown rule of this story 'kip-101'"),
        ("cluster A\nstate\n----\nx\n----\ny\n", 5, "two outputs"),
        ("cluster A\nexpect[leader-epoch lost m1\n", 2, "missing ]"),
        ("cluster A\nexpect[kip-101] lost m1\n", 2, "unknown rule of this story"),
        ("cluster A\ncheck[leader-epoch] hw-below-leo\n----\nx\n", 2, "have expected output"),
        ("cluster A\nproduce m1 acks=1 acks=0\n", 2, "given twice"),
        ("cluster A\nproduce m3..m1\n", 2, "not a range"),
        ("cluster A\nproduce m1..m9999999\n", 2, "not a range"),
    ],
)
def test_errors_name_their_line(text: str, line: int, message: str) -> None:
    with pytest.raises(StoryError) as caught:
        parse(text)
    assert message in caught.value.message
    assert caught.value.line == line
