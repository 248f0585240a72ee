"""Promises beside the log, the lake and the aggregates, record by record.

Always true: nothing is counted as right that was only counted; every order is looked up by the
offset at which its producer was told it is.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from tidelog.apps.demo.orders import Promise, Sum


class Records(NamedTuple):
    """Promises beside (offset, number) of a place where the orders are."""

    place: str
    promised: int
    found: int
    lost: list[int]
    """Numbers that are not where they were promised to be."""
    repeated: int
    """More than once there."""
    unasked: int
    """There, and promised by nobody."""
    out_of_order: int

    @property
    def holds(self) -> bool:
        return not (self.lost or self.repeated or self.unasked or self.out_of_order)

    def as_data(self) -> dict[str, Any]:
        return {"holds": self.holds, **self._asdict()}


class Sums(NamedTuple):
    """What the windows must hold beside what a place says."""

    place: str
    windows: int
    orders: int
    """In all windows of the place."""
    cents: int
    missing: list[Sum]
    wrong: list[Sum]
    """In the place, but not so, or not there once."""

    @property
    def holds(self) -> bool:
        return not (self.missing or self.wrong) and self.windows > 0

    def as_data(self) -> dict[str, Any]:
        return {"holds": self.holds, **self._asdict()}


def compare_records(
    place: str, promises: Sequence[Promise], found: Sequence[tuple[int, int]]
) -> Records:
    """`found`: (offset, number), in the order of the place."""
    times = Counter(found)
    asked = {(promise.offset, promise.number) for promise in promises}
    numbers = Counter(number for _, number in found)
    return Records(
        place=place,
        promised=len(promises),
        found=len(found),
        lost=[p.number for p in promises if (p.offset, p.number) not in times],
        repeated=sum(count - 1 for count in numbers.values()),
        unasked=sum(pair not in asked for pair in times),
        out_of_order=sum(later < earlier for (_, earlier), (_, later) in pairwise(found)),
    )


def compare_sums(place: str, wanted: Iterable[Sum], found: Iterable[Sum]) -> Sums:
    """Every window of every shop, as it must be and as it is."""
    must, there = set(wanted), list(found)
    times = Counter(there)
    return Sums(
        place=place,
        windows=len({each.window_ms for each in there}),
        orders=sum(each.orders for each in there),
        cents=sum(each.cents for each in there),
        missing=sorted(must - set(times)),
        wrong=sorted(each for each, count in times.items() if each not in must or count > 1),
    )
