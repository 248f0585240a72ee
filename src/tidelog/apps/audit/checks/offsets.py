"""Find the batches of a log at the right place; report missing offsets and misplaced batches.

The scan splits a log into runs of batches without gaps. The chain of runs with rising offsets
and the most batches is the log; all other runs are misplaced. Offsets between the runs of the
chain are missing, unless a hole, a misplaced run or a cleaner explains them.
"""

from itertools import pairwise
from typing import NamedTuple

from tidelog.apps.audit.checks.replica_log import ReplicaLog, SegmentSummary
from tidelog.apps.audit.report.findings import Finding
from tidelog.apps.audit.scan.summary import Hole, Run
from tidelog.core.record.record_batch import PREFIX_SIZE

# -- the chain of runs ----------------------------------------------------------------------------


SEGMENT_SPAN = 1 << 31
CHAIN_MAX = 3000
"""Maximum number of runs for the search of the best chain; above it, take the first that fits."""


class Chained(NamedTuple):
    """A run, and whether it is at the right place."""

    run: Run
    fits: bool


def lay_out(log: ReplicaLog, others: list[ReplicaLog]) -> list[Chained]:
    """Find the runs at the right place and set the log end."""
    log.segments = _by_content(log, others)
    runs = [run for segment in log.segments for run in segment.runs]
    misplaced = _out_of_bounds(log) | _with_other_offsets(log, runs)
    chain = best_chain(runs, misplaced, log.guaranteed_end)
    log.in_place = [each.run for each in chain if each.fits]
    log.misplaced = [each.run for each in chain if not each.fits]
    end = max((run.last + 1 for run in log.in_place), default=0)
    log.end_at(max(end, log.segments[-1].base_offset if log.segments else 0))
    return chain


def _by_content(log: ReplicaLog, others: list[ReplicaLog]) -> list[SegmentSummary]:
    """Return the segments in offset order; a segment with a wrong name is sorted by its batches."""
    known = {segment.file for other in others for segment in other.segments}
    renamed = [s for number, s in enumerate(log.segments) if _is_renamed(log, number, known)]
    for segment in renamed:
        first, last = segment.runs[0].first, segment.runs[-1].last
        text = f"its first batch has offset {first}"
        log.add(
            log.place.finding("segment-name", segment.file, text, position=0, offsets=(first, last))
        )
        log.reshaped.add(segment.file)
    return sorted(
        (s._replace(base_offset=s.runs[0].first) if s in renamed else s for s in log.segments),
        key=lambda s: s.base_offset,
    )


def _is_renamed(log: ReplicaLog, number: int, known: set[str]) -> bool:
    """Return whether the batches of a segment fit in the log, but its name does not.

    A name is right if another replica has it, or if the segment's time index matches it.
    """
    segment = log.segments[number]
    runs = segment.runs
    if not runs or runs[0].position > 0 or runs[0].first in (segment.base_offset, -1):
        return False
    first, last = runs[0].first, runs[-1].last
    others = [s for s in log.segments if s is not segment and s.runs]
    taken = any(_first(other) == segment.base_offset for other in others)
    time_last = segment.stretches[0].time_last
    if not taken and (segment.file in known or (time_last is not None and time_last[1] == last)):
        return False
    if not all(a.last < b.first for a, b in pairwise(runs)) or any(
        run.first <= last and first <= run.last for other in others for run in other.runs
    ):
        return False
    if len(log.segments) == 1:
        whole = len(runs) == 1 and (runs[0].batches > 1 or last + 1 == log.guaranteed_end)
        return whole and first >= 0 and not (first > segment.base_offset and log.cleaning.compacted)
    before = log.segments[number - 1] if number else None
    follows = before is not None and before.runs and _end(before) == segment.base_offset
    if first > segment.base_offset and not taken and (log.cleaning.compacted or follows):
        return False
    continues = any(_end(other) == first for other in others)
    begins = number == 0 and any(_first(other) == last + 1 for other in others)
    return continues or begins


