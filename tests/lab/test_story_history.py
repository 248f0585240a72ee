"""The history of a story: the same kinds of events and the same fields as the simulator's."""

import json
from itertools import pairwise
from pathlib import Path

import pytest
from click.testing import CliRunner

from tidelog.apps.cli.main import cli
from tidelog.core.history import HistoryEvent
from tidelog.core.node.measuring.journal import EVENTS
from tidelog.lab.broker_history import SAMPLED, SAMPLED_FIELDS
from tidelog.lab.sim.runner import replay
from tidelog.lab.story.grammar import parse
from tidelog.lab.story.library import find, load
from tidelog.lab.story.runner import play

STORY = """cluster A B C min.insync.replicas=1
produce m1
fetch B C times=2
crash A
fence A
produce m2 acks=1
crash B
fence B
start A
unfence A
stop C
"""


def history_of(text: str) -> list[HistoryEvent]:
    performance = play(parse(text), "leader-epoch")
    assert not performance.problems
    return performance.history


def test_events_have_the_kinds_and_fields_of_the_simulator() -> None:
    simulated = {each.event: set(each.fields) for seed in (5, 11) for each in replay(seed).history}
    told = {each.event: set(each.fields) for each in history_of(STORY)}
    assert {"registered", "leadership_gained", "leader_elected", "stopped"} <= told.keys()
    assert told.keys() <= {*EVENTS, SAMPLED, "stopped"}
    shared = told.keys() & simulated.keys()
    assert len(shared) > 3
    assert {event: told[event] for event in shared} == {e: simulated[e] for e in shared}


def test_events_are_in_order_and_survive_json() -> None:
    history = history_of(STORY)
    assert [each.at_ms for each in history] == sorted(each.at_ms for each in history)
    for each in history:
        data = json.loads(json.dumps(each.as_data(), default=str))
        assert HistoryEvent.from_data(data).as_data() == data


def test_elections_and_ends_of_processes_are_events() -> None:
    history = history_of(STORY)
    elected = [each.fields["leader"] for each in history if each.event == "leader_elected"]
    assert elected == [2, 3]
    assert all(each.broker is None for each in history if each.event == "leader_elected")
    ends = [(each.broker, each.fields["clean"]) for each in history if each.event == "stopped"]
    assert ends == [(1, False), (2, False), (3, True)]


def test_replicas_are_sampled_when_they_changed() -> None:
    history = [each for each in history_of(STORY) if each.event == SAMPLED]
    assert all(tuple(each.fields) == SAMPLED_FIELDS for each in history)
    last = {each.broker: each.fields for each in history}
    assert {broker: fields["log_end_offset"] for broker, fields in last.items()} == {
        1: 1,
        2: 2,
        3: 1,
    }
    ends = [each.fields["log_end_offset"] for each in history if each.broker == 1]
    assert ends == sorted(ends)
    per_broker = [each.fields for each in history if each.broker == 2]
    assert all(one != two for one, two in pairwise(per_broker))


def test_an_unclean_election_is_an_event() -> None:
    story = load(find("unclean-election-loses-and-says-so"))
    events = {each.event for each in play(story, story.policies[0]).history}
    assert {"unclean_election", "records_lost"} <= events


def test_the_command_writes_a_file(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    arguments = ["story", "play", "zombie-leader", "--history", str(path)]
    assert CliRunner().invoke(cli, arguments).exit_code == 0
    lines = path.read_text().splitlines()
    assert [HistoryEvent.from_data(json.loads(line)) for line in lines]


@pytest.mark.parametrize(
    ("more", "problem"),
    [
        (["--history", "events.jsonl"], "--history needs one rule"),
        (["--history", "no/such/folder.jsonl"], "no/such"),
    ],
)
def test_a_history_needs_one_policy_and_a_folder(more: list[str], problem: str) -> None:
    found = CliRunner().invoke(cli, ["story", "play", "hw-loses-acked-record", *more])
    assert found.exit_code == 2
    assert problem in found.output
