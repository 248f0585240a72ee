"""Story commands that generated stories need: partial metadata, a slow follower, delays."""

import pytest

from tidelog.lab.story.grammar import parse
from tidelog.lab.story.runner import Performance, play

TWICE = "elect B unseen=A,B\nelect A unseen=A,B\n"


def played(*lines: str) -> Performance:
    return play(parse("\n".join(["# Words", "", *lines])), "leader-epoch")


def output(performance: Performance) -> tuple[str, ...]:
    assert not performance.problems
    return performance.frames[-1].output


@pytest.mark.parametrize(
    ("tell", "expected"),
    [
        ("tell B words=1", ["B leads epoch 1 from offset 0, ISR={A B}"]),
        ("tell B", ["B leads epoch 1 from offset 0, ISR={A B}"]),
        ("tell B newest", []),
        ("tell B words=0", []),
    ],
)
def test_tell_delivers_metadata_changes_one_by_one(tell: str, expected: list[str]) -> None:
    assert list(output(played("cluster A B", TWICE, tell))) == expected


@pytest.mark.parametrize(
    ("tell", "epoch"),
    [("words=0", 0), ("words=1", 1), ("words=2", 2), ("newest words=2", 2), ("", 3), ("newest", 3)],
)
def test_tell_delivers_only_the_given_number_of_changes(tell: str, epoch: int) -> None:
    last = f"tell B {tell}", f"expect B epoch={epoch}"
    performance = played("cluster A B", TWICE, "elect B unseen=A,B", *last)
    assert not performance.problems


def test_after_a_partial_tell_the_rest_needs_another_tell() -> None:
    lines = "tell B words=1", "elect B", "expect B epoch=1", "tell B", "expect B epoch=3"
    assert not played("cluster A B", TWICE, *lines).problems


def test_skipped_changes_are_never_applied() -> None:
    told = played("cluster A B C", TWICE, "elect C unseen=A,B,C", "tell B newest words=2")
    assert output(told) == ()


def test_request_and_its_response_can_both_be_delayed() -> None:
    lines = (
        "cluster A B",
        "produce m1",
        "ask B hold=request as=x",
        "deliver x hold=reply as=y",
        "expect B LEO=0",
        "deliver y",
        "expect B LEO=1",
    )
    assert not played(*lines).problems


def test_response_to_a_delayed_request_can_be_lost() -> None:
    lines = "cluster A B", "produce m1", "ask B hold=request as=x", "deliver x lose=reply"
    assert output(played(*lines)) == (
        "B -> A  Fetch offset=0 epoch=0  (late)",
        "A -> B  [m1] HW=0  (lost)",
    )


def test_restarted_follower_ignores_a_response_to_its_earlier_process() -> None:
    lines = "cluster A B", "produce m1", "ask B hold=reply as=x", "restart B", "deliver x"
    assert output(played(*lines))[-1] == "B ignores the message"


@pytest.mark.parametrize(
    ("tick", "isr"),
    [
        ("tick 2000", "A"),
        ("tick 2000 slow=B", "A C"),
        ("tick 2000 slow=B at=A", "A C"),
        ("tick 2000 slow=B at=C", "A B C"),
    ],
)
def test_one_follower_alone_can_be_slow(tick: str, isr: str) -> None:
    lines = "cluster A B C lag=1000", "produce m1", tick, "ask-isr", f"expect isr {isr}"
    assert not played(*lines).problems


def test_refusal_of_the_controller_can_be_delayed() -> None:
    lines = (
        "cluster A B C lag=1000",
        "produce m1",
        "tick 2000 slow=B",
        "fence C unseen=A",
        "ask-isr A unseen=A hold=reply as=x",
        "deliver x",
    )
    assert output(played(*lines))[0] == "controller -> A  INVALID_UPDATE_VERSION  (late)"


def test_fence_names_the_next_leader() -> None:
    assert not played("cluster A B C", "fence A leader=C", "expect leader C").problems


def test_restart_can_be_hidden_from_a_broker() -> None:
    lines = "cluster A B C", "restart A unseen=C", "expect C epoch=0", "expect B epoch=1"
    assert not played(*lines).problems


def test_fetch_max_bytes_limits_a_fetch_to_one_batch() -> None:
    lines = "cluster A B replica.fetch.max.bytes=1", "produce m1 m2", "fetch B", "expect B LEO=1"
    assert not played(*lines).problems


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("tick at=A", "at=A needs slow=B"),
        ("tick slow=X", "unknown broker 'X'"),
        ("deliver x lose=request", "unknown lose 'request'"),
        ("deliver x hold=reply", "hold=… and as=NAME must be given together"),
        ("deliver x lose=reply", "'x' is a reply, which causes no message"),
        ("ask-isr hold=request as=y", "unknown hold 'request'"),
        ("tell B words=some", "words must be a number"),
        ("fence A leader=X", "unknown broker 'X'"),
    ],
)
def test_impossible_commands_are_reported(line: str, message: str) -> None:
    problems = played("cluster A B", "ask B hold=reply as=x", line).problems
    assert [p.message for p in problems if message in p.message]
