"""Stories with coordinators: their deaths, their logs, repeated markers, groups, and rules."""

import os
import subprocess
import sys

import pytest

from tidelog.lab.story.grammar import parse
from tidelog.lab.story.library import find
from tidelog.lab.story.rules import RULES, TRANSACTION_RULES
from tidelog.lab.story.runner import Performance, play

OPEN = ("cluster A coordinators=C,D", "init p1", "produce m1 by=p1")
GROUP = ("cluster A coordinators=C groups=D", "produce m1", "init p1")


def played(*lines: str, rule: str = "leader-epoch") -> Performance:
    return play(parse("\n".join(["# Words", "", *lines])), rule)


def output(*lines: str, rule: str = "leader-epoch") -> tuple[str, ...]:
    """Return what the last command printed."""
    performance = played(*lines, rule=rule)
    assert not performance.problems
    return performance.frames[-1].output


def problem(*lines: str, rule: str = "leader-epoch") -> str:
    (found,) = played(*lines, rule=rule).problems
    return found.message


# -- coordinators


def test_a_coordinator_prints_the_states_that_it_writes() -> None:
    assert output(*OPEN, "commit p1") == (
        "p1 -> C  EndTxn commit epoch=0",
        "C writes PrepareCommit(t)",
        "C -> p1  producer=0 epoch=1",
    )
    assert output(*OPEN, "commit p1", "state C D") == (
        "C leader   epoch=0 LEO=3 HW=3 log=[Empty(t)@0 Ongoing(t)@0 PrepareCommit(t)@0]",
        "D follower epoch=0 LEO=3 HW=3 log=[Empty(t)@0 Ongoing(t)@0 PrepareCommit(t)@0]",
    )


@pytest.mark.parametrize(("end", "marker"), [("commit", "commit"), ("abort", "abort")])
def test_the_next_coordinator_writes_the_markers_of_the_last_one(end: str, marker: str) -> None:
    printed = output(*OPEN, f"{end} p1", "crash C", "fence C", "markers")
    assert printed[0] == f"D -> A  WriteTxnMarkers {marker} story producer=0 epoch=1"
    assert printed[-1] == f"D writes Complete{end.capitalize()}(t)"


def test_without_a_written_outcome_the_next_coordinator_aborts_after_the_time_out() -> None:
    lines = (*OPEN, "crash C", "fence C", "markers")
    assert output(*lines) == ("no marker waits",)
    printed = output(*lines, "tick 120s", "markers")
    assert printed[0] == "D -> A  WriteTxnMarkers abort story producer=0 epoch=1"


def test_markers_of_a_dead_coordinator_are_not_delivered() -> None:
    lines = (*OPEN, "commit p1", "crash C")
    assert output(*lines, "markers") == ("no marker waits",)
    assert output(*lines, "transactions") == ("t unknown: the coordinator does not respond",)


def test_a_late_marker_of_an_earlier_coordinator_is_refused() -> None:
    lines = (*OPEN, "commit p1", "markers hold=request as=x", "crash C", "fence C", "markers")
    assert output(*lines, "deliver x") == (
        "C -> A  WriteTxnMarkers commit story producer=0 epoch=1  (late)",
        "A -> C  TRANSACTION_COORDINATOR_FENCED  (lost)",
    )


def test_a_coordinator_that_returns_follows() -> None:
    lines = (
        *OPEN,
        "commit p1",
        "crash C",
        "fence C",
        "markers",
        "start C",
        "expect C role=follower",
    )
    assert not played(*lines, "expect equal C D").problems


@pytest.mark.parametrize("lose", ["request", "reply"])
def test_lost_markers_are_sent_again(lose: str) -> None:
    lines = (*OPEN, "commit p1", f"markers lose={lose}")
    printed = output(*lines, "markers")
    assert printed[0] == "C -> A  WriteTxnMarkers commit story producer=0 epoch=1"
    assert printed[-1] == "C writes CompleteCommit(t)"


@pytest.mark.parametrize("seed", range(4))
def test_markers_of_one_transaction_are_sent_in_the_order_of_partitions(seed: int) -> None:
    """Hashes of names differ from process to process; the order of requests must not."""
    story = find("a-marker-is-repeated-and-counts-once")
    command = [sys.executable, "-m", "tidelog", "story", "check", str(story)]
    environment = {**os.environ, "PYTHONHASHSEED": str(seed)}
    subprocess.run(command, env=environment, check=True, timeout=120)


def test_clients_find_no_partition_at_a_coordinator() -> None:
    assert output(*OPEN, "consume from=C") == ("C -> client  NOT_LEADER_OR_FOLLOWER",)
    assert "NOT_LEADER_OR_FOLLOWER" in output(*OPEN, "produce m2 by=p1 to=C")[-1]


# -- groups


def test_a_member_gets_a_generation_and_the_partition() -> None:
    assert output(*GROUP, "join c1") == (
        "c1 -> D  JoinGroup",
        "D -> c1  generation=1",
        "c1 -> D  SyncGroup generation=1",
        "D writes generation=1",
        "D -> c1  assigned story",
    )


