"""Plan a read: from options to offsets, from ranges of offsets to tasks.

`resolve` turns the positions in the options into offsets, for a batch or for a stream's first
start. Invariant: the result is within the logs as the brokers just reported them; positions
after the end are rejected, and positions before the start are returned as lost ranges.

`split_ranges` and `share_limit` send no requests. Invariants: the pieces of a range cover the range
in order, and no piece is empty. A share is at most the partition's lag; if any lag is above zero, a
share is above zero.
"""

from collections.abc import Iterable, Mapping
from itertools import pairwise, zip_longest
from typing import NamedTuple

from tidelog.apps.spark.client_options import OptionError
from tidelog.apps.spark.source.data_loss import LossKind, LostRange, Place
from tidelog.apps.spark.source.partition_lookup import PartitionLookup
from tidelog.apps.spark.source.range_reader import RangeToRead
from tidelog.apps.spark.source.source_options import Positions, Splitting
from tidelog.core.types import Offset, TopicPartition
from tidelog.shell.client.offsets import EARLIEST, LATEST

TASK_OFFSETS_MAX = 500_000
"""The most offsets of a task, unless the options set a limit: half a second of work."""
TASK_OFFSETS_MIN = 100_000
"""Smaller ranges are not split to use idle cores: a task takes some milliseconds to start."""

GATHERED_OFFSETS_MAX = 5_000
"""A micro-batch up to this size is one task: starting another takes longer than reading it."""


def gather(ranges: list[RangeToRead], splitting: Splitting) -> list[tuple[RangeToRead, ...]]:
    """Assign ranges to tasks: one task for each range, or one task for all if they are small.

    If the options set the number or size of tasks, each range is a task.
    """
    is_set = splitting.max_records is not None or splitting.min_partitions is not None
    if is_set or not ranges or _total([ranges]) > GATHERED_OFFSETS_MAX:
        return [(each,) for each in ranges]
    return [tuple(ranges)]


def split_ranges(
    ranges: Iterable[RangeToRead], splitting: Splitting, cores: int
) -> list[RangeToRead]:
    """Split ranges by `maxRecordsPerPartition`, then by `minPartitions`, as Spark's connector does.

    Without these options, a task has at most TASK_OFFSETS_MAX offsets, and there are enough tasks
    for `cores`. Partitions alternate, so that tasks that run at the same time read from different
    leaders.
    """
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
    """Split into about `number` pieces, larger ranges into more."""
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
    """Divide a limit among partitions in proportion to their lags, as Spark's connector does.

    A share below 1 is rounded up, so that every partition makes progress.
    """
    total = sum(lags.values())
    if total <= limit:
        return dict(lags)
    shares = {}
    for key, size in lags.items():
        exact = limit * size / total
        shares[key] = min(size, int(exact) if exact >= 1 else int(exact > 0))
    return shares


class Bounds(NamedTuple):
    """The starts of logs, and the ends of the readable records."""

    starts: Mapping[TopicPartition, Offset]
    ends: Mapping[TopicPartition, Place]


class Resolved(NamedTuple):
    """The resolved offsets, and the requested records that are already deleted."""

    places: dict[TopicPartition, Place]
    lost: tuple[LostRange, ...] = ()


def find_bounds(lookup: PartitionLookup, keys: Iterable[TopicPartition]) -> Bounds:
    """Look up starts and ends, with two requests to each leader. Raises ClientError."""
    keys = list(keys)
    ends = lookup.list_all_offsets(dict.fromkeys(keys, LATEST))
    starts = lookup.list_all_offsets(dict.fromkeys(keys, EARLIEST))
    return Bounds(
        {key: found.offset for key, found in starts.items()},
        {key: Place(found.offset, found.leader_epoch) for key, found in ends.items()},
    )


def resolve(lookup: PartitionLookup, wanted: Positions, bounds: Bounds) -> Resolved:
    """Return the offsets of positions, with the leader's current epoch.

    No record before the end has a newer epoch. Raises OptionError, ClientError.
    """
    wanted.check_partitions(bounds.ends)
    requested = _requested(lookup, wanted, bounds)
    places, lost = {}, []
    for key, end in bounds.ends.items():
        offset, start = requested[key], bounds.starts[key]
        if offset == EARLIEST:
            offset = start
        elif offset == LATEST:
            offset = end.offset
        if offset > end.offset:
            raise OptionError(
                f"{wanted.option} of {key} is {offset}, but its log ends at {end.offset};"
                " give an offset in the log"
            )
        if offset < start:
            lost.append(LostRange(*key, LossKind.RETENTION, offset, start, start))
            offset = start
        places[key] = Place(offset, end.epoch)
    return Resolved(places, tuple(lost))


def _requested(
    lookup: PartitionLookup, wanted: Positions, bounds: Bounds
) -> Mapping[TopicPartition, Offset]:
    """Return the offsets of the positions; EARLIEST and LATEST may be among them."""
    if wanted.offsets is not None:
        return wanted.offsets
    if wanted.everywhere is not None:
        return dict.fromkeys(bounds.ends, wanted.everywhere)
    if wanted.timestamps is not None:
        times = dict(wanted.timestamps)
    else:
        assert wanted.timestamp is not None
        times = dict.fromkeys(bounds.ends, wanted.timestamp)
    found = {key: each.offset for key, each in lookup.list_all_offsets(times).items()}
    for key, offset in found.items():
        if offset < 0 and not wanted.else_latest:
            raise OptionError(
                f"{wanted.option}: {key} has no record of time {times[key]} or later;"
                " set startingOffsetsByTimestampStrategy to latest to begin at the end of the log"
            )
    # The record of that time may not be readable yet.
    ends = bounds.ends
    return {
        key: LATEST if offset < 0 else min(offset, ends[key].offset)
        for key, offset in found.items()
    }
