"""What a backfill has to send, settled once: stretches of offsets, and how many are done.

Always true: an agenda never changes but for `done`, which only grows; so a stretch has one number
for ever, and the sink knows it by that. Stretches of a partition follow each other.
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
    """Rows of one partition that lie near each other."""

    topic: str
    partition: int
    low: int
    high: int
    rows: int
    dates: frozenset[str]


class Stretch(NamedTuple):
    """One write: for each partition the first and the last offset."""

    topic: str
    ranges: dict[int, tuple[int, int]]
    rows: int
    dates: tuple[str, ...]
    """The folders that have rows of it."""


def cut(counts: Iterable[Count], rows_per_batch: int) -> Iterator[Stretch]:
    """Stretches of about `rows_per_batch` rows; partitions of a topic go on side by side."""
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
    """The stretches of one backfill, and its progress."""

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
        """The one that was begun; None: none was. Raises LakeRefuses if it is of another plan."""
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
        """Settle what is to be sent."""
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
        """Of this backfill alone: the sink knows it by that, whatever it is called later."""
        return str(self._data["id"])

    @property
    def done(self) -> int:
        """How many stretches are in the topic."""
        return int(self._data["done"])

    def note_done(self) -> None:
        """One more."""
        self._data["done"] += 1
        write_whole(self._path, self._data)


def _what(plan: BackfillPlan) -> dict[str, Any]:
    """What must not change between two runs of a backfill."""
    return {
        "path": plan.path,
        "topics": list(plan.topics),
        "topic": plan.topic,
        "first": str(plan.first),
        "last": str(plan.last),
        "keep_partitions": plan.keep_partitions,
    }
