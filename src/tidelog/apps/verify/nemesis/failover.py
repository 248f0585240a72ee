"""How long writes to a partition stood still: from a fault to the next acknowledged write.

Only a record that was sent after the fault began counts: the acknowledgement of an earlier
one may have been on its way already. A producer sends the records of a partition in order,
so the first of its acknowledgements that qualifies is its earliest.
"""

from collections.abc import Iterable
from typing import NamedTuple

from tidelog.apps.verify.history.rows import TICKS_A_SECOND, Outcome


class Injected(NamedTuple):
    """One fault as it happened. Times are ticks since the run began."""

    kind: str
    role: str
    brokers: tuple[int, ...]
    begin: int
    end: int
    """When it was over: healed, or the process started again."""
    healthy: int | None
    """When every replica was in sync again; None if not within the time given."""
    led: tuple[int, ...]
    """The partitions that the brokers led when it began."""
    note: str = ""
    controller: bool = False
    """One of the brokers was in office as controller."""


def first_acks(
    begins: list[int], partition_acks: Iterable[Iterable[tuple[int, ...]]]
) -> list[int | None]:
    """For each of the ascending `begins`, when the first record sent after it was
    acknowledged by this partition; None if none was.

    `partition_acks` has the rows (history.rows.Ack) of each producer.
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
    """How long one partition waited after one fault."""

    fault: int
    """Its number in the run."""
    partition: int
    seconds: float | None
    """None: no write was acknowledged any more."""


def failovers(
    faults: list[Injected], partition: int, partition_acks: Iterable[Iterable[tuple[int, ...]]]
) -> list[Failover]:
    """The waits of a partition, for the faults that hit its leader."""
    hit = [(n, fault.begin) for n, fault in enumerate(faults) if partition in fault.led]
    acked = first_acks([begin for _, begin in hit], partition_acks)
    return [
        Failover(n, partition, None if at is None else (at - begin) / TICKS_A_SECOND)
        for (n, begin), at in zip(hit, acked, strict=True)
    ]


class Waits(NamedTuple):
    """The waits after the faults of one kind."""

    waited: int
    median_s: float | None
    longest_s: float | None
    never: int


def summarise(waits: list[float | None]) -> Waits:
    """Median and longest; what never ended is counted apart."""
    ended = sorted(wait for wait in waits if wait is not None)
    if not ended:
        return Waits(len(waits), None, None, len(waits))
    return Waits(len(waits), ended[len(ended) // 2], ended[-1], len(waits) - len(ended))
