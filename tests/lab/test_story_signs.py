"""The signs of stories: each has one meaning, and the epochs that a leader compares are shown."""

import re

import pytest

from tidelog.lab.story.grammar import Story, parse
from tidelog.lab.story.legend import SIGNS, used
from tidelog.lab.story.library import find, list_stories, load
from tidelog.lab.story.runner import Performance, perform_all, play

LOSS = "hw-loses-acked-record"
FORK = "hw-lets-logs-diverge"


def printed(performance: Performance, line: str) -> list[str]:
    """Return the output of all steps with this command."""
    frames = [frame for frame in performance.frames if frame.step.text == line]
    return [text for frame in frames for text in frame.output]


def shipped(name: str) -> Performance:
    return play(load(find(name)), "leader-epoch")


def test_the_epoch_question_and_its_answer_are_shown_in_both_stories_of_the_pair() -> None:
    loss = shipped(LOSS)
    assert "B -> A  Fetch offset=2 epoch=0 last_epoch=0" in printed(loss, "fetch B lose=reply")
    assert "A -> B  [] HW=2, no divergence  (lost)" in printed(loss, "fetch B lose=reply")
    assert printed(loss, "fetch A")[:1] == ["A -> B  Fetch offset=2 epoch=1 last_epoch=0"]
    assert printed(loss, "fetch A")[-1] == "B -> A  [] HW=2, no divergence"
    fork = printed(shipped(FORK), "fetch A")
    assert fork[0] == "A -> B  Fetch offset=2 epoch=2 last_epoch=0"
    assert fork[1] == "B -> A  diverging: epoch 0 ends at 1"


def test_the_old_rule_asks_no_question() -> None:
    old = play(load(find(LOSS)), "high-watermark")
    assert not [text for frame in old.frames for text in frame.output if "last_epoch" in text]


def test_the_question_is_shown_until_the_leader_has_answered_and_after_each_restart() -> None:
    fetches = ["fetch B", "fetch B lose=reply", "fetch B", "fetch B", "restart B", "fetch B"]
    found = play(parse("\n".join(["cluster A B", "produce m1", *fetches])), "leader-epoch")
    asked = [
        any("last_epoch" in line for line in frame.output)
        for frame in found.frames
        if frame.step.word == "fetch"
    ]
    # The first fetch has no record to ask about; its response settles the matter for the epoch.
    assert asked == [False, False, False, False, True]


@pytest.mark.parametrize("story", list_stories(), ids=lambda story: story.path.rpartition("/")[2])
def test_the_at_sign_stands_for_the_epoch_of_a_record_and_nothing_else(story: Story) -> None:
    for performance in perform_all(story):
        for frame in performance.frames:
            for line in frame.output:
                for word in re.findall(r"\S*@\S*", line):
                    assert re.fullmatch(r"\[?(log=\[)?[\w.=]+(\([\w-]+\))?@\d+\]?", word), line


def test_the_legend_has_the_signs_that_occur_and_each_once() -> None:
    assert [sign.sign for sign in used(["A HW 1 -> 2"])] == ["HW"]
    assert used(["A is down"]) == []
    assert len({sign.sign for sign in SIGNS}) == len(SIGNS)
    lines = [line for frame in shipped(LOSS).frames for line in frame.output]
    assert {"LEO", "HW", "ISR", "m1@0", "last_epoch=0", "(lost)"} <= {s.sign for s in used(lines)}


def test_the_epoch_of_a_producer_is_not_the_epoch_of_a_leader() -> None:
    def signs(line: str) -> set[str]:
        return {sign.sign for sign in used([line])}

    leader, producer = "epoch=1", "producer=0 epoch=1"
    assert signs("C -> A  WriteTxnMarkers commit story producer=0 epoch=1") == {producer}
    assert signs("p1 -> A  produce m1 epoch=1") == set()
    assert leader in signs("B -> A  Fetch offset=2 epoch=1")
    assert leader in signs("A leader   epoch=0 LEO=0 HW=0 LSO=0 log=[]")