def test_a_rebalance_waits_for_the_members_of_the_last_generation() -> None:
    lines = (*GROUP, "join c1", "join c2")
    assert output(*lines) == ("c2 -> D  JoinGroup",)
    assert output(*lines, "join c1") == (
        "c1 -> D  JoinGroup",
        "D -> c1  generation=2",
        "D -> c2  generation=2",
        "c1 -> D  SyncGroup generation=2",
        "D writes generation=2",
        "D -> c1  assigned nothing",
        "c2 -> D  SyncGroup generation=2",
        "D -> c2  assigned story",
    )


@pytest.mark.parametrize("rule", ["transaction-v1", "transaction-v2"])
@pytest.mark.parametrize(("end", "offset"), [("commit", "offset=1"), ("abort", "no offset")])
def test_an_offset_counts_if_its_transaction_is_committed(rule: str, end: str, offset: str) -> None:
    lines = (*GROUP, "join c1", "send-offset 1 by=p1 of=c1")
    pending = output(*lines, "fetch-offset c1", rule=rule)
    assert pending == ("c1 -> D  OffsetFetch story", "D -> c1  UNSTABLE_OFFSET_COMMIT")
    ended = output(*lines, f"{end} p1", "markers", "fetch-offset c1", rule=rule)
    assert ended[-1] == f"D -> c1  {offset}"


def test_a_member_of_an_older_generation_cannot_commit_an_offset() -> None:
    lines = (*GROUP, "join c1", "tick 46s", "join c2", "send-offset 1 by=p1 of=c1")
    assert not played(*lines, "expect error UNKNOWN_MEMBER_ID").problems


def test_coordinators_host_the_groups_if_no_broker_is_named() -> None:
    lines = ("cluster A coordinators=C", "init p1", "join c1", "send-offset 1 by=p1 of=c1")
    assert output(*lines, "commit p1", "fetch-offset c1")[-1] == "C -> c1  offset=1"


# -- rules and invariants


HANGS = (
    "cluster A coordinators=C",
    "init p1",
    "produce m1 by=p1 hold=request as=x",
    "abort p1",
    "markers",
    "deliver x",
)


def test_the_rules_of_transactions_differ_in_version_and_verification() -> None:
    found = {rule.name: played(*HANGS, rule=rule.name) for rule in TRANSACTION_RULES}
    errors = {name: found.frames[-1].output[-1] for name, found in found.items()}
    assert errors == {
        "transaction-v1-unverified": "A -> p1  ack m1",
        "transaction-v1": "A -> p1  TRANSACTION_ABORTABLE",
        "transaction-v2": "A -> p1  INVALID_PRODUCER_EPOCH",
    }


def test_a_hanging_transaction_violates_its_invariant() -> None:
    check = (*HANGS, "check no-transaction-hangs")
    assert "A producer 0 has an open transaction" in problem(
        *check, rule="transaction-v1-unverified"
    )
    assert output(*check, rule="transaction-v1") == ("holds",)


def test_an_open_transaction_does_not_hang_while_its_coordinator_knows_it() -> None:
    for more in ((), ("commit p1",), ("crash C", "fence C")):
        assert output(*OPEN, *more, "check no-transaction-hangs") == ("holds",)


def test_a_record_counts_as_aborted_once_its_producer_has_aborted_or_is_replaced() -> None:
    read = ("markers", "consume isolation=read_committed", "check aborted-records-unread")
    for end in ("abort p1", "init p2"):
        assert output(*OPEN, end, *read) == ("holds",)
    everything = (*OPEN, "abort p1", "markers", "consume", "check aborted-records-unread")
    assert output(*everything) == ("holds",), "read_uncommitted consumers may read it"


def test_a_rule_of_transactions_excludes_the_option_of_the_same_meaning() -> None:
    message = "the rule transaction-v1 sets the option transaction.version"
    cluster = "cluster A coordinators=C transaction.version=2"
    assert problem(cluster, rule="transaction-v1") == message


def test_one_rule_of_each_kind_is_shipped() -> None:
    assert [rule.name for rule in RULES.values() if rule.shipped] == [
        "leader-epoch",
        "transaction-v2",
    ]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("join A", "A is a broker; give the consumer another name"),
        ("fetch-offset c9", "c9 is not in the group; first run: join c9"),
        ("send-offset 1 by=p1", "usage: send-offset OFFSET by=p1 of=c1"),
        ("send-offset 1 by=p1 of=c9", "c9 is not in the group; first run: join c9"),
        ("send-offset x by=p1 of=c1", "offset must be a number, not 'x'"),
    ],
)
def test_impossible_commands_are_reported(line: str, message: str) -> None:
    assert problem(*GROUP, "join c1", line) == message


def test_groups_need_a_coordinator() -> None:
    assert problem("cluster A", "join c1").startswith("transactions need a coordinator")
