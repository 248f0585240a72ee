"""Events for the broker's log."""

from string import Formatter

import pytest

from tidelog.core.node.measuring.journal import EVENTS, KEPT_MAX, Journal


@pytest.mark.parametrize("name", EVENTS)
def test_a_text_uses_only_fields_that_are_there(name: str) -> None:
    event = EVENTS[name]
    used = {field for _, field, _, _ in Formatter().parse(event.text) if field}
    assert used <= set(event.fields)


def test_notes_are_returned_once() -> None:
    journal = Journal()
    journal.note("leadership_lost", "orders", 0, 3, None)
    (note,), more = journal.take()
    assert note.text() == "no longer leads orders-0: leader none, leader epoch 3"
    assert note.fields() == {"topic": "orders", "partition": 0, "leader_epoch": 3, "leader": None}
    assert more == {}
    assert journal.take() == ([], {})


def test_events_above_the_limit_are_counted() -> None:
    journal = Journal()
    for partition in range(1000):
        journal.note("isr_shrunk", "orders", partition, 1, (1, 2), (3,))
    journal.note("session_lost")
    notes, more = journal.take()
    assert [note.event for note in notes] == ["isr_shrunk"] * KEPT_MAX + ["session_lost"]
    assert more == {"isr_shrunk": 1000 - KEPT_MAX}
    assert notes[0].text() == "ISR of orders-0 shrank to [1, 2]: [3] left"
