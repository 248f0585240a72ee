"""Find the batches of a log that are at the right place.

The scan splits a log into runs of batches without gaps. The chain of runs with rising offsets
and the most batches is the log; all other runs are misplaced.
"""

from itertools import pairwise
from typing import NamedTuple

from tidelog.apps.audit.checks.replica_log import ReplicaLog, SegmentSummary
from tidelog.apps.audit.scan.summary import Run

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
    strayed = _out_of_bounds(log) | _says_otherwise(log, runs)
    chain = best_chain(runs, strayed, log.promised)
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
        whole = len(runs) == 1 and (runs[0].batches > 1 or last + 1 == log.promised)
        return whole and first >= 0 and not (first > segment.base_offset and log.cleaning.compacted)
    before = log.segments[number - 1] if number else None
    follows = before is not None and before.runs and _end(before) == segment.base_offset
    if first > segment.base_offset and not taken and (log.cleaning.compacted or follows):
        return False
    goes_on = any(_end(other) == first for other in others)
    begins = number == 0 and any(_first(other) == last + 1 for other in others)
    return goes_on or begins


def _out_of_bounds(log: ReplicaLog) -> set[Run]:
    """Return runs with offsets outside the range of their segment."""
    strayed: set[Run] = set()
    for number, segment in enumerate(log.segments):
        above = [s.base_offset for s in log.segments[number + 1 :] if s.runs or s.holes]
        limit = above[0] if above else segment.base_offset + SEGMENT_SPAN
        strayed |= {
            run for run in segment.runs if run.first < segment.base_offset or run.last >= limit
        }
    return strayed


def _says_otherwise(log: ReplicaLog, runs: list[Run]) -> set[Run]:
    """Return runs that would fill their place exactly, but have other offsets.

    Where a cleaner may have removed records, the last run counts only after a clean shutdown:
    only then the log end is known.
    """
    starts = {segment.file: segment.base_offset for segment in log.segments}
    holes = {(hole.file, hole.end) for segment in log.segments for hole in segment.holes}
    strayed = set()
    for at, run in enumerate(runs):
        before = runs[at - 1] if at else None
        same_file = before is not None and before.file == run.file
        expected = before.last + 1 if before and same_file else starts[run.file]
        after = runs[at + 1].first if at + 1 < len(runs) else log.promised
        fills = expected + run.last - run.first + 1 == after
        if at + 1 == len(runs) and not log.clean and expected < log.cleaning.upto:
            continue
        if (
            fills
            and run.first != expected
            and run.last + 1 != after
            and (run.file, run.position) not in holes
        ):
            strayed.add(run)
    return strayed


def _end(segment: SegmentSummary) -> int:
    return segment.runs[-1].last + 1


def _first(segment: SegmentSummary) -> int:
    return segment.runs[0].first if segment.runs else -1


def best_chain(runs: list[Run], strayed: set[Run], promised: int) -> list[Chained]:
    """Return for each run whether it is in the chain with the most batches.

    Of two equal chains, prefer the one that ends where the replica's checkpoints say.
    """
    able = [run for run in runs if run not in strayed]
    if all(a.last < b.first for a, b in pairwise(able)):
        return [Chained(run, run not in strayed) for run in runs]
    if len(able) > CHAIN_MAX:
        return _first_that_fits(runs, strayed)
    weight: list[int] = []
    before: list[int] = []
    for at, run in enumerate(able):
        reach, via = 0, -1
        for earlier in range(at):
            if able[earlier].last < run.first and weight[earlier] > reach:
                reach, via = weight[earlier], earlier
        weight.append(reach + 4 * run.batches + 2 * (run.last + 1 == promised))
        before.append(via)
    at = max(range(len(able)), key=lambda each: weight[each])
    kept = set()
    while at >= 0:
        kept.add(able[at])
        at = before[at]
    return [Chained(run, run in kept) for run in runs]


def _first_that_fits(runs: list[Run], strayed: set[Run]) -> list[Chained]:
    chain: list[Chained] = []
    last = -1
    for run in runs:
        fits = run.first > last and run not in strayed
        chain.append(Chained(run, fits))
        last = run.last if fits else last
    return chain
