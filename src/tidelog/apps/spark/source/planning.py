"""Ranges of offsets, cut into tasks; a limit, shared out over partitions.

Pure. Always true: the pieces of a range are the range, in order, none empty; shares are no
more than what is there, and while anything is there some share is above zero.
"""

from collections.abc import Iterable, Mapping
from itertools import pairwise, zip_longest

from tidelog.apps.spark.source.options.source_options import Splitting
from tidelog.apps.spark.source.range_errors import RangeToRead
from tidelog.core.types import TopicPartition

TASK_OFFSETS_MAX = 500_000
"""A task has no more offsets than this, unless the user says otherwise: half a second of work."""
TASK_OFFSETS_MIN = 100_000
"""Less is not cut for the sake of idle cores: a task costs some milliseconds to start."""

GATHERED_OFFSETS_MAX = 5_000
"""A micro-batch of no more than this is one task: to start another takes longer than to read it."""


def gather(ranges: list[RangeToRead], splitting: Splitting) -> list[tuple[RangeToRead, ...]]:
    """Ranges to tasks: one each, but all to one where they are small and the user does not say
    how many there shall be."""
    asked = splitting.max_records is not None or splitting.min_partitions is not None
    if asked or not ranges or _total([ranges]) > GATHERED_OFFSETS_MAX:
        return [(each,) for each in ranges]
    return [tuple(ranges)]


def split_ranges(
    ranges: Iterable[RangeToRead], splitting: Splitting, cores: int
) -> list[RangeToRead]:
    """As the options say (`maxRecordsPerPartition` first, then `minPartitions`, both as Spark's
    connector has them); without any, so that tasks are neither huge nor too few for `cores`.
    Partitions take turns, so that tasks that run at once ask different leaders."""
    found = [[each] for each in ranges if each.end > each.start]
    if splitting.max_records is not None:
        found = _cut_above(found, splitting.max_records)
    elif splitting.min_partitions is None:
        found = _cut_above(found, TASK_OFFSETS_MAX)
        found = _cut_to_number(found, min(cores, _total(found) // TASK_OFFSETS_MIN))
    found = _cut_to_number(found, splitting.min_partitions or 0)
    return [piece for turn in zip_longest(*found) for piece in turn if piece is not None]


def _cut_above(found: list[list[RangeToRead]], most: int) -> list[list[RangeToRead]]:
    return [
        [piece for each in pieces for piece in _cut(each, -(-(each.end - each.start) // most))]
        for pieces in found
    ]


def _cut_to_number(found: list[list[RangeToRead]], number: int) -> list[list[RangeToRead]]:
    """Into about `number` pieces, larger ranges into more."""
    if not found or number <= sum(map(len, found)):
        return found
    share = number / _total(found)
    return [
        [
            piece
            for each in pieces
            for piece in _cut(each, max(round((each.end - each.start) * share), 1))
        ]
        for pieces in found
    ]


def _cut(whole: RangeToRead, pieces: int) -> list[RangeToRead]:
    size = whole.end - whole.start
    pieces = min(pieces, size)
    edges = [whole.start + size * n // pieces for n in range(pieces + 1)]
    return [whole._replace(start=start, end=end) for start, end in pairwise(edges)]


def _total(found: list[list[RangeToRead]]) -> int:
    return sum(each.end - each.start for pieces in found for each in pieces)


def share_limit(lags: Mapping[TopicPartition, int], limit: int) -> dict[TopicPartition, int]:
    """How many offsets each partition may go on, in proportion to what it has, as Spark's
    connector does: a small share is rounded up, so that no partition starves."""
    total = sum(lags.values())
    if total <= limit:
        return dict(lags)
    shares = {}
    for key, size in lags.items():
        exact = limit * size / total
        shares[key] = min(size, int(exact) if exact >= 1 else int(exact > 0))
    return shares
