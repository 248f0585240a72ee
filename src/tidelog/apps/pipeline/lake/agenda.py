"""The agenda of a backfill: the stretches of offsets to send, and how many are done.

Invariants: only `done` changes in an agenda, and it only grows. So the number of a stretch never
changes, and the sink recognises a stretch by it. Stretches of a partition are in offset order.
"""

import os
import uuid
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from tidelog.apps.pipeline.lake.commit import LakeRefuses
from tidelog.apps.pipeline.lake.durable import make_folder, read_whole, write_whole
from tidelog.apps.pipeline.plan import BackfillPlan

FILE = "agenda.json"


class Count(NamedTuple):
    """The row count of a small offset range in one partition."""

    topic: str
    partition: int
    low: int
    high: int
    rows: int
    dates: frozenset[str]


class Stretch(NamedTuple):
    """One write to the sink: the first and the last offset of each partition."""

    topic: str
    ranges: dict[int, tuple[int, int]]
    rows: int
    dates: tuple[str, ...]
    """The days whose folders hold rows of the stretch."""


def cut(counts: Iterable[Count], rows_per_batch: int) -> Iterator[Stretch]:
    """Combine counts into stretches of about `rows_per_batch` rows.

    The partitions of a topic advance together: a stretch has rows of every partition
    that has unsent rows.
    """
    by_topic: dict[str, dict[int, list[Count]]] = defaultdict(lambda: defaultdict(list))
    for count in sorted(counts):
        by_topic[count.topic][count.partition].append(count)
    for partitions in by_topic.values():
        waiting = [list(reversed(each)) for each in partitions.values()]
        taken: list[Count] = []
        while any(waiting):
            taken += [each.pop() for each in waiting if each]
            if sum(count.rows for count in taken) >= rows_per_batch or not any(waiting):
                yield _stretch(taken)
                taken = []


def _stretch(counts: list[Count]) -> Stretch:
    ranges: dict[int, tuple[int, int]] = {}
    for count in counts:
        low, high = ranges.get(count.partition, (count.low, count.high))
        ranges[count.partition] = (min(low, count.low), max(high, count.high))
    dates = sorted({date for count in counts for date in count.dates})
    return Stretch(counts[0].topic, ranges, sum(count.rows for count in counts), tuple(dates))


class Agenda:
    """The stretches of one backfill, and its progress on disk."""

    def __init__(self, path: str, data: dict[str, Any]) -> None:
        self._path = path
        self._data = data
        self.stretches = [
            Stretch(
                topic,
                {int(partition): (low, high) for partition, (low, high) in ranges.items()},
                rows,
                tuple(dates),
            )
            for topic, ranges, rows, dates in data["stretches"]
        ]

    @classmethod
    def of(cls, plan: BackfillPlan) -> "Agenda | None":
        """Load the agenda of an earlier start; None if it does not exist.

        Raises LakeRefuses if the agenda belongs to another plan.
        """
        path = os.path.join(plan.checkpoint, FILE)
        data = read_whole(path)
        if data is None:
            return None
        if data["what"] != _what(plan):
            raise LakeRefuses(
                f"{plan.checkpoint} belongs to a backfill of other topics, days or targets;"
                " finish that one, or give this one another name"
            )
        return cls(path, data)

    @classmethod
    def begin(cls, plan: BackfillPlan, counts: Iterable[Count]) -> "Agenda":
        """Create and store the agenda for a new backfill."""
        data = {
            "id": f"{plan.name}-{uuid.uuid4().hex}",
            "what": _what(plan),
            "done": 0,
            "stretches": list(cut(counts, plan.rows_per_batch)),
        }
        make_folder(plan.checkpoint)
        path = os.path.join(plan.checkpoint, FILE)
        write_whole(path, data)
        return cls(path, data)

    @property
    def id(self) -> str:
        """The unique id by which the sink recognises this backfill, also after a rename."""
        return str(self._data["id"])

    @property
    def done(self) -> int:
        """The number of stretches that are written to the topic."""
        return int(self._data["done"])

    def note_done(self) -> None:
        """Record that one more stretch is written."""
        self._data["done"] += 1
        write_whole(self._path, self._data)


def _what(plan: BackfillPlan) -> dict[str, Any]:
    """Return the parts of a plan that must not change between runs of a backfill."""
    return {
        "path": plan.path,
        "topics": list(plan.topics),
        "topic": plan.topic,
        "first": str(plan.first),
        "last": str(plan.last),
        "keep_partitions": plan.keep_partitions,
    }
