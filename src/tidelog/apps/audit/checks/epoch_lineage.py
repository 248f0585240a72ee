"""Check leader epochs: they never decrease in a log, and leader-epoch-checkpoint matches them.

The checksum of a batch does not cover its leader epoch. Only the batches around it, the
checkpoint and the other replicas can show a flipped bit there.
"""

from bisect import bisect_right
from itertools import pairwise

from tidelog.apps.audit.checks.replica_log import ReplicaLog
from tidelog.apps.audit.report.findings import Finding
from tidelog.apps.audit.scan.summary import EpochRun
from tidelog.core.storage import layout

FEW_BATCHES = 1
"""Up to this many batches of an otherwise unknown epoch count as damaged batches.

If there are more, the checkpoint file counts as wrong.
"""


def check_epochs(log: ReplicaLog, others: list[ReplicaLog]) -> list[EpochRun]:
    """Return the lineage: the runs with credible epochs. Add findings to the log."""
    checkpointed = _CheckpointedEpochs(log.folder.epochs or [], log)
    runs = _merged([run for run in log.epochs if not _is_explained(log, run, checkpointed)])
    kept = _rising(runs, checkpointed, others)
    for run in runs:
        if run not in kept:
            log.add(_epoch_finding(log, run, "it does not fit the epochs before and after it"))
            log.damaged.append((run.first, run.last))
    kept = _merged(kept)
    if not kept:
        return kept
    if not log.folder.epochs:
        if not any(remark.file == layout.LEADER_EPOCHS for remark in log.folder.remarks):
            what = "the file is missing" if log.folder.epochs is None else "the file is empty"
            log.add(_file_finding(log, f"{what}, the log has epochs up to {kept[-1].epoch}"))
        return kept
    return _compare(log, kept, checkpointed, others)


def _is_explained(log: ReplicaLog, run: EpochRun, checkpointed: "_CheckpointedEpochs") -> bool:
    """Return whether to ignore a run, because damage that is already reported covers it.

    Misplaced batches are always ignored. A run of one damaged batch is ignored, unless the
    checkpoint has the same epoch at its offset.
    """
    if any(
        wrong.file == run.file and wrong.position <= run.position < wrong.end
        for wrong in log.misplaced
    ):
        return True
    damaged = any(a <= run.first and run.last <= b for a, b in log.damaged)
    return damaged and run.batches == 1 and checkpointed.at(run.first) != run.epoch


def _merged(runs: list[EpochRun]) -> list[EpochRun]:
    merged: list[EpochRun] = []
    for run in runs:
        if merged and merged[-1].epoch == run.epoch:
            before = merged[-1]
            merged[-1] = before._replace(last=run.last, batches=before.batches + run.batches)
        else:
            merged.append(run)
    return merged


class _CheckpointedEpochs:
    """The entries of leader-epoch-checkpoint."""

    def __init__(self, entries: list[tuple[int, int]], log: ReplicaLog) -> None:
        self._log = log
        self.epochs = [epoch for epoch, _ in entries]
        self.starts = [start for _, start in entries]

    def at(self, offset: int) -> int | None:
        """Return the epoch of an offset; None below the first entry."""
        slot = bisect_right(self.starts, offset)
        return self.epochs[slot - 1] if slot else None

    def agrees(self, run: EpochRun) -> bool:
        if not self.starts:
            return False
        credible = [end for end in (run.first, run.last) if not self._log.has_damage_in(end, end)]
        if not credible:
            return True
        first, last = self.at(credible[0]), self.at(credible[-1])
        if first is None:  # deleting records moved the first entry up to the log start
            return last in (None, run.epoch) and run.epoch <= self.epochs[0]
        return first == run.epoch == last

    def describe(self, run: EpochRun) -> str:
        """Describe the checkpoint's epoch at the start of the run, or where it first differs."""
        first = self.at(run.first)
        if first == run.epoch:
            after = self.epochs.index(first) + 1
            return f"has epoch {self.epochs[after]} from offset {self.starts[after]}"
        return "has no epoch there" if first is None else f"has epoch {first} there"


