"""Measure how long writes to a partition stop: from a fault to the next acknowledged write.

Only records that were sent after the fault took effect count: the acknowledgement of an earlier
record may already have been on its way. A producer sends the records of a partition in order, so
its first acknowledgement that counts is also the earliest.

A fault may pause writes some time after it began: a leader waits for a follower that was cut off,
or its session ends while etcd is away. So the longest pause of any partition is measured too.
"""

import heapq
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from tidelog.apps.verify.journals import TICKS_A_SECOND, Outcome


class Injected(NamedTuple):
    """A fault that was injected. Times are ticks since the run began."""

    kind: str
    role: str
    brokers: tuple[int, ...]
    begin: int
    end: int
    """When the fault was over: the links were restored or the process was restarted."""
    healthy: int | None
    """When all replicas were in sync again; None if that took too long."""
    led: tuple[int, ...]
    """The partitions that the brokers led when the fault began."""
    note: str = ""
    controller: bool = False
    """Whether one of the brokers was the active controller."""
    effect: int = -1
    """When the processes were killed or the links cut, if that was later than `begin`."""


def first_acks(
    begins: list[int], partition_acks: Iterable[Iterable[tuple[int, ...]]]
) -> list[int | None]:
    """Return, for each begin, when the partition first acknowledged a record sent after it.

    The entry is None if there is no such record. `begins` must be ascending; `partition_acks` has
    the rows (journals.Ack) of each producer.
    """
    earliest: list[int | None] = [None] * len(begins)
    for acks in partition_acks:
        number = 0
        for _, offset, at, waited in acks:
            if offset < Outcome.NO_OFFSET:
                continue
            while number < len(begins) and at - waited >= begins[number]:
                known = earliest[number]
                if known is None or at < known:
                    earliest[number] = at
                number += 1
            if number == len(begins):
                break
    return earliest


class Failover(NamedTuple):
    """How long writes to one partition stopped after one fault."""

    fault: int
    """The number of the fault in the run."""
    partition: int
    seconds: float | None
    """None if no later write was acknowledged."""


def failovers(
    faults: list[Injected], partition: int, partition_acks: Iterable[Iterable[tuple[int, ...]]]
) -> list[Failover]:
    """Return the waits of a partition after faults of its leader, counted from the start of each
    fault."""
    hit = [(n, fault) for n, fault in enumerate(faults) if partition in fault.led]
    acked = first_acks([max(fault.begin, fault.effect) for _, fault in hit], partition_acks)
    return [
        Failover(n, partition, None if at is None else (at - fault.begin) / TICKS_A_SECOND)
        for (n, fault), at in zip(hit, acked, strict=True)
    ]


def longest_pauses(
    faults: list[Injected], partition_acks: Iterable[Iterable[tuple[int, ...]]]
) -> list[int]:
    """Return, for each fault, the longest time in ticks without an acknowledgement of a partition.

    A pause counts if it overlaps the time from the fault until all replicas were in sync again. It
    is counted from the fault on, until the next fault at most. Faults must be ascending and not
    overlap.
    """
    spans = [(fault.begin, max(fault.end, fault.healthy or 0)) for fault in faults]
    longest = [0] * len(faults)
    times = heapq.merge(*(_acknowledged_at(acks) for acks in partition_acks))
    before, first = 0, 0
    for at in times:
        while first < len(spans) and spans[first][1] <= before:
            first += 1
        number = first
        while number < len(spans) and spans[number][0] < at:
            begin = spans[number][0]
            until = min([at, *(span[0] for span in spans[number + 1 : number + 2])])
            longest[number] = max(longest[number], until - max(before, begin))
            number += 1
        before = at
    return longest


def _acknowledged_at(acks: Iterable[tuple[int, ...]]) -> Iterator[int]:
    for _, offset, at, _ in acks:
        if offset >= Outcome.NO_OFFSET:
            yield at


class Waits(NamedTuple):
    """A summary of the waits after faults of one kind."""

    waited: int
    median_s: float | None
    longest_s: float | None
    never: int


NO_WAITS = Waits(0, None, None, 0)


def summarize(waits: list[float | None]) -> Waits:
    """Return median and maximum of the waits; waits that never ended are counted separately."""
    ended = sorted(wait for wait in waits if wait is not None)
    if not ended:
        return Waits(len(waits), None, None, len(waits))
    return Waits(len(waits), ended[len(ended) // 2], ended[-1], len(waits) - len(ended))
