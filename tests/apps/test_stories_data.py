"""Played stories as data, the shelf of included stories, and the bounds of edited ones."""

import json
from typing import Any

import pytest

from tidelog.apps.stories import bounded
from tidelog.apps.stories.bounded import RunRefused, run_edited
from tidelog.apps.stories.playing import RECORDS_MAX, story_data
from tidelog.apps.stories.shelf import included, played, summaries
from tidelog.lab.story.grammar import parse
from tidelog.lab.story.runner import perform_all

LOSS = "truncation/hw-loses-acked-record"
FORK = "truncation/hw-lets-logs-diverge"
RULES = ["high-watermark", "leader-epoch"]


def step(data: dict[str, Any], command: str) -> dict[str, Any]:
    return next(each for each in data["steps"] if each["command"] == command)


def replica(data: dict[str, Any], command: str, rule: str, name: str) -> dict[str, Any]:
    replicas = step(data, command)["frames"][rule]["replicas"]
    found: dict[str, Any] = next(each for each in replicas if each["name"] == name)
    return found


def data_of(text: str) -> dict[str, Any]:
    story = parse(text)
    return story_data(story, text, perform_all(story))


def test_every_included_story_is_listed_and_can_be_requested_by_name() -> None:
    names = {f"{each['folder']}/{each['name']}" for each in summaries()}
    assert names == set(included())
    loss = next(each for each in summaries() if each["name"] == "hw-loses-acked-record")
    assert loss["policies"] == RULES
    for name in ("../secret", "/etc/passwd", "hw-loses-acked-record.txt", ""):
        with pytest.raises(KeyError):
            played(name)


def test_a_played_story_has_the_prose_the_rules_and_where_they_part() -> None:
    data = played(LOSS)
    assert data["policies"] == RULES
    assert data["passed"]
    parting = data["steps"][data["parts_at"]]
    assert parting["command"] == "restart B"
    assert parting["prose"][0].startswith("B restarts inside the gap")
    assert {each["sign"] for each in data["legend"]} >= {"LEO", "HW", "m1@0", "last_epoch=0"}
    old, new = data["verdicts"]
    assert old["broken"] == [
        {"invariant": "acked-records-survive", "what": "acked, then lost: m2 at 1"}
    ]
    assert new["kept"] == ["acked-records-survive", "logs-agree"]
    assert (old["shipped"], new["shipped"]) == (False, True)
    json.dumps(data)


def test_a_frame_has_the_state_of_each_replica_after_the_step() -> None:
    data = played(LOSS)
    before = replica(data, "state", "leader-epoch", "B")
    assert before["log"] == [[0, 0, "m1"], [1, 0, "m2"]]
    assert (before["log_end_offset"], before["high_watermark"]) == (2, 1)
    assert before["epochs"] == [[0, 0]]
    assert before["role"] == "follower"
    assert before["in_isr"]
    cut = replica(data, "restart B", "high-watermark", "B")
    assert cut["log"] == [[0, 0, "m1"]]
    down = replica(data, "crash A", "leader-epoch", "A")
    assert (down["role"], down["alive"], down["leader_epoch"]) == ("down", False, None)
    assert down["log_end_offset"] == 2, "the disk of a dead broker is shown"
    elected = step(data, "elect B")["frames"]["leader-epoch"]["registration"]
    assert (elected["leader"], elected["leader_epoch"], elected["isr"]) == ("B", 1, ["B"])


def test_messages_have_sender_receiver_and_fate() -> None:
    frame = step(played(LOSS), "fetch B lose=reply")["frames"]["leader-epoch"]
    assert frame["lines"] == [
        {"text": "Fetch offset=2 epoch=0", "from": "B", "to": "A", "mark": ""},
        {"text": "A HW 1 -> 2", "from": "", "to": "", "mark": ""},
        {"text": "ack m2", "from": "A", "to": "client", "mark": ""},
        {"text": "[] HW=2", "from": "A", "to": "B", "mark": "lost"},
    ]


def test_a_lost_record_is_named_from_the_step_on_that_loses_it() -> None:
    data = played(LOSS)
    crash, elect = step(data, "crash A")["frames"], step(data, "elect B")["frames"]
    assert crash["high-watermark"]["lost"] == []
    assert elect["high-watermark"]["lost"] == [[1, 0, "m2"]]
    assert elect["leader-epoch"]["lost"] == []


def test_deleted_records_are_not_lost() -> None:
    data = data_of("cluster A B\nproduce m1..m3\nfetch B times=2\ndelete-records 2\n")
    assert data["steps"][-1]["frames"]["leader-epoch"]["lost"] == []
    assert replica(data, "delete-records 2", "leader-epoch", "A")["log_start_offset"] == 2


def test_a_step_of_one_rule_has_a_frame_under_that_rule_only() -> None:
    only = step(played(LOSS), "expect[high-watermark] lost m2")
    assert list(only["frames"]) == ["high-watermark"]
    assert only["checks"]
    assert not only["differs"]


