"""Leader epochs of a log: they never fall, and leader-epoch-checkpoint says the same.

A batch's checksum leaves its leader epoch out, so a flipped bit there shows only by what stands
around it: the batches before and after, the checkpoint, and the other replicas.
"""

from bisect import bisect_right
from itertools import pairwise

from tidelog.apps.audit.checks.replica_log import ReplicaLog
from tidelog.apps.audit.report.findings import Finding
from tidelog.apps.audit.scan.summary import EpochRun
from tidelog.core.storage import layout

FEW_BATCHES = 1
"""So many batches of an epoch that nobody else knows are damage; more are the file's fault."""


def check_epochs(log: ReplicaLog, others: list[ReplicaLog]) -> list[EpochRun]:
    """The lineage: runs whose epochs can be believed. Findings go to the log."""
    filed = _Filed(log.folder.epochs or [], log)
    runs = _merged([run for run in log.epochs if not _told(log, run, filed)])
    kept = _rising(runs, filed, others)
    for run in runs:
        if run not in kept:
            log.add(_odd(log, run, "it does not fit the epochs before and after it"))
            log.damaged.append((run.first, run.last))
    kept = _merged(kept)
    if not kept:
        return kept
    if not log.folder.epochs:
        if not any(remark.file == layout.LEADER_EPOCHS for remark in log.folder.remarks):
            what = "the file is missing" if log.folder.epochs is None else "the file is empty"
            log.add(_file_finding(log, f"{what}, the log has epochs up to {kept[-1].epoch}"))
        return kept
    return _compare(log, kept, filed, others)


def _told(log: ReplicaLog, run: EpochRun, filed: "_Filed") -> bool:
    """A run of one damaged batch tells nothing, unless the checkpoint knows it; batches that
    stand in a wrong place tell nothing at all."""
    if any(
        wrong.file == run.file and wrong.position <= run.position < wrong.end
        for wrong in log.misplaced
    ):
        return True
    damaged = any(a <= run.first and run.last <= b for a, b in log.damaged)
    return damaged and run.batches == 1 and filed.at(run.first) != run.epoch


def _merged(runs: list[EpochRun]) -> list[EpochRun]:
    merged: list[EpochRun] = []
    for run in runs:
        if merged and merged[-1].epoch == run.epoch:
            before = merged[-1]
            merged[-1] = before._replace(last=run.last, batches=before.batches + run.batches)
        else:
            merged.append(run)
    return merged


class _Filed:
    """What the checkpoint says."""

    def __init__(self, entries: list[tuple[int, int]], log: ReplicaLog) -> None:
        self._log = log
        self.epochs = [epoch for epoch, _ in entries]
        self.starts = [start for _, start in entries]

    def at(self, offset: int) -> int | None:
        """The epoch of an offset; None below the first entry."""
        slot = bisect_right(self.starts, offset)
        return self.epochs[slot - 1] if slot else None

    def agrees(self, run: EpochRun) -> bool:
        if not self.starts:
            return False
        believed = [end for end in (run.first, run.last) if not self._log.excuses(end, end)]
        if not believed:
            return True
        first, last = self.at(believed[0]), self.at(believed[-1])
        if first is None:  # below the log start, where the first entry was moved to
            return last in (None, run.epoch) and run.epoch <= self.epochs[0]
        return first == run.epoch == last

    def told(self, run: EpochRun) -> str:
        """What it says where the run begins, or where it first says something else."""
        first = self.at(run.first)
        if first == run.epoch:
            after = self.epochs.index(first) + 1
            return f"has epoch {self.epochs[after]} from offset {self.starts[after]}"
        return "has no epoch there" if first is None else f"has epoch {first} there"


def _known(run: EpochRun, others: list[ReplicaLog]) -> bool:
    """Whether most other replicas have that epoch there."""
    told = [epoch for log in others if (epoch := log.epoch_at(run.first)) is not None]
    return 2 * told.count(run.epoch) > len(told)


