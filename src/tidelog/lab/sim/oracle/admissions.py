"""The reports of brokers and the controller about records that one partition may have lost.

When several replicas are damaged at a time, no rule can save a record that all of them lack.
Then the promise is that no record is lost silently. One of these covers each committed record
that the next leader lacks:

- a report of damage at or before its offset;
- a report of dropped records;
- an election that is recorded as unclean.

A report counts until every replica is repaired.
"""

from collections.abc import Sequence

from tidelog.core.node.measuring.journal import Note
from tidelog.core.types import Offset, TopicPartition

_DROPPED = ("truncated", "records_lost")


class LossReports:
    """The offsets of one partition that were reported as damaged or dropped."""

    __slots__ = ("_damaged_from", "_dropped", "_name")

    def __init__(self, name: TopicPartition) -> None:
        self._name = name
        self._damaged_from: Offset | None = None
        self._dropped: list[tuple[Offset, Offset]] = []

    def noted(self, notes: Sequence[Note]) -> None:
        """Read the events that a broker logged (core/node/measuring/journal.py)."""
        for note in notes:
            if note.values[:2] != self._name:
                continue
            fields = note.fields()
            if note.event == "log_damaged":
                self._add_damage(fields["offset"])
            elif note.event == "log_lost":
                self._add_damage(0)
            elif note.event in _DROPPED:
                self._dropped.append((fields["start"], fields["end"]))

    def _add_damage(self, offset: Offset) -> None:
        known = self._damaged_from
        self._damaged_from = offset if known is None else min(offset, known)

    def covers(self, offset: Offset) -> bool:
        """Return whether a broker reported the loss of this record."""
        if self._damaged_from is not None and self._damaged_from <= offset:
            return True
        return any(start <= offset < end for start, end in self._dropped)

    def clear(self) -> None:
        """Drop all reports: every replica is repaired, so later losses need new reports."""
        self._damaged_from = None
        self._dropped.clear()