def test_a_step_that_fails_is_the_last_and_has_its_problem() -> None:
    data = data_of("cluster A B\nfetch Z\nproduce m1\n")
    assert not data["passed"]
    assert data["problems"][0]["line"] == 2
    assert data["steps"][-1]["frames"]["leader-epoch"]["replicas"] == []
    assert data["steps"][-1]["frames"]["leader-epoch"]["registration"] is None


def test_a_long_log_is_cut_to_its_newest_records() -> None:
    count = RECORDS_MAX + 20
    data = data_of(f"cluster A\nproduce m1..m{count} batch=true\n")
    found = data["steps"][-1]["frames"]["leader-epoch"]["replicas"][0]
    assert len(found["log"]) == RECORDS_MAX
    assert found["omitted"] == 20
    assert found["log"][-1] == [count - 1, 0, f"m{count}"]


# -- stories about transactions

DECISION = "transactions/a-written-decision-outlives-its-coordinator"
OFFSETS = "transactions/offsets-move-with-their-transaction"
HANGS = "transactions/a-late-record-opens-a-transaction-without-end"


def test_a_coordinator_is_shown_with_the_states_that_it_wrote() -> None:
    data, rule = played(DECISION), "leader-epoch"
    before = [replica(data, "commit p1", rule, name) for name in ("C", "D")]
    assert [each["log"][-1][2] for each in before] == ["PrepareCommit(t)"] * 2
    assert [(each["leads"], each["role"]) for each in before] == [
        (True, "leader"),
        (False, "follower"),
    ]
    assert all(each["internal"] and each["topic"] == "__transaction_state" for each in before)
    after = [replica(data, "markers", rule, name) for name in ("C", "D")]
    assert [(each["leads"], each["alive"]) for each in after] == [(False, False), (True, True)]
    assert after[1]["log"][-1][2] == "CompleteCommit(t)"
    assert {"Ongoing(t)", "producer=0 epoch=1", "commit(7)"} <= {
        each["sign"] for each in data["legend"]
    }


def test_a_replica_has_its_last_stable_offset_only_in_stories_about_transactions() -> None:
    found = replica(played(DECISION), "commit p1", "leader-epoch", "A")
    assert (found["last_stable_offset"], found["high_watermark"]) == (0, 1)
    assert replica(played(LOSS), "state", "leader-epoch", "A")["last_stable_offset"] is None


def test_each_replica_is_in_sync_with_the_leader_of_its_own_partition() -> None:
    frame = played(OFFSETS)["steps"][-1]["frames"]["leader-epoch"]
    assert {
        each["name"]: (each["topic"], each["leads"], each["in_isr"]) for each in frame["replicas"]
    } == {
        "A": ("story", True, True),
        "E": ("other", True, True),
        "C": ("__transaction_state", True, True),
        "D": ("__consumer_offsets", True, True),
    }


def test_rules_of_transactions_are_side_by_side() -> None:
    data = played(HANGS)
    verdicts = {each["policy"]: each for each in data["verdicts"]}
    assert [each["shipped"] for each in verdicts.values()] == [False, False, True]
    assert verdicts["transaction-v1-unverified"]["broken"][0]["invariant"] == "no-transaction-hangs"
    assert verdicts["transaction-v2"]["kept"] == ["no-transaction-hangs"]
    assert data["steps"][data["parts_at"]]["command"] == "abort p1", "not a step of `given:`"


# -- edited stories


def test_an_edited_story_is_played_like_an_included_one() -> None:
    text = played(FORK)["text"]
    edited = run_edited(text.replace("produce m3", "produce changed"))
    assert not edited["passed"], "its expected output has m3"
    same = run_edited(text)
    assert same["steps"] == played(FORK)["steps"]


@pytest.mark.parametrize(
    ("text", "message", "line"),
    [
        ("cluster A B\nprodce m1\n----\n----\n", "two outputs", 4),
        ("", "a story needs at least one command", 1),
        ("cluster A\n" + "state\n" * bounded.STEPS_MAX, "at most 300 are run", 0),
        (
            "rules: high-watermark, leader-epoch\ncluster A\n" + "state\n" * 150,
            "at most 300 are run",
            0,
        ),
        ("# " + "x" * bounded.TEXT_BYTES_MAX, "larger than 64 KiB", 0),
    ],
    ids=["a mistake", "nothing", "too many steps", "too many steps under two rules", "too large"],
)
def test_a_story_that_cannot_be_run_is_refused(text: str, message: str, line: int) -> None:
    with pytest.raises(RunRefused, match=message) as refused:
        run_edited(text)
    assert refused.value.line == line


def test_a_story_that_takes_too_long_is_stopped() -> None:
    work = "\n".join(f"produce r{n}x1..r{n}x1000\nfetch B C times=1000" for n in range(40))
    with pytest.raises(RunRefused, match="stopped after 1 seconds"):
        run_edited(f"cluster A B C\n{work}\n", seconds=1)


def test_a_story_reads_and_writes_no_file() -> None:
    story = "cluster A B\ncrash A\nput-file A ../../../../tmp/story-escaped x\nfiles A\n"
    data = run_edited(story)
    texts = [line["text"] for line in data["steps"][-1]["frames"]["leader-epoch"]["lines"]]
    assert not any("root:" in text for text in texts)
    from pathlib import Path

    assert not Path("/tmp/story-escaped").exists()