def _out_of_bounds(log: ReplicaLog) -> set[Run]:
    """Return runs with offsets outside the range of their segment."""
    misplaced: set[Run] = set()
    for number, segment in enumerate(log.segments):
        above = [s.base_offset for s in log.segments[number + 1 :] if s.runs or s.holes]
        limit = above[0] if above else segment.base_offset + SEGMENT_SPAN
        misplaced |= {
            run for run in segment.runs if run.first < segment.base_offset or run.last >= limit
        }
    return misplaced


def _with_other_offsets(log: ReplicaLog, runs: list[Run]) -> set[Run]:
    """Return runs that would fill their place exactly, but have other offsets.

    Where a cleaner may have removed records, the last run counts only after a clean shutdown:
    only then the log end is known.
    """
    starts = {segment.file: segment.base_offset for segment in log.segments}
    holes = {(hole.file, hole.end) for segment in log.segments for hole in segment.holes}
    misplaced = set()
    for at, run in enumerate(runs):
        before = runs[at - 1] if at else None
        same_file = before is not None and before.file == run.file
        expected = before.last + 1 if before and same_file else starts[run.file]
        after = runs[at + 1].first if at + 1 < len(runs) else log.guaranteed_end
        fills = expected + run.last - run.first + 1 == after
        if at + 1 == len(runs) and not log.clean and expected < log.cleaning.upto:
            continue
        if (
            fills
            and run.first != expected
            and run.last + 1 != after
            and (run.file, run.position) not in holes
        ):
            misplaced.add(run)
    return misplaced


def _end(segment: SegmentSummary) -> int:
    return segment.runs[-1].last + 1


def _first(segment: SegmentSummary) -> int:
    return segment.runs[0].first if segment.runs else -1


def best_chain(runs: list[Run], misplaced: set[Run], guaranteed_end: int) -> list[Chained]:
    """Return for each run whether it is in the chain with the most batches.

    Of two equal chains, prefer the one that ends where the replica's checkpoints say.
    """
    able = [run for run in runs if run not in misplaced]
    if all(a.last < b.first for a, b in pairwise(able)):
        return [Chained(run, run not in misplaced) for run in runs]
    if len(able) > CHAIN_MAX:
        return _first_that_fits(runs, misplaced)
    weight: list[int] = []
    before: list[int] = []
    for at, run in enumerate(able):
        reach, via = 0, -1
        for earlier in range(at):
            if able[earlier].last < run.first and weight[earlier] > reach:
                reach, via = weight[earlier], earlier
        weight.append(reach + 4 * run.batches + 2 * (run.last + 1 == guaranteed_end))
        before.append(via)
    at = max(range(len(able)), key=lambda each: weight[each])
    kept = set()
    while at >= 0:
        kept.add(able[at])
        at = before[at]
    return [Chained(run, run in kept) for run in runs]


def _first_that_fits(runs: list[Run], misplaced: set[Run]) -> list[Chained]:
    chain: list[Chained] = []
    last = -1
    for run in runs:
        fits = run.first > last and run not in misplaced
        chain.append(Chained(run, fits))
        last = run.last if fits else last
    return chain


# -- findings -------------------------------------------------------------------------------------


def check_offsets(log: ReplicaLog, chain: list[Chained], others: list[ReplicaLog]) -> None:
    """Report all errors in the offsets of a log, from the first to the last."""
    _mark_missing_segments(log)
    if log.folder.error:
        log.damaged.append((0, SEGMENT_SPAN))
    for segment in log.segments:
        for stretch in segment.stretches:
            # Index errors are reported later, when damage of the log itself is known.
            own = [remark for remark in stretch.remarks if not remark.file]
            log.add(*log.place.remarked(own, segment.file))
            if stretch.error:
                _unreadable(log, segment, stretch.error)
        if segment.vanished:
            log.add(
                log.place.finding("vanished", segment.file, "deleted after the audit listed it")
            )
    _OffsetCheck(log, chain, others).check_rows()


