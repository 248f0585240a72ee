"""A broker's log as JSON: one object a line, whatever is reported."""

import json
from typing import Any

import pytest

from tidelog.shell.supervisor.report_line import json_line, line_writer, log_line


@pytest.mark.parametrize(
    ("report", "level", "event", "fields"),
    [
        (
            {"event": "listening", "broker": 1, "host": "h", "port": 2, "internal_port": 3},
            "INFO",
            "listening",
            {"host": "h", "port": 2, "internal_port": 3},
        ),
        ({"event": "not acting", "broker": 1}, "WARN", "not_acting", {}),
        (
            {"event": "stopped", "broker": 1, "clean": False, "reason": "a\nb"},
            "ERROR",
            "stopped",
            {"clean": False, "reason": "a\nb"},
        ),
        (
            {
                "event": "log",
                "broker": 1,
                "level": "WARN",
                "text": "broker 1: x",
                "name": "isr_shrunk",
                "fields": {"topic": "orders", "isr": (1, 2)},
            },
            "WARN",
            "isr_shrunk",
            {"topic": "orders", "isr": [1, 2]},
        ),
        ({"event": "log", "level": "WARN", "text": "y"}, "WARN", "note", {}),
    ],
)
def test_a_report_is_one_object(
    report: dict[str, Any], level: str, event: str, fields: dict[str, Any]
) -> None:
    line = json_line(report)
    assert "\n" not in line
    said = json.loads(line)
    assert said.pop("ts").endswith("Z")
    assert (said.pop("level"), said.pop("event")) == (level, event)
    assert said.pop("broker") == report.get("broker")
    assert said.pop("text")
    assert said == fields


def test_the_setting_chooses() -> None:
    assert line_writer("json") is json_line
    assert line_writer("text") is log_line


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("a\r2026-01-01 00:00:00 INFO  forged", "a\\r2026-01-01 00:00:00 INFO  forged"),
        ("a\x1b[2J\x07", "a\\x1b[2J\\x07"),
        ("a\x85b\u2028c\u202ed\x9b", "a\\x85b\\u2028c\\u202ed\\x9b"),
        ("\udcff", "\\udcff"),
        ("a\nb", "a b"),
        ("名前 ü", "名前 ü"),
    ],
)
def test_a_line_of_text_has_printable_characters_only(name: str, shown: str) -> None:
    report = {"event": "log", "level": "WARN", "text": f"user '{name}' failed", "broker": 1}
    line = log_line(report)
    assert line.endswith(f"user '{shown}' failed")
    assert line.isprintable()
    reason = log_line({"event": "failed", "reason": "one\ntwo", "broker": 1})
    assert reason.endswith("one\\ntwo")
    json.loads(json_line(report))
