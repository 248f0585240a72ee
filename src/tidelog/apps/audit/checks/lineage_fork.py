"""Compare the epochs of replicas: find up to which offset their logs must be equal.

Within an epoch only one leader writes, and the log of a newer leader decides which records of an
older epoch remain. Records after the common part were never committed, unless the replica's own
high watermark is above them.
"""

from typing import NamedTuple

from tidelog.apps.audit.checks.replica_log import ReplicaLog
from tidelog.apps.audit.scan.summary import EpochRun


class Side(NamedTuple):
    """A replica and its lineage."""

    log: ReplicaLog
    lineage: list[EpochRun]

    @property
    def last_epoch(self) -> int:
        return self.lineage[-1].epoch if self.lineage else -1


class Agreement(NamedTuple):
    """The common part of the replicas of a partition."""

    reference: Side
    until: dict[str, int]
    """By replica: below this offset, its log must equal the reference log."""
    committed: int
    """The committed offset: the highest high watermark that a replica has checkpointed."""


def agree(sides: list[Side]) -> Agreement:
    """Choose the reference log and report forks from it.

    The reference is the log that most replicas agree with. Ties go to the newest epoch, then to
    the longest log.
    """

    def votes(side: Side) -> tuple[int, int, int]:
        fitting = sum(common_end(other, side) >= other.log.log_end for other in sides)
        return fitting, side.last_epoch, side.log.log_end

    reference = max(sides, key=votes)
    until = {side.log.replica: common_end(side, reference) for side in sides}
    longest = max(side.log.log_end for side in sides)
    known = [
        side.log.high_watermark
        for side in sides
        if side.log.high_watermark is not None and side.log.high_watermark <= longest
    ]
    # Kafka's metadata log has no high watermark: use the offset that most replicas have.
    committed = max(known) if known else sorted(until.values(), reverse=True)[len(until) // 2]
    for side in sides:
        _report_fork(side, reference, until[side.log.replica])
    return Agreement(reference, until, committed)


def common_end(side: Side, reference: Side) -> int:
    """Return the offset up to which the log can equal the reference, by their epochs."""
    if side is reference:
        return side.log.log_end
    if not reference.lineage:
        return side.log.log_end
    starts = [run.first for run in reference.lineage[1:]]
    epochs = (run.epoch for run in reference.lineage)
    ends = dict(zip(epochs, [*starts, reference.log.log_end], strict=True))
    until = side.log.log_end
    for run in reversed(side.lineage):
        if run.epoch in ends:
            if run.epoch == reference.last_epoch:
                return until
            return min(until, max(ends[run.epoch], run.first))
        if run.last < reference.log.segments[0].base_offset:
            return until  # the reference log begins later
        if run.epoch < reference.lineage[0].epoch:
            return until
        until = run.first
    return until


def _report_fork(side: Side, reference: Side, until: int) -> None:
    log = side.log
    if until >= log.log_end or log.has_damage_in(until, log.log_end - 1):
        return
    run = next((run for run in side.lineage if run.last >= until), side.lineage[-1])
    segment = max((s for s in log.segments if s.base_offset <= until), key=lambda s: s.base_offset)
    high = log.high_watermark or 0
    where = f"{reference.log.replica} has other epochs from offset {until}"
    kind = "replica-divergence" if high > until else "stale-tail"
    promise = f"; this replica's high watermark is {high}" if high > until else ""
    log.add(
        log.place.finding(
            kind,
            segment.file,
            f"epoch {run.epoch} here, {where}{promise}",
            position=run.position if run.first >= until else -1,
            offsets=(until, log.log_end - 1),
        )
    )


def _end_without_damage(log: ReplicaLog) -> int:
    """Return where the log would end without the reported damage."""
    high = log.high_watermark or 0
    return high if high > log.log_end and log.has_damage_in(log.log_end, high - 1) else log.log_end


def report_ends(sides: list[Side], agreement: Agreement) -> None:
    """Report replicas that lack committed records, and replicas with uncommitted records."""
    if len(sides) < 2:
        return
    committed = agreement.committed
    fitting = [side for side in sides if agreement.until[side.log.replica] >= side.log.log_end]
    shortest = min(_end_without_damage(side.log) for side in sides)
    for side in fitting:
        log = side.log
        end = log.log_end
        if end < committed and not log.has_damage_in(end, committed - 1):
            text = f"the log ends at {end}, records below {committed} are committed"
            offsets = (end, committed - 1)
            log.add(log.place.finding("lagging-replica", "", text, offsets=offsets))
        start = max(committed, shortest)
        if end > start and not log.has_damage_in(start, end - 1):
            last = log.segments[-1]
            text = f"above the high watermark {committed}; another replica ends at {shortest}"
            log.add(
                log.place.finding("uncommitted-tail", last.file, text, offsets=(start, end - 1))
            )