def _unreadable(log: ReplicaLog, segment: SegmentSummary, why: str) -> None:
    later = [s.base_offset for s in log.segments if s.base_offset > segment.base_offset]
    last = (min(later) if later else max(log.guaranteed_end, segment.base_offset + 1)) - 1
    offsets = (segment.base_offset, last)
    log.add(log.place.finding("unreadable", segment.file, why, offsets=offsets))
    log.damaged.append(offsets)
    log.reshaped.add(segment.file)


def _mark_missing_segments(log: ReplicaLog) -> None:
    """Set the offsets of missing segments whose indexes still exist, as one damaged range each."""
    for number, remark in enumerate(log.folder.remarks):
        if remark.kind != "segment-missing":
            continue
        missing = [each.first for each in log.folder.remarks if each.kind == remark.kind]
        later = [
            at for at in [*missing, *(s.base_offset for s in log.segments)] if at > remark.first
        ]
        last = (min(later) if later else max(log.guaranteed_end, remark.first + 1)) - 1
        log.folder.remarks[number] = remark._replace(last=last)
        log.damaged.append((remark.first, last))


def _begin(log: ReplicaLog) -> int:
    """Return the offset where the log should begin.

    Deleting old segments also moves the start of the first epoch. So after a clean shutdown, no
    epoch starts before the first segment.
    """
    first = log.segments[0].base_offset
    trimmed = log.log_dir.offset("log_start", log.name) is not None
    if trimmed or not log.clean or not log.folder.epochs:
        return first
    return min(first, log.folder.epochs[0][1])


