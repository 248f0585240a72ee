"""A broker's log: of many events of one kind the first are logged, the rest are counted."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from tidelog.core.node.measuring.journal import KEPT_MAX, Journal
from tidelog.shell.broker.event_log import LINES_MAX, WINDOW_MS, EventLog
from tidelog.shell.net.event_loop import Timer


class Loop:
    """A loop whose timers the test fires."""

    def __init__(self) -> None:
        self.timers: list[tuple[int, Timer]] = []

    def after(self, delay_ms: int, act: Callable[[], None]) -> Timer:
        self.timers.append((delay_ms, Timer(act)))
        return self.timers[-1][1]

    def ring(self) -> None:
        timers, self.timers = self.timers, []
        for _, timer in timers:
            if timer.act is not None:
                timer.act()


class Log:
    """The lines that were logged."""

    def __init__(self) -> None:
        self.lines: list[tuple[str, str, str, dict[str, object]]] = []

    def __call__(self, level: str, text: str, event: str = "note", **fields: object) -> None:
        self.lines.append((level, text, event, fields))


def made() -> tuple[EventLog, Journal, Loop, Log]:
    journal, loop, log = Journal(), Loop(), Log()
    node: Any = SimpleNamespace(journal=journal)
    of: Any = loop
    return EventLog(of, node, log), journal, loop, log


def test_a_note_is_a_line_with_its_fields() -> None:
    event_log, journal, _, log = made()
    journal.note("isr_shrunk", "orders", 3, 7, (1, 2), (3,))
    event_log.log_journal()
    fields = {"topic": "orders", "partition": 3, "leader_epoch": 7, "isr": (1, 2), "left": (3,)}
    text = "ISR of orders-3 shrank to [1, 2]: [3] left"
    assert log.lines == [("WARN", text, "isr_shrunk", fields)]


def test_requests_for_metrics_hide_no_failed_login() -> None:
    event_log, _, loop, log = made()
    for number in range(1000):
        event_log.metrics_refused(f"guesser {number}")
    event_log.connection_ended("mallory", "authentication", "wrong user or password")
    assert log.lines[-1][2:] == (
        "connection_dropped",
        {"peer": "mallory", "reason": "authentication", "why": "wrong user or password"},
    )
    assert len(log.lines) == LINES_MAX + 1
    loop.ring()
    assert log.lines[-1][2:] == ("metrics_refused", {"left_out": 1000 - LINES_MAX})


def test_a_thousand_notes_are_a_few_lines_and_a_count() -> None:
    event_log, journal, loop, log = made()
    for partition in range(1000):
        journal.note("leadership_lost", "orders", partition, 7, 2)
    event_log.log_journal()
    assert len(log.lines) == KEPT_MAX == LINES_MAX
    loop.ring()
    assert log.lines[-1] == (
        "INFO",
        "980 more events of this kind: leadership_lost",
        "leadership_lost",
        {"left_out": 980},
    )


def test_a_new_second_allows_new_lines() -> None:
    event_log, _, loop, log = made()
    for _ in range(2):
        for number in range(LINES_MAX + 5):
            event_log.connection_ended(f"peer {number}", "idle", "idle for too long")
        assert [delay for delay, _ in loop.timers] == [WINDOW_MS]
        loop.ring()
    assert len(log.lines) == 2 * (LINES_MAX + 1)
    assert log.lines[-1][3] == {"left_out": 5}
    assert not loop.timers


def test_a_closed_event_log_writes_nothing() -> None:
    event_log, _, loop, log = made()
    for number in range(LINES_MAX + 5):
        event_log.connection_ended(f"peer {number}", "idle", "idle for too long")
    told = len(log.lines)
    event_log.close()
    loop.ring()
    assert len(log.lines) == told


ALWAYS = {
    "log_lost": ("orders", 1),
    "log_damaged": ("orders", 1, 7, "a reason"),
    "damage_repaired": ("orders", 1, 7, 9),
    "damage_truncated": ("orders", 1, 7, 9),
    "truncation_refused": ("orders", 1, 2, 3, 7, 9),
    "unclean_election": ("orders", 1, 2, 3, None, (), ()),
}


@pytest.mark.parametrize("event", ALWAYS)
def test_every_damaged_log_has_its_line(event: str) -> None:
    event_log, journal, loop, log = made()
    for _ in range(3 * LINES_MAX):
        journal.note(event, *ALWAYS[event])
    event_log.log_journal()
    loop.ring()
    assert [line[2] for line in log.lines] == [event] * 3 * LINES_MAX


def test_an_unclean_election_without_any_replica_in_sync_before() -> None:
    event_log, journal, _, log = made()
    journal.note("unclean_election", *ALWAYS["unclean_election"])
    event_log.log_journal()
    assert log.lines[0][1].endswith("may be lost; the old ISR was empty, the old ELR empty")
