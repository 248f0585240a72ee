"""The result of an audit: findings, a summary of all partitions, and how to repair them.

Invariant: a replica counts as undamaged only if it has all committed records and the audit found
no damage in its log. So no user deletes the last good copy.
"""

from collections.abc import Iterable
from typing import Any, NamedTuple

from tidelog.apps.audit.checks.lineage_fork import Side
from tidelog.apps.audit.report.findings import Finding
from tidelog.apps.audit.report.kinds import COPY, KINDS


class RepairAdvice(NamedTuple):
    """A partition with damaged replicas that must be copied again."""

    topic: str
    partition: int
    damaged: list[str]
    sound: list[str]

    @property
    def text(self) -> str:
        name = f"{self.topic}-{self.partition}"
        if not self.sound:
            return f"{name}: every replica is damaged. Delete no folder; keep a copy of each."
        sound, damaged = " and ".join(self.sound), " and ".join(self.damaged)
        return (
            f"{name}: undamaged on {sound}. Make sure that its broker runs and leads the partition."
            f" Then stop the brokers of {damaged}, move this partition's folder out of their data"
            f" folders, and start them again: they copy the log from the leader. Do not move any"
            f" folder while the broker of {sound} is down."
        )

    def as_data(self) -> dict[str, Any]:
        return {**self._asdict(), "text": self.text}


def repair_advice(
    findings: Iterable[Finding], whole: dict[tuple[str, int], list[str]]
) -> list[RepairAdvice]:
    """Return, for each partition with damaged replicas, which to copy and from which replica.

    `whole` lists, by partition, the replicas that have all committed records.
    """
    damaged: dict[tuple[str, int], set[str]] = {}
    for finding in findings:
        if KINDS[finding.kind].advice == COPY:
            damaged.setdefault((finding.topic, finding.partition), set()).add(finding.replica)
    return [
        RepairAdvice(
            *key,
            sorted(bad),
            [replica for replica in whole.get(key, []) if replica not in bad],
        )
        for key, bad in sorted(damaged.items())
    ]


class ReplicaState(NamedTuple):
    """One replica in the summary."""

    replica: str
    log_start: int
    log_end: int
    high_watermark: int | None
    epochs: list[tuple[int, int]]
    segments: int
    batches: int
    records: int
    bytes: int


class PartitionState(NamedTuple):
    """One partition in the summary."""

    cluster_id: str
    topic: str
    partition: int
    replicas: list[ReplicaState]


class Report(NamedTuple):
    """The findings, partition states and duration of an audit."""

    findings: list[Finding]
    partitions: list[PartitionState]
    seconds: float

    @property
    def damage(self) -> list[Finding]:
        return [finding for finding in self.findings if finding.is_damage]

    @property
    def notices(self) -> list[Finding]:
        return [finding for finding in self.findings if not finding.is_damage]

    @property
    def holds(self) -> bool:
        """Whether the audit found no damage."""
        return not self.damage

    @property
    def advice(self) -> list[RepairAdvice]:
        """Repair instructions for partitions with replicas that must be copied again."""
        whole: dict[tuple[str, int], list[str]] = {}
        for row in self.partitions:
            committed = max((each.high_watermark or 0 for each in row.replicas), default=0)
            found = whole.setdefault((row.topic, row.partition), [])
            found += [each.replica for each in row.replicas if each.log_end >= committed]
        return repair_advice(self.findings, whole)

    @property
    def bytes(self) -> int:
        return sum(each.bytes for row in self.partitions for each in row.replicas)

    def as_data(self) -> dict[str, Any]:
        return {
            "damage": len(self.damage),
            "notices": len(self.notices),
            "findings": [finding.as_data() for finding in self.findings],
            "mendings": [each.as_data() for each in self.advice],
            "partitions": [
                {
                    "topic": row.topic,
                    "partition": row.partition,
                    "replicas": [each._asdict() for each in row.replicas],
                }
                for row in self.partitions
            ],
            "bytes": self.bytes,
            "seconds": round(self.seconds, 3),
        }


def partition_row(key: tuple[str, str, int], sides: list[Side]) -> PartitionState:
    """Return the summary of a partition from its replicas."""
    replicas = []
    for side in sorted(sides, key=lambda each: each.log.replica):
        log = side.log
        epochs = [(run.epoch, run.first) for run in side.lineage]
        state = ReplicaState(
            log.replica,
            log.log_start,
            log.log_end,
            log.high_watermark,
            epochs,
            len(log.segments),
            log.batches,
            log.records,
            log.bytes,
        )
        replicas.append(state)
    return PartitionState(*key, replicas)