class _OffsetCheck:
    """Reports the errors that a chain of runs shows."""

    def __init__(self, log: ReplicaLog, chain: list[Chained], others: list[ReplicaLog]) -> None:
        self.log = log
        self.others = others
        self.chain = chain
        self.order = {segment.file: at for at, segment in enumerate(log.segments)}
        self.holes = [hole for segment in log.segments for hole in segment.holes]
        self.vanished = [s.file for s in log.segments if s.vanished]

    def check_rows(self) -> None:
        before: Run | None = None
        between: list[Run] = []
        for run, fits in self.chain:
            if not fits:
                between.append(run)
                continue
            self._step(before, run, between)
            before, between = run, []
        self._step(before, None, between)
        for segment in self.log.segments:
            if not segment.batches and not segment.holes and segment.is_read:
                self._empty(segment)

    def _was_filled(self, segment: SegmentSummary) -> bool:
        time_last = segment.stretches[0].time_last
        return time_last is not None and time_last[0] > 0 and time_last[1] >= segment.base_offset

    def _empty(self, segment: SegmentSummary) -> None:
        """Check a segment without batches: it may be between others, or begin at the log end."""
        log, base = self.log, segment.base_offset
        end = max((run.last + 1 for run in log.in_place), default=base)
        if log.has_damage_in(base, base):
            return
        if log.holds(base, base):
            text = "the segment is empty, and its base offset lies within another segment"
            found = log.place.finding("segment-name", segment.file, text, position=0)
            log.add(found._replace(first_offset=base, last_offset=base))
        elif segment is not log.segments[-1] and self._was_filled(segment):
            assert segment.stretches[0].time_last is not None
            offsets = (base, segment.stretches[0].time_last[1])
            text = f"the segment is empty; its time index has offset {offsets[1]}"
            log.add(
                log.place.finding("offset-gap", segment.file, text, position=0, offsets=offsets)
            )
            log.damaged.append(offsets)
            log.reshaped.add(segment.file)
        elif segment is log.segments[-1] and base > end and not log.has_damage_in(end, base - 1):
            kind = self._gap_kind(end, base - 1)
            if kind and not log.clean and end >= log.guaranteed_end:
                kind = "offset-jump"  # a crash lost records that were not flushed
            if kind:
                text = f"offsets {end} to {base - 1} are missing: the log ends with {end - 1}"
                offsets = (end, base - 1)
                log.add(log.place.finding(kind, segment.file, text, position=0, offsets=offsets))
                log.damaged.append(offsets)
                log.end_at(end)

    def _size(self, file: str) -> int:
        return self.log.segments[self.order[file]].size

    def _at(self, file: str, position: int) -> tuple[int, int]:
        return self.order[file], position

    def _step(self, before: Run | None, after: Run | None, between: list[Run]) -> None:
        """Check everything between a run at the right place and the next such run."""
        start = self._at(before.file, before.end) if before else (0, 0)
        stop = self._at(after.file, after.position) if after else (len(self.order), 0)
        holes = [h for h in self.holes if start <= self._at(h.file, h.position) < stop]
        first, last = self._missing(before, after)
        if holes and self.log.cleaning.compacted:
            first = max(first, min(self._held(first, last), default=first))
        shares = _shares(between, first, last)
        if after is None and len(between) == 1 and between[0].first > first:
            # The log end is unknown: assume that the run has as many offsets as it claims.
            shares = [(first, max(last, first + between[0].last - between[0].first))]
        for run, share in zip(between, shares, strict=True):
            self._misplaced(run, share, holes)
            self.log.damaged.append((first, last))
        for hole in holes:
            self._hole(hole, (first, last), at_end=after is None and not between)
        explained = bool(holes or between) or first > last or self._elsewhere(first, last)
        explained = explained or self.log.is_all_damaged(first, last)
        missing = any(start[0] <= self.order[file] <= stop[0] for file in self.vanished)
        if explained or missing or after is None:
            return
        kind = self._gap_kind(first, last)
        if not kind:
            return
        up_to = f"{before.file} ends with {before.last}" if before else "the log starts there"
        text = f"offsets {first} to {last} are missing: {up_to}"
        self.log.add(
            self.log.place.finding(
                kind, after.file, text, position=after.position, offsets=(first, last)
            )
        )
        (self.log.jumps if kind == "offset-jump" else self.log.damaged).append((first, last))
        self.log.reshaped |= {after.file, before.file if before else after.file}

    def _gap_kind(self, first: int, last: int) -> str:
        """Return the kind of finding for missing offsets; empty if a cleaner explains them."""
        cleaning = self.log.cleaning
        if not cleaning.compacted or any(log.holds(first, last) for log in self.others):
            return "" if cleaning.compacted and last < cleaning.upto else "offset-gap"
        high = self.log.high_watermark
        if self.log.clean and high is not None and first <= high <= last:
            return "offset-gap"  # a cleaner removes only committed records
        return "offset-jump" if cleaning.has_checkpoint and last >= cleaning.upto else ""

    def _held(self, first: int, last: int) -> list[int]:
        """Return the first offsets within this range of runs that other replicas have."""
        runs = [run for log in self.others for run in log.in_place]
        return [max(run.first, first) for run in runs if run.first <= last and first <= run.last]

    def _elsewhere(self, first: int, last: int) -> bool:
        """Return whether a misplaced run has these offsets."""
        return any(not fits and run.first <= first and last <= run.last for run, fits in self.chain)

    def _missing(self, before: Run | None, after: Run | None) -> tuple[int, int]:
        """Return the first and last offset between two runs; first > last if none is missing."""
        if not self.log.segments:
            return 0, -1
        first = _begin(self.log) if before is None else before.last + 1
        if after is None:
            return first, self.log.guaranteed_end - 1
        return first, after.first - 1

    def _misplaced(self, run: Run, missing: tuple[int, int], holes: list[Hole]) -> None:
        first, last = missing
        offsets = (run.first, run.last)
        if self.log.cleaning.compacted:  # the cleaner may have removed records before it
            later = self.log.segments[self.order[run.file] + 1 :]
            last = min([last, *(segment.base_offset - 1 for segment in later[:1])])
            first = max(first, last - (run.last - run.first))
            if last < self.log.cleaning.upto and self.log.holds(*offsets):
                last = first - 1
        if not holes and first <= last:
            text = f"offsets {run.first} to {run.last} are where {first} to {last} should be"
            offsets = (first, last)
        else:
            text = f"offsets {run.first} to {run.last} are at the wrong place"
        place = self.log.place
        found = place.finding("offset-order", run.file, text, position=run.position)
        found = found._replace(first_offset=offsets[0], last_offset=offsets[1])
        self.log.add(self._with_checksum(found) if run.batches == 1 else found)
        self.log.damaged += [(run.first, run.last), missing]
        self.log.reshaped.add(run.file)

    def _with_checksum(self, found: Finding) -> Finding:
        """Merge with the checksum finding of the same batch, and keep the expected offsets."""
        for each in self.log.findings:
            if (each.kind, each[4:6]) == ("batch-checksum", found[4:6]):
                self.log.findings.remove(each)
                return found._replace(kind=each.kind, text=f"{each.text}; {found.text}")
        return found

    def _hole(self, hole: Hole, missing: tuple[int, int], at_end: bool) -> None:
        last_file = self.log.segments[-1].file
        size = hole.end - hole.position
        offsets = missing if missing[0] <= missing[1] else (-1, -1)
        self.log.damaged.append(missing)
        if hole.old_format >= 0:
            kind, text = "old-format", f"records of format {hole.old_format}"
        elif at_end and hole.file == last_file and (hole.torn or hole.zeros):
            kind, text = self._tail(hole, missing[0])
            offsets = (missing[0], max(missing[0], self.log.guaranteed_end - 1))
            self.log.damaged.append(offsets)
        elif hole.zeros:
            kind, text = "zero-hole", f"{size} bytes of zeros"
        elif hole.torn:
            kind, text = (
                "torn-batch",
                f"{size} bytes of a batch that extends past the end of the file",
            )
        else:
            kind, text = "batch-header", f"{size} bytes without a valid batch: {hole.reason}"
        if kind not in ("zero-tail", "torn-tail"):
            self.log.reshaped.add(hole.file)
        self.log.add(
            self.log.place.finding(kind, hole.file, text, position=hole.position, offsets=offsets)
        )

    def _tail(self, hole: Hole, end: int) -> tuple[str, str]:
        """Return kind and text for zeros or an incomplete batch at the log end.

        A crash or a running broker explains them, so they are a notice. They are damage after a
        clean shutdown, and below the high watermark or the recovery point.
        """
        size = hole.end - hole.position
        log = self.log
        zeros = hole.zeros and size >= PREFIX_SIZE  # fewer zeros may be the start of an offset
        what = "of zeros" if zeros else "of an incomplete batch"
        if log.clean or end < self.log.guaranteed_end:
            return ("zero-hole" if zeros else "torn-batch"), f"{size} bytes {what}"
        return ("zero-tail" if zeros else "torn-tail"), f"{size} bytes {what}"


def _shares(runs: list[Run], first: int, last: int) -> list[tuple[int, int]]:
    """Return, for each misplaced run, the missing offsets that should be in its place.

    A single run gets all of them. Several runs that fill the place together get consecutive
    ranges. Otherwise a run gets all if its length fits, else none.
    """
    spans = [run.last - run.first + 1 for run in runs]
    if len(runs) == 1:
        return [(first, last)]
    if sum(spans) != last - first + 1:
        return [(first, last) if span == last - first + 1 else (first, first - 1) for span in spans]
    ends = [first + sum(spans[: at + 1]) for at in range(len(spans))]
    return [(end - span, end - 1) for end, span in zip(ends, spans, strict=True)]
