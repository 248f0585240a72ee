"""Playing stories: passes, failures and their messages, and rewriting expected outputs."""

import pytest

from tidelog.lab.story.grammar import parse
from tidelog.lab.story.runner import perform_all, play, rewrite
from tidelog.lab.story.stage.world import World

TWO = "cluster A B\nproduce m1\nfetch B times=2\n"


def problems(text: str, policy: str = "leader-epoch") -> list[tuple[int, str]]:
    found = play(parse(text), policy).problems
    return [(problem.line, problem.message) for problem in found]


@pytest.mark.parametrize(
    "fact",
    [
        "A LEO=1 HW=1 epoch=0 start=0 role=leader",
        "B role=follower",
        "log A m1@0",
        "log A m1",
        "epochs A 0:0",
        "isr B A",
        "leader A",
        "acked m1",
        "error NONE",
        "equal A B",
        "consumed",
        "holds logs-agree",
        "up A B",
    ],
)
def test_a_fact_holds_and_its_opposite_does_not(fact: str) -> None:
    assert problems(f"{TWO}expect {fact}\n") == []
    assert problems(f"{TWO}expect not {fact}\n") == [
        (4, f"expected to be false, but it is true: {fact}")
    ]


@pytest.mark.parametrize(
    ("fact", "message"),
    [
        ("A LEO=2", "A has LEO=1, not 2"),
        ("log A m1@1", "A has log=[m1@0]"),
        ("log A", "A has log=[m1@0]"),
        ("epochs A 0:1", "A has epochs [0:0]"),
        ("isr A", "the ISR is A B"),
        ("leader none", "the leader is A"),
        ("error NOT_ENOUGH_REPLICAS", "the last response was NONE"),
        ("lost m1", "not lost: m1"),
        ("consumed m1", "read []"),
        ("offset 3", "no request returned an offset; first run: list-offsets latest"),
        ("violated logs-agree", "logs-agree holds"),
    ],
)
def test_false_expectation_is_a_problem(fact: str, message: str) -> None:
    assert problems(f"{TWO}expect {fact}\n") == [(4, message)]


def test_unacknowledged_record_may_be_lost() -> None:
    waits = f"{TWO}produce m2\nexpect acked m1 m2\n"
    assert problems(waits) == [(5, "never acknowledged: m2")]
    assert problems(f"{TWO}produce m2\nfence A\nexpect lost m2\nexpect not acked m2\n") == []


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("prodcue m2", "unknown command 'prodcue'; did you mean produce?"),
        ("fetch D", "unknown broker 'D'; known: A, B"),
        ("fetch B looze=reply", "unknown option of fetch 'looze'; did you mean lose?"),
        ("fetch B lose=answer", "unknown lose 'answer'; known: request, reply"),
        ("fetch B hold=reply", "hold=… and as=NAME must be given together"),
        ("fetch B lose=reply hold=reply as=x", "a message is lost or held, not both"),
        ("fetch B times=0", "times is between 1 and 1000"),
        ("fetch B times=x", "times must be a number, not 'x'"),
        ("fetch", "usage: fetch B [C …]"),
        ("deliver x", "no message is held as 'x'"),
        ("heal now=yes", "heal takes no options"),
        ("tick soon", "milliseconds must be a number"),
        ("start A", "A is up already"),
        ("tear A", "A is up; crash it first"),
        ("cut A 0", "A is up; crash it first"),
        ("delete-folder A", "A is up; crash it first"),
        ("flip A", "usage: flip A OFFSET"),
        ("elect B please", "usage: elect B [unclean]"),
        ("tell A later", "usage: tell A [newest]"),
        ("partition A B A", "usage: partition A | B C"),
        ("partition A | Z", "unknown broker 'Z'"),
        ("reassign A A", "named twice"),
        ("cluster A", "the story has a cluster already"),
        ("check everything", "unknown invariant 'everything'"),
        ("check logs-agre", "did you mean logs-agree?"),
        ("expect", "expect needs a fact"),
        ("expect A", "expect needs a property"),
        ("expect A LEOO=1", "did you mean LEO?"),
        ("expect akked m1", "did you mean acked?"),
        ("expect leader Q", "expect leader needs one broker"),
        ("expect lost m9", "record m9 was never produced"),
        ("expect not acked m9", "record m9 was never produced"),
        ("expect error NOT_A_THING", "unknown error 'NOT_A_THING'"),
        ("produce m2 acks=2", "unknown acks '2'"),
        ("produce m2 codec=zip", "unknown codec 'zip'"),
        ("lose-unflushed A keep=all", "keep must be a number"),
        ("crash A\nfetch A", "A is down; start it first"),
        ("crash A\ntear A\ntear A", "A has no record to tear"),
        ("crash A\nflip A 7", "A has no record at 7"),
        ("crash A\nzero A 0\ncut A 0", "A has no record at 0"),
        ("crash A\nput-epoch A 0 9999999999", "epoch is at most 2147483647"),
        ("crash A\ndelete-segment A", "usage: delete-segment A OFFSET"),
        ("crash A\ndelete-folder A all=maybe", "unknown all 'maybe'; known: true, false"),
        ("crash A\nput-file A nothing 0", "A has no file 'nothing'"),
        ("partition A | controller\nstop A", "A can't stop"),
    ],
)
def test_impossible_command_ends_the_story_and_names_its_line(line: str, message: str) -> None:
    (found,) = problems(f"{TWO}{line}\nstate\n")
    assert found[0] == 3 + len(line.splitlines())
    assert message in found[1]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("cluster", "name at least one broker"),
        ("cluster A A", "named twice"),
        ("cluster A-B", "invalid broker name"),
        ("cluster A client", "invalid broker name"),
        ("cluster A B C D E F G H I J", "at most 9 brokers"),
        ("cluster A lagg=3", "did you mean lag?"),
        ("cluster A B down=C", "unknown broker 'C'"),
        ("cluster A B down=A,B", "at least one replica must be up"),
        ("cluster A unclean=maybe", "unknown unclean 'maybe'; known: true, false"),
        ("cluster A recovery=fast", "known: none, balanced, aggressive"),
        ("produce m1", "no cluster yet"),
    ],
)
def test_story_must_begin_with_a_cluster(line: str, message: str) -> None:
    (found,) = problems(f"{line}\n")
    assert message in found[1]


