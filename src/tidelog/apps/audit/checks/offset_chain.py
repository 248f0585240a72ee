"""Offsets of a whole log: what follows on what, what is missing, what stands in the wrong place.

The log is taken as runs of batches without gaps. The heaviest chain of runs whose offsets rise
is the log; runs outside of it are out of place, and what the chain leaves out is missing,
unless a hole, a misplaced run or a cleaner explains it.
"""

from itertools import pairwise
from typing import NamedTuple

from tidelog.apps.audit.checks.replica_log import ReplicaLog, SegmentSummary
from tidelog.apps.audit.scan.summary import Hole, Run

CHAIN_MAX = 3000
"""Runs for which the best chain is looked for; beyond it the first that fits is taken."""


class Chained(NamedTuple):
    """A run, and whether it is in its place."""

    run: Run
    fits: bool


def check_offsets(log: ReplicaLog, compacted: bool, cleaned_upto: int) -> None:
    """Find where the log ends, and tell what is wrong on the way there."""
    log.segments = _by_content(log)
    for segment in log.segments:
        for stretch in segment.stretches:
            # What is wrong with indexes is told once it is known whether the log is sound.
            own = [remark for remark in stretch.remarks if not remark.file]
            log.add(*log.place.remarked(own, segment.file))
            if stretch.error:
                log.add(log.place.finding("unreadable", segment.file, stretch.error))
        if segment.vanished:
            log.add(log.place.finding("vanished", segment.file, "deleted since it was listed"))
    chain = best_chain([run for segment in log.segments for run in segment.runs])
    fitting = [each.run for each in chain if each.fits]
    end = max((run.last + 1 for run in fitting), default=0)
    log.end_at(max(end, log.segments[-1].base_offset if log.segments else 0))
    _Judge(log, compacted, cleaned_upto, chain).judge()


def _by_content(log: ReplicaLog) -> list[SegmentSummary]:
    """Segments in order; one whose name is wrong stands where its batches belong."""
    ends = {s.runs[-1].last + 1: s for s in log.segments if s.runs}
    renamed = []
    for number, segment in enumerate(log.segments):
        runs = segment.runs
        if not runs or runs[0].first == segment.base_offset or runs[0].position > 0:
            continue
        first, before = runs[0].first, log.segments[number - 1] if number else None
        goes_on = ends.get(first) not in (None, segment)
        if first > segment.base_offset and (
            log.is_compacted or (before and before.runs and _end(before) == segment.base_offset)
        ):
            continue
        begins = number == 0 and any(_first(s) == runs[-1].last + 1 for s in log.segments)
        if goes_on or begins or len(log.segments) == 1:
            text = f"its first batch has offset {first}"
            offsets = (first, runs[-1].last)
            log.add(
                log.place.finding("segment-name", segment.file, text, position=0, offsets=offsets)
            )
            renamed.append(segment)
            log.reshaped.add(segment.file)
    return sorted(log.segments, key=lambda s: s.runs[0].first if s in renamed else s.base_offset)


def _end(segment: SegmentSummary) -> int:
    return segment.runs[-1].last + 1


def _first(segment: SegmentSummary) -> int:
    return segment.runs[0].first if segment.runs else -1


def best_chain(runs: list[Run]) -> list[Chained]:
    """Which runs are in their place: the chain with the most batches."""
    if all(a.last < b.first for a, b in pairwise(runs)):
        return [Chained(run, True) for run in runs]
    if len(runs) > CHAIN_MAX:
        return _first_that_fits(runs)
    weight: list[int] = []
    before: list[int] = []
    for at, run in enumerate(runs):
        reach, via = 0, -1
        for earlier in range(at):
            if runs[earlier].last < run.first and weight[earlier] > reach:
                reach, via = weight[earlier], earlier
        weight.append(reach + run.batches)
        before.append(via)
    at = max(range(len(runs)), key=lambda each: weight[each])
    kept = set()
    while at >= 0:
        kept.add(at)
        at = before[at]
    return [Chained(run, at in kept) for at, run in enumerate(runs)]


def _first_that_fits(runs: list[Run]) -> list[Chained]:
    chain: list[Chained] = []
    last = -1
    for run in runs:
        fits = run.first > last
        chain.append(Chained(run, fits))
        last = run.last if fits else last
    return chain


