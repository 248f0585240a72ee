"""Groups in the history store: state, members and committed offsets of each group over time.

A row is written when a group differs from its last row: its shape (state, members, which
partitions) or its numbers (committed offsets, and log ends if the cluster's brokers do not report
them). A row with the same shape has only the numbers, about two bytes for each partition: each
number is stored as its difference from the row with the shape.

Invariant: the row that has the shape of another row is the older one of the two, and is not deleted
before it.
"""

import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from tidelog.apps.console.history import derive
from tidelog.apps.console.history.row_codec import pack, unpack
from tidelog.apps.views.group import GroupOffset, GroupView
from tidelog.apps.views.group_sample import GroupSample
from tidelog.core.history import HistoryEvent
from tidelog.core.record.varint import INT64_BITS, read_varint, write_varint
from tidelog.core.types import TopicPartition
from tidelog.shell.client.groups.group_admin import Group, ListedGroup, Member

Numbers = tuple[int, ...]
"""For each partition the committed offset, then for each the log end; -1: unknown."""
_UNKNOWN = -1
_SHAPE_AGAIN = 1_000
"""The shape is stored again after this many rows, so that old rows can be deleted."""


class _Known(NamedTuple):
    """The last row of a group."""

    shape: dict[str, Any]
    base: Numbers
    """The numbers of the row with the shape."""
    numbers: Numbers
    rows: int
    """Rows since the one with the shape."""
    sample: GroupSample


class GroupRows:
    """Writes the rows, and remembers the last one of each group."""

    def __init__(self) -> None:
        self._known: dict[str, _Known] = {}
        self.last_ms = 0

    def forget(self) -> None:
        """Forget all rows, because the file will be read again."""
        self._known, self.last_ms = {}, 0

    def load(self, db: sqlite3.Connection) -> None:
        """Read the last row of each group."""
        (last,) = db.execute("SELECT max(at_ms) FROM group_sample").fetchone()
        if last is None:
            return
        self.last_ms = last
        for sample in groups_at(db, last):
            shape, numbers = _split(sample)
            # The next row gets the shape, which starts a new series.
            self._known[sample.listed.group] = _Known(shape, numbers, numbers, _SHAPE_AGAIN, sample)

    def record(
        self,
        db: sqlite3.Connection,
        at_ms: int,
        groups: Sequence[GroupSample],
        *,
        complete: bool,
    ) -> list[HistoryEvent]:
        """Write what changed; return the events."""
        first = not self.last_ms
        self.last_ms = at_ms
        events: list[HistoryEvent] = []
        rows: list[tuple[str, int, bytes | None, bytes | None]] = []
        found = {each.listed.group: each for each in groups}
        for name in sorted(self._known.keys() - found.keys()) if complete else ():
            del self._known[name]
            rows.append((name, at_ms, None, None))
            events.append(derive.group_deleted(at_ms, name))
        for name, sample in sorted(found.items()):
            known = self._known.get(name)
            shape, numbers = _split(sample)
            if known is not None and known.sample.view is not None and sample.view is None:
                continue  # its coordinator did not respond: what was known still holds
            if known is None and not first:
                events.append(derive.group_created(at_ms, name, sample))
            elif known is not None:
                events += derive.group_events(at_ms, name, known.sample, sample)
            if known is None or shape != known.shape or known.rows >= _SHAPE_AGAIN:
                if known is not None and (shape, numbers) == (known.shape, known.numbers):
                    continue
                rows.append((name, at_ms, pack(shape), _encode(numbers)))
                self._known[name] = _Known(shape, numbers, numbers, 0, sample)
            elif numbers != known.numbers:
                moved = [n - b for n, b in zip(numbers, known.base, strict=True)]
                rows.append((name, at_ms, None, _encode(moved)))
                self._known[name] = _Known(shape, known.base, numbers, known.rows + 1, sample)
        db.execute("INSERT INTO group_sample VALUES (?)", (at_ms,))
        db.executemany("INSERT OR REPLACE INTO group_state VALUES (?, ?, ?, ?)", rows)
        return events


