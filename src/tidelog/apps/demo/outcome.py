"""All results of the demo, and whether the demo passed.

Invariant: `holds` is true only if every check of every part passed, and no requested part was
skipped.
"""

from typing import Any, NamedTuple

from tidelog.apps.demo.comparison import Records, Sums
from tidelog.apps.demo.timeline import Batch


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
            and self.sent == self.log.promised
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
            "acknowledged": self.log.promised,
            "failed": self.failed,
            "in_log": self.log.found,
            "lost": self.log.lost,
            "repeated": self.log.repeated,
            "out_of_order": self.log.out_of_order,
            "spark": self.spark and self.spark.as_data(),
        }
