"""Alternative spellings of story commands that a new user would try."""

import pytest

from tidelog.lab.story.grammar import StoryError, parse
from tidelog.lab.story.runner import play

TWO = "cluster A B\nproduce m1\nfetch B times=2\n"


def messages(text: str, policy: str = "leader-epoch") -> list[str]:
    return [problem.message for problem in play(parse(text), policy).problems]


@pytest.mark.parametrize(
    "line",
    [
        "expect isr A,B",
        "expect isr A, B",
        "expect isr {A B}",
        "expect A leo=1 hw=1",
        "expect A LEO=1, HW=1",
        "expect log A [m1@0]",
        "expect error none",
        "expect consumed none",
        "expect leader A   # by the controller's word",
        "produce m2, m3 acks=1\nexpect log A m1..m3",
        "produce acks=-1 m2\nfetch B, times=2\nexpect acked m2",
        "tick 30s",
        "partition A|B controller\nelect B\nexpect leader B\nexpect isr B",
        "expect [leader-epoch] leader A",
        "tick 500ms",
        "fence B\nelect B unclean=true\nunfence B\nelect B unclean=true\nexpect leader B",
    ],
)
def test_alternative_spellings_are_accepted(line: str) -> None:
    assert messages(f"{TWO}{line}\n") == []


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("expect isr none", "the ISR is A B"),
        ("expect log A none", "A has log=[m1@0]"),
        ("expect A leo=2", "A has LEO=1, not 2"),
        ("tick soon", "milliseconds must be a number, not 'soon'"),
        ("tick s", "milliseconds must be a number, not 's'"),
    ],
)
def test_errors_in_alternative_spellings_are_reported(line: str, message: str) -> None:
    assert messages(f"{TWO}{line}\n") == [message]


def test_settings_by_kafkas_names_configure_a_cluster() -> None:
    text = (
        "cluster A B replica.lag.time.max.ms=10000 flush.messages=1"
        " unclean.leader.election.enable=true\n"
        "produce m1\nfetch B\nlose-unflushed B\nstart B\nexpect B LEO=1\n"
        "produce m2\ntick 15001\nask-isr\nexpect isr A\n"
    )
    assert messages(text) == []


def test_policies_of_an_expectation_may_be_separated_by_blanks() -> None:
    text = "policies: kip-101, kip-279, leader-epoch\ncluster A B\nexpect[kip-101, kip-279] A LEO=1"
    assert messages(text, "leader-epoch") == []
    assert messages(text, "kip-279") == ["A has LEO=0, not 1"]
    with pytest.raises(StoryError, match="unknown rule of this story 'kip-280'"):
        parse(text.replace("[kip-101, kip-279]", "[kip-101, kip-280]"))


def test_text_of_a_note_is_kept_unchanged() -> None:
    (step,) = parse("note [A, B] stay # as they are\n").steps
    assert step.arguments == ("[A,", "B]", "stay", "#", "as", "they", "are")


def test_clients_of_an_offline_partition_get_leader_not_available() -> None:
    text = (
        f"{TWO}crash A B\nfence A B\nexpect leader none\nexpect isr none\n"
        "produce m2\nexpect error LEADER_NOT_AVAILABLE\nexpect not acked m2\n"
        "consume\nexpect error LEADER_NOT_AVAILABLE\nexpect consumed none\n"
        "list-offsets latest\nexpect not offset 1\n"
        "delete-records 1\nexpect error LEADER_NOT_AVAILABLE\n"
    )
    assert messages(text) == []


def test_lost_isr_proposal_is_sent_again() -> None:
    text = (
        f"{TWO}produce m2\ntick 50s\nask-isr lose=request\nexpect isr A B\nask-isr\nexpect isr A\n"
    )
    assert messages(text) == []


def test_rules_may_be_named_by_the_earlier_word() -> None:
    for word in ("rules", "policies"):
        story = parse(f"{word}: high-watermark, leader-epoch\ncluster A\n")
        assert story.policies == ("high-watermark", "leader-epoch")
