"""The results of the demo: comparisons record by record, and whether the demo passed.

Invariants: equal counts are not enough. Every order is looked up at the offset that its
acknowledgement gave. `holds` is true only if every check of every part passed, and no requested
part was skipped.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from tidelog.apps.demo.orders import AckedOrder, Sum
from tidelog.apps.demo.timeline import Batch


class Records(NamedTuple):
    """Acknowledged orders compared with the orders found in the log or the lake."""

    place: str
    acknowledged: int
    found: int
    lost: list[int]
    """Numbers of acknowledged orders that are not at their acknowledged offset."""
    repeated: int
    """How many times an order was found again after its first occurrence."""
    unexpected: int
    """Orders that were found but not acknowledged at that offset."""
    out_of_order: int

    @property
    def holds(self) -> bool:
        return not (self.lost or self.repeated or self.unexpected or self.out_of_order)

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
    place: str, acked: Sequence[AckedOrder], found: Sequence[tuple[int, int]]
) -> Records:
    """Compare orders. `found` has (offset, number) in the order in which they were read."""
    times = Counter(found)
    expected = {(order.offset, order.number) for order in acked}
    numbers = Counter(number for _, number in found)
    return Records(
        place=place,
        acknowledged=len(acked),
        found=len(found),
        lost=[p.number for p in acked if (p.offset, p.number) not in times],
        repeated=sum(count - 1 for count in numbers.values()),
        unexpected=sum(pair not in expected for pair in times),
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


class Failover(NamedTuple):
    """How the cluster continued after its leader was killed."""

    killed: int
    successor: int
    epoch: int
    """The epoch under which the successor leads."""
    failover_s: float
    """From the kill to the first acknowledgement by the successor."""
    rejoin_s: float
    """From the start of the killed broker until all replicas were in sync."""
    in_sync: list[int]
    """The brokers in the ISR at the end."""


class Audited(NamedTuple):
    """The result of the audit of the brokers' folders."""

    replicas: list[dict[str, Any]]
    """One row for each replica of a partition that has records."""
    findings: list[dict[str, Any]]
    damage: int
    """The number of findings that are damage."""
    took_s: float

    @property
    def holds(self) -> bool:
        return self.damage == 0 and bool(self.replicas)


class SparkPart(NamedTuple):
    """The results of the Spark job."""

    version: str
    java: str
    session_s: float
    """From the start of the job until the session was ready."""
    first_batch_s: float
    batches: list[Batch]
    lake: Records
    table: Sums
    topic: Sums
    audit: Audited

    @property
    def holds(self) -> bool:
        return self.lake.holds and self.table.holds and self.topic.holds and self.audit.holds

    def as_data(self) -> dict[str, Any]:
        return {
            **self._asdict(),
            "batches": [batch._asdict() for batch in self.batches],
            "lake": self.lake.as_data(),
            "table": self.table.as_data(),
            "topic": self.topic.as_data(),
            "audit": {"holds": self.audit.holds, **self.audit._asdict()},
        }


class Step(NamedTuple):
    """One step that the demo printed."""

    at_s: float
    text: str


class Outcome(NamedTuple):
    """The result of the whole demo."""

    brokers: int
    started_s: float
    seconds: float
    failover: Failover
    sent: int
    failed: int
    log: Records
    spark: SparkPart | None
    steps: list[Step]

    @property
    def all_in_sync(self) -> bool:
        return len(self.failover.in_sync) == self.brokers

    @property
    def holds(self) -> bool:
        return (
            self.log.holds
            and not self.failed
            and self.sent == self.log.acknowledged
            and self.failover.successor != self.failover.killed
            and self.all_in_sync
            and (self.spark is None or self.spark.holds)
        )

    def as_data(self) -> dict[str, Any]:
        failover = self.failover._asdict()
        return {
            "started_s": self.started_s,
            "seconds": self.seconds,
            **failover,
            "sent": self.sent,
            "acknowledged": self.log.acknowledged,
            "failed": self.failed,
            "in_log": self.log.found,
            "lost": self.log.lost,
            "repeated": self.log.repeated,
            "out_of_order": self.log.out_of_order,
            "spark": self.spark and self.spark.as_data(),
        }