class _Judge:
    """Tells what a chain shows."""

    def __init__(
        self, log: ReplicaLog, compacted: bool, cleaned_upto: int, chain: list[Chained]
    ) -> None:
        self.log = log
        self.compacted = compacted
        self.cleaned_upto = cleaned_upto
        self.chain = chain
        self.order = {segment.file: at for at, segment in enumerate(log.segments)}
        self.holes = [hole for segment in log.segments for hole in segment.holes]
        self.vanished = [s.file for s in log.segments if s.vanished]

    def judge(self) -> None:
        before: Run | None = None
        between: list[Run] = []
        for run, fits in self.chain:
            if not fits:
                between.append(run)
                continue
            self._step(before, run, between)
            before, between = run, []
        self._step(before, None, between)

    def _size(self, file: str) -> int:
        return self.log.segments[self.order[file]].size

    def _at(self, file: str, position: int) -> tuple[int, int]:
        return self.order[file], position

    def _step(self, before: Run | None, after: Run | None, between: list[Run]) -> None:
        """From a run in its place to the next one."""
        start = self._at(before.file, before.end) if before else (0, 0)
        stop = self._at(after.file, after.position) if after else (len(self.order), 0)
        holes = [h for h in self.holes if start <= self._at(h.file, h.position) < stop]
        first, last = self._missing(before, after)
        for run in between:
            self._misplaced(run, (first, last), holes)
        for hole in holes:
            self._hole(hole, (first, last), at_end=after is None and not between)
        explained = bool(holes or between) or first > last or self._elsewhere(first, last)
        gone = any(start[0] <= self.order[file] <= stop[0] for file in self.vanished)
        if explained or gone or after is None or before is None:
            return
        if self.compacted and (last < self.cleaned_upto or not self.cleaned_upto):
            return
        kind = "offset-jump" if self.compacted else "offset-gap"
        text = f"offsets {first} to {last} are missing: {before.file} goes up to {before.last}"
        self.log.add(
            self.log.place.finding(
                kind, after.file, text, position=after.position, offsets=(first, last)
            )
        )
        self.log.damaged.append((first, last))
        self.log.reshaped |= {before.file, after.file}

    def _elsewhere(self, first: int, last: int) -> bool:
        """Whether these offsets stand in another place."""
        return any(not fits and run.first <= first and last <= run.last for run, fits in self.chain)

    def _missing(self, before: Run | None, after: Run | None) -> tuple[int, int]:
        """Offsets between two runs; the first above the last if there are none."""
        if not self.log.segments:
            return 0, -1
        first = self.log.segments[0].base_offset if before is None else before.last + 1
        if after is None:
            return first, first - 1
        return first, after.first - 1

    def _misplaced(self, run: Run, missing: tuple[int, int], holes: list[Hole]) -> None:
        first, last = missing
        offsets = (run.first, run.last)
        if not holes and first <= last and last - first == run.last - run.first:
            text = f"offsets {run.first} to {run.last} stand where {first} to {last} belong"
            offsets = missing
        else:
            text = f"offsets {run.first} to {run.last} do not belong here"
        self.log.add(
            self.log.place.finding(
                "offset-order", run.file, text, position=run.position, offsets=offsets
            )
        )
        self.log.damaged += [(run.first, run.last), missing]
        self.log.reshaped.add(run.file)

    def _hole(self, hole: Hole, missing: tuple[int, int], at_end: bool) -> None:
        last_file = self.log.segments[-1].file
        size = hole.end - hole.position
        offsets = missing if missing[0] <= missing[1] else (-1, -1)
        self.log.damaged.append(missing)
        if not hole.zeros or hole.end < self._size(hole.file):
            self.log.reshaped.add(hole.file)
        if hole.old_format >= 0:
            kind, text = "old-format", f"records of format {hole.old_format}"
        elif at_end and hole.file == last_file and (hole.torn or hole.zeros):
            kind, text = self._tail(hole, missing[0])
            offsets = (missing[0], max(missing[0], self._promised() - 1))
            self.log.damaged.append(offsets)
        elif hole.zeros:
            kind, text = "zero-hole", f"{size} bytes of zeros"
        elif hole.torn:
            kind, text = "torn-batch", f"{size} bytes of a batch that goes on beyond the file"
        else:
            kind, text = "batch-header", f"{size} bytes are no batch: {hole.reason}"
        self.log.add(
            self.log.place.finding(kind, hole.file, text, position=hole.position, offsets=offsets)
        )

    def _promised(self) -> int:
        """Up to where the replica itself said that it had records."""
        return max(self.log.high_watermark or 0, self.log.recovery_point or 0)

    def _tail(self, hole: Hole, end: int) -> tuple[str, str]:
        """What a crash or a running broker leaves is none; below a promise it is."""
        size = hole.end - hole.position
        log = self.log
        what = "of zeros" if hole.zeros else "of a batch that is not whole"
        if log.clean or end < self._promised():
            return ("zero-hole" if hole.zeros else "torn-batch"), f"{size} bytes {what}"
        return ("zero-tail" if hole.zeros else "torn-tail"), f"{size} bytes {what}"