def _known(run: EpochRun, others: list[ReplicaLog]) -> bool:
    """Return whether most other replicas have the run's epoch at its first offset."""
    epochs = [epoch for log in others if (epoch := log.epoch_at(run.first)) is not None]
    return 2 * epochs.count(run.epoch) > len(epochs)


def _rising(
    runs: list[EpochRun], checkpointed: _CheckpointedEpochs, others: list[ReplicaLog]
) -> list[EpochRun]:
    """Return the runs with the greatest total weight whose epochs do not decrease.

    A run weighs more if the checkpoint agrees with it, and still more if other replicas do.
    """
    if all(a.epoch <= b.epoch for a, b in pairwise(runs)):
        return runs
    weight: list[int] = []
    before: list[int] = []
    for at, run in enumerate(runs):
        reach, via = 0, -1
        for earlier in range(max(0, at - 2000), at):
            if runs[earlier].epoch <= run.epoch and weight[earlier] > reach:
                reach, via = weight[earlier], earlier
        credible = 1 + 4 * checkpointed.agrees(run) + 8 * _known(run, others)
        weight.append(reach + run.batches * credible)
        before.append(via)
    at = max(range(len(runs)), key=lambda each: weight[each])
    kept: list[EpochRun] = []
    while at >= 0:
        kept.append(runs[at])
        at = before[at]
    return kept[::-1]


def _compare(
    log: ReplicaLog,
    runs: list[EpochRun],
    checkpointed: _CheckpointedEpochs,
    others: list[ReplicaLog],
) -> list[EpochRun]:
    disagree = [run for run in runs if not checkpointed.agrees(run)]
    unknown = [run for run in disagree if run.epoch not in checkpointed.epochs]
    alone = len(unknown) == len(disagree) == 1 and unknown[0].batches <= FEW_BATCHES
    if alone and len(runs) > 1 and not _known(unknown[0], others):
        log.add(_epoch_finding(log, unknown[0], "no checkpoint and no other batch has that epoch"))
        log.damaged.append((unknown[0].first, unknown[0].last))
        return [run for run in runs if run is not unknown[0]]
    if disagree:
        run = disagree[0]
        span = f"from offset {run.first} to {run.last}"
        text = f"the log has epoch {run.epoch} {span}, the file {checkpointed.describe(run)}"
        log.add(_file_finding(log, text, (run.first, run.last)))
    elif log.clean and checkpointed.starts[0] > (first := max(runs[0].first, log.log_start)):
        _report_late_start(log, checkpointed.starts[0], first, others)
    elif (
        log.clean
        and checkpointed.starts[0] < (start := log.log_start)
        and log.log_dir.offset("log_start", log.name) == start
        and any(other.log_dir.offset("log_start", log.name) == start for other in others)
    ):
        text = f"its first epoch starts at offset {checkpointed.starts[0]}, the log at {start}"
        log.add(_file_finding(log, text, (checkpointed.starts[0], start - 1)))
    elif checkpointed.starts[-1] > log.log_end and (log.high_watermark or 0) <= log.log_end:
        newest = (
            f"its last epoch {checkpointed.epochs[-1]} starts at offset {checkpointed.starts[-1]}"
        )
        text = f"{newest}; the log ends at {log.log_end}"
        kind = "epoch-checkpoint" if log.clean else "epoch-behind"
        log.add(log.place.finding(kind, layout.LEADER_EPOCHS, text))
    return runs


def _report_late_start(log: ReplicaLog, begun: int, first: int, others: list[ReplicaLog]) -> None:
    """Report a checkpoint whose first epoch starts after the first record of the log.

    Deleting records moves both the log start and the start of the first epoch. A crash can lose
    only the new log start. Other replicas show which of the two is wrong, if any.
    """
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


def _epoch_finding(log: ReplicaLog, run: EpochRun, why: str) -> Finding:
    text = f"leader epoch {run.epoch} at offsets {run.first} to {run.last}: {why}"
    return log.place.finding(
        "epoch-order", run.file, text, position=run.position, offsets=(run.first, run.last)
    )


def _file_finding(log: ReplicaLog, text: str, offsets: tuple[int, int] = (-1, -1)) -> Finding:
    return log.place.finding("epoch-checkpoint", layout.LEADER_EPOCHS, text, offsets=offsets)