def groups_at(db: sqlite3.Connection, at_ms: int) -> list[GroupSample]:
    """Return the groups of the last sample up to this time."""
    rows = db.execute(
        "SELECT name, at_ms, shape, numbers FROM group_state g WHERE at_ms ="
        " (SELECT max(at_ms) FROM group_state WHERE name = g.name AND at_ms <= ?)"
        " AND numbers IS NOT NULL ORDER BY name",
        (at_ms,),
    ).fetchall()
    found = []
    for name, row_ms, shape, numbers in rows:
        values = _decode(numbers)
        if shape is None:
            sql = (
                "SELECT shape, numbers FROM group_state WHERE name = ? AND at_ms < ?"
                " AND shape IS NOT NULL ORDER BY at_ms DESC LIMIT 1"
            )
            shape, base = db.execute(sql, (name, row_ms)).fetchone()
            values = tuple(n + b for n, b in zip(values, _decode(base), strict=True))
        found.append(_join(name, unpack(shape), values))
    return found


def delete_before(db: sqlite3.Connection, start: int) -> None:
    """Delete rows that are not needed for any moment from `start` on."""
    names = db.execute("SELECT DISTINCT name FROM group_state").fetchall()
    db.executemany(
        "DELETE FROM group_state WHERE name = ?1 AND at_ms < (SELECT max(at_ms) FROM group_state"
        " WHERE name = ?1 AND at_ms <= ?2 AND (shape IS NOT NULL OR numbers IS NULL))",
        [(name, start) for (name,) in names],
    )
    db.execute("DELETE FROM group_state WHERE numbers IS NULL AND at_ms <= ?", (start,))
    # The last sample before the new start holds until the next one.
    db.execute(
        "DELETE FROM group_sample WHERE at_ms < (SELECT max(at_ms) FROM group_sample"
        " WHERE at_ms <= ?)",
        (start,),
    )


# -- a group as a row ------------------------------------------------------------------------


def _split(sample: GroupSample) -> tuple[dict[str, Any], Numbers]:
    shape: dict[str, Any] = {"listed": list(sample.listed)[1:]}
    view = sample.view
    if view is None:
        return shape, ()
    topics: dict[str, list[int]] = {}
    for row in view.rows:
        topics.setdefault(row.key.topic, []).append(row.key.partition)
    group = view.group
    shape |= {
        "address": view.address,
        "group": [group.state, group.protocol_type, group.assignor, group.coordinator],
        "members": [
            [
                member.member_id,
                member.instance_id,
                member.client_id,
                member.host,
                [list(key) for key in sorted(member.partitions)],
            ]
            for member in group.members
        ],
        "topics": topics,
    }
    committed = [_or_unknown(row.current_offset) for row in view.rows]
    ends = [_or_unknown(row.log_end_offset) for row in view.rows]
    return shape, (*committed, *(ends if any(end >= 0 for end in ends) else ()))


def _or_unknown(offset: int | None) -> int:
    return _UNKNOWN if offset is None else offset


def _join(name: str, shape: Mapping[str, Any], numbers: Numbers) -> GroupSample:
    listed = ListedGroup(name, *shape["listed"])
    if "group" not in shape:
        return GroupSample(listed, None)
    members = [
        Member(name, instance, client, host, [TopicPartition(*key) for key in keys])
        for name, instance, client, host, keys in shape["members"]
    ]
    state, protocol_type, assignor, coordinator = shape["group"]
    group = Group(name, state, protocol_type, assignor, coordinator, members)
    owners = {key: member for member in members for key in member.partitions}
    keys = sorted(TopicPartition(t, p) for t, each in shape["topics"].items() for p in each)
    ends = numbers[len(keys) :] or [_UNKNOWN] * len(keys)
    rows = [
        GroupOffset(key, _known(committed), _known(end), owners.get(key))
        for key, committed, end in zip(keys, numbers[: len(keys)], ends, strict=True)
    ]
    return GroupSample(listed, GroupView(group, shape["address"], rows))


def _known(offset: int) -> int | None:
    return None if offset == _UNKNOWN else offset


def _encode(numbers: Iterable[int]) -> bytes:
    found = bytearray()
    for number in numbers:
        write_varint(found, number)
    return bytes(found)


def _decode(body: bytes) -> Numbers:
    return tuple(_numbers(body))


def _numbers(body: bytes) -> Iterator[int]:
    at = 0
    while at < len(body):
        number, at = read_varint(body, at, INT64_BITS)
        yield number
