"""Compare acknowledged orders with the log, the lake and the sums, record by record.

Invariant: equal counts are not enough. Every order is looked up at the offset that its
acknowledgement gave.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from tidelog.apps.demo.orders import Promise, Sum


class Records(NamedTuple):
    """Acknowledged orders compared with the orders found in the log or the lake."""

    place: str
    promised: int
    found: int
    lost: list[int]
    """Numbers of acknowledged orders that are not at their acknowledged offset."""
    repeated: int
    """How many times an order was found again after its first occurrence."""
    unasked: int
    """Orders that were found but not acknowledged at that offset."""
    out_of_order: int

    @property
    def holds(self) -> bool:
        return not (self.lost or self.repeated or self.unasked or self.out_of_order)

    def as_data(self) -> dict[str, Any]:
        return {"holds": self.holds, **self._asdict()}


class Sums(NamedTuple):
    """Expected sums compared with the sums found in the table or the topic."""

    place: str
    windows: int
    orders: int
    """Orders in all windows found."""
    cents: int
    missing: list[Sum]
    wrong: list[Sum]
    """Sums that were found but not expected, or found more than once."""

    @property
    def holds(self) -> bool:
        return not (self.missing or self.wrong) and self.windows > 0

    def as_data(self) -> dict[str, Any]:
        return {"holds": self.holds, **self._asdict()}


def compare_records(
    place: str, promises: Sequence[Promise], found: Sequence[tuple[int, int]]
) -> Records:
    """Compare orders. `found` has (offset, number) in the order in which they were read."""
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
    """Compare the expected and the found sum of every window and shop."""
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
