"""The demo's history has one event format, and the picture is drawn from the written file."""

import json
from pathlib import Path

from demo_outcome import a_history

from tidelog.apps.demo.history import EVENTS, STARTED, read_history, rounds_of
from tidelog.apps.demo.report import picture
from tidelog.apps.demo.timeline import build_timeline
from tidelog.core.history import HistoryEvent


def test_the_picture_of_a_history_file_is_that_of_the_run(tmp_path: Path) -> None:
    history = a_history()
    path = tmp_path / "history.jsonl"
    path.write_text(history.lines())
    read = read_history(str(path))
    assert rounds_of(read) == rounds_of(history.events)
    assert build_timeline(read) == build_timeline(history.events)
    picture.write(build_timeline(read), str(tmp_path / "read.svg"))
    picture.write(build_timeline(history.events), str(tmp_path / "run.svg"))
    assert (tmp_path / "read.svg").read_text() == (tmp_path / "run.svg").read_text()


def test_lines_are_in_the_order_of_time_and_begin_with_the_start() -> None:
    lines = [json.loads(line) for line in a_history().lines().splitlines()]
    assert lines[0]["event"] == STARTED
    assert [line["ts"] for line in lines] == sorted(line["ts"] for line in lines)
    assert {line["event"] for line in lines} <= set(EVENTS)


def test_fields_of_events_are_those_of_the_table() -> None:
    events = {event.event: event for event in a_history().events if event.fields}
    for name, event in events.items():
        assert set(event.fields) == set(EVENTS[name].fields)


def test_a_brokers_log_is_part_of_the_history(tmp_path: Path) -> None:
    event = HistoryEvent(5, 2, "isr_shrunk", {"topic": "orders", "partition": 0, "isr": [2, 3]})
    log = tmp_path / "broker-2.log"
    log.write_text(f"not an event\n{json.dumps(event.as_data())}\n[1]\n")
    history = a_history()
    before = len(history.events)
    history.add_log(str(log))
    assert history.events[before:] == [event]