def test_differing_output_is_shown_with_the_expected_one() -> None:
    ((line, message),) = problems("cluster A\nstate\n----\nA leads\n")
    assert line == 2
    assert message.splitlines() == [
        "actual output:",
        "  A leader   epoch=0 LEO=0 HW=0 log=[]",
        "expected output:",
        "  A leads",
    ]


LOSS = """\
policies: high-watermark, leader-epoch

given:
    cluster A B
    produce m1
    fetch B
    fetch B lose=reply
    restart B
    crash A
    elect B

check acked-records-survive
----

check hw-below-leo
----
"""


def test_a_bare_check_must_hold() -> None:
    text = LOSS.replace("----\n", "")
    assert problems(text, "leader-epoch") == []
    message = "acked-records-survive is violated: acked, then lost: m1 at 0"
    assert problems(text, "high-watermark") == [(12, message)]


def test_rewrite_splits_outputs_only_where_policies_differ() -> None:
    after = rewrite(LOSS, parse(LOSS))
    assert after.endswith(
        "check acked-records-survive\n"
        "---- high-watermark\nVIOLATED  acked, then lost: m1 at 0\n"
        "---- leader-epoch\nholds\n"
        "\ncheck hw-below-leo\n----\nholds\n"
    )
    story = parse(after)
    assert all(performance.passed for performance in perform_all(story))
    assert rewrite(after, story) == after


def test_exception_in_the_code_is_a_problem_with_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_world: World, _elapsed_ms: int) -> None:
        raise ZeroDivisionError("oh")

    monkeypatch.setattr(World, "pass_time", fail)
    ((line, message),) = problems("cluster A\n\ntick 5\n")
    assert "ZeroDivisionError: oh" in message
    assert line == 1


DOWN = "cluster A B segment=2{option}\nproduce m1..m5\nfetch B times=5\nstop A\n"


@pytest.mark.parametrize(
    "damage",
    [
        "flip A 1",
        "zero A 1",
        "cut A 1",
        "cut A 4",
        "delete-segment A 0",
        "delete-segment A 2",
        "delete-folder A",
        "delete-folder A all=true",
        "put-file A recovery-point-offset-checkpoint 0 | 1 | story 0 99999999",
    ],
)
def test_every_kind_of_damage_is_repaired_if_logs_are_reported(damage: str) -> None:
    story = DOWN.format(option=" recovery=balanced") + f"{damage}\nstart A\nsettle\n"
    assert problems(story + "expect isr A B\nexpect log A m1..m5\nexpect equal A B\n") == []


def test_controller_ignores_reports_without_the_option() -> None:
    story = "cluster A B\nproduce m1 m2\n"
    story += "fetch B times=2\ncrash B\ncut B 1\nstart B\nexpect isr A B\n"
    assert problems(story) == []


def test_broker_stays_fenced_while_its_report_cannot_reach_the_controller() -> None:
    story = (
        "cluster A B recovery=balanced min.insync.replicas=2\nproduce m1 m2\nfetch B times=2\n"
        "stop B A\ncut A 1\npartition A | controller\nstart A\nheal\nelect A\n"
        "----\nno election: A is fenced or out of reach\n\n"
        "start B\nexpect leader B\nsettle\nexpect isr A B\nexpect log A m1 m2\n"
    )
    assert problems(story) == []
