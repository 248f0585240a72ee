"""The format of history events: it survives JSON, and is the same for brokers and simulator."""

import json

from tidelog.core.history import HistoryEvent
from tidelog.core.node.measuring.journal import EVENTS
from tidelog.core.types import TopicPartition
from tidelog.lab.broker_history import SAMPLED
from tidelog.lab.sim.runner import replay
from tidelog.shell.supervisor.report_line import json_line

SHRUNK = HistoryEvent(
    1_769_860_800_123,
    2,
    "isr_shrunk",
    {"topic": "orders", "partition": 0, "isr": [2, 3], "left": [1]},
    "WARN",
    "broker 2: ISR of orders-0 shrank",
)


def test_an_event_survives_json() -> None:
    line = json.dumps(SHRUNK.as_data())
    assert HistoryEvent.from_data(json.loads(line)) == SHRUNK
    assert json.loads(line)["ts"] == "2026-01-31T12:00:00.123Z"


def test_an_event_names_its_partition() -> None:
    assert SHRUNK.partition == TopicPartition("orders", 0)
    assert SHRUNK._replace(fields={"partition": 0}).partition is None


def test_sets_and_tuples_become_lists() -> None:
    data = SHRUNK._replace(fields={"isr": (3, 2), "left": frozenset((4, 1))}).as_data()
    assert (data["isr"], data["left"]) == ([3, 2], [1, 4])


def test_a_broker_logs_the_same_format() -> None:
    report = {
        "event": "log",
        "broker": 2,
        "level": "WARN",
        "text": SHRUNK.text,
        "name": SHRUNK.event,
        "fields": SHRUNK.fields,
    }
    found = HistoryEvent.from_data(json.loads(json_line(report)))
    assert found._replace(at_ms=SHRUNK.at_ms) == SHRUNK


def test_the_simulator_keeps_the_same_events() -> None:
    history = replay(5).history
    assert {"registered", "leadership_gained", "leader_elected"} <= {e.event for e in history}
    assert {each.event for each in history} <= {*EVENTS, SAMPLED, "stopped"}
    assert [each.at_ms for each in history] == sorted(each.at_ms for each in history)
    for each in history:
        data = json.loads(json.dumps(each.as_data(), default=str))
        assert HistoryEvent.from_data(data).as_data() == data
    gained = next(each for each in history if each.event == "leadership_gained")
    assert gained.partition is not None