def _rising(runs: list[EpochRun], filed: _Filed, others: list[ReplicaLog]) -> list[EpochRun]:
    """The heaviest choice of runs whose epochs do not fall; what the file and other replicas
    say weighs more than what stands around."""
    if all(a.epoch <= b.epoch for a, b in pairwise(runs)):
        return runs
    weight: list[int] = []
    before: list[int] = []
    for at, run in enumerate(runs):
        reach, via = 0, -1
        for earlier in range(max(0, at - 2000), at):
            if runs[earlier].epoch <= run.epoch and weight[earlier] > reach:
                reach, via = weight[earlier], earlier
        believed = 1 + 4 * filed.agrees(run) + 8 * _known(run, others)
        weight.append(reach + run.batches * believed)
        before.append(via)
    at = max(range(len(runs)), key=lambda each: weight[each])
    kept: list[EpochRun] = []
    while at >= 0:
        kept.append(runs[at])
        at = before[at]
    return kept[::-1]


def _compare(
    log: ReplicaLog, runs: list[EpochRun], filed: _Filed, others: list[ReplicaLog]
) -> list[EpochRun]:
    disagree = [run for run in runs if not filed.agrees(run)]
    strange = [run for run in disagree if run.epoch not in filed.epochs]
    alone = len(strange) == len(disagree) == 1 and strange[0].batches <= FEW_BATCHES
    if alone and len(runs) > 1 and not _known(strange[0], others):
        log.add(_odd(log, strange[0], "no checkpoint and no other batch has that epoch"))
        log.damaged.append((strange[0].first, strange[0].last))
        return [run for run in runs if run is not strange[0]]
    if disagree:
        run = disagree[0]
        span = f"from offset {run.first} to {run.last}"
        text = f"the log has epoch {run.epoch} {span}, the file {filed.told(run)}"
        log.add(_file_finding(log, text, (run.first, run.last)))
    elif log.clean and filed.starts[0] > (first := max(runs[0].first, log.log_start)):
        _begins_later(log, filed.starts[0], first, others)
    elif (
        log.clean
        and filed.starts[0] < (start := log.log_start)
        and log.log_dir.offset("log_start", log.name) == start
        and any(other.log_dir.offset("log_start", log.name) == start for other in others)
    ):
        text = f"its first epoch starts at offset {filed.starts[0]}, the log at {start}"
        log.add(_file_finding(log, text, (filed.starts[0], start - 1)))
    elif filed.starts[-1] > log.log_end and (log.high_watermark or 0) <= log.log_end:
        newest = f"its last epoch {filed.epochs[-1]} starts at offset {filed.starts[-1]}"
        text = f"{newest}; the log ends at {log.log_end}"
        kind = "epoch-checkpoint" if log.clean else "epoch-behind"
        log.add(log.place.finding(kind, layout.LEADER_EPOCHS, text))
    return runs


def _begins_later(log: ReplicaLog, begun: int, first: int, others: list[ReplicaLog]) -> None:
    """Who deletes records moves the log start and the first epoch's start alike; the log start
    alone may be lost in a crash. Other replicas know which of them is wrong, if any."""
    offsets = (first, begun - 1)
    if any(other.folder.epochs and other.folder.epochs[0][1] <= first for other in others):
        text = f"its first epoch starts at offset {begun}, the log at {first}"
        log.add(_file_finding(log, text, offsets))
    if all(other.log_dir.offset("log_start", log.name) != begun for other in others):
        return
    noted = log.log_dir.offset("log_start", log.name)
    has = "has no line" if noted is None else f"has {noted}"
    text = f"{log.name} {has}, the log starts at {first}; its leader epochs start at {begun}"
    found = log.place.finding("log-start", layout.LOG_STARTS, text, offsets=offsets)
    log.add(found._replace(file=layout.LOG_STARTS))


def _odd(log: ReplicaLog, run: EpochRun, why: str) -> Finding:
    text = f"leader epoch {run.epoch} at offsets {run.first} to {run.last}: {why}"
    return log.place.finding(
        "epoch-order", run.file, text, position=run.position, offsets=(run.first, run.last)
    )


def _file_finding(log: ReplicaLog, text: str, offsets: tuple[int, int] = (-1, -1)) -> Finding:
    return log.place.finding("epoch-checkpoint", layout.LEADER_EPOCHS, text, offsets=offsets)
