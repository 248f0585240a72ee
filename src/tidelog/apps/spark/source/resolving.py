"""From the positions that options name to offsets, for a batch or for a stream's first start.

Always true: what comes out lies within the logs as the brokers just described them; where the
options named something outside, it was refused or, if loss is to be borne, told.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from tidelog.apps.spark.source.loss.judging import Place
from tidelog.apps.spark.source.loss.policy import LossKind, LostRange
from tidelog.apps.spark.source.options.known import OptionError
from tidelog.apps.spark.source.options.positions import Positions
from tidelog.apps.spark.source.survey import Survey
from tidelog.core.types import Offset, TopicPartition
from tidelog.shell.client.offsets import EARLIEST, LATEST


class Bounds(NamedTuple):
    """Where logs begin and where readers' data ends in them."""

    starts: Mapping[TopicPartition, Offset]
    ends: Mapping[TopicPartition, Place]


class Resolved(NamedTuple):
    """Offsets, and what was asked for and is deleted."""

    places: dict[TopicPartition, Place]
    lost: tuple[LostRange, ...] = ()


def ask_bounds(survey: Survey, keys: Iterable[TopicPartition]) -> Bounds:
    """Two requests for each leader. Raises ClientError."""
    keys = list(keys)
    ends = survey.ask_all(dict.fromkeys(keys, LATEST))
    starts = survey.ask_all(dict.fromkeys(keys, EARLIEST))
    return Bounds(
        {key: found.offset for key, found in starts.items()},
        {key: Place(found.offset, found.leader_epoch) for key, found in ends.items()},
    )


def resolve(survey: Survey, wanted: Positions, bounds: Bounds) -> Resolved:
    """Each partition's place. Its epoch is the leader's now, or that of the end: no record
    before it can have a newer one. Raises OptionError, ClientError."""
    wanted.check_partitions(bounds.ends)
    named = _named(survey, wanted, bounds)
    places, lost = {}, []
    for key, end in bounds.ends.items():
        offset, start = named[key], bounds.starts[key]
        if offset == EARLIEST:
            offset = start
        elif offset == LATEST:
            offset = end.offset
        if offset > end.offset:
            raise OptionError(
                f"{wanted.option} of {key} is {offset}, and its log ends at {end.offset};"
                " give an offset that is there"
            )
        if offset < start:
            lost.append(LostRange(*key, LossKind.RETENTION, offset, start, start))
            offset = start
        places[key] = Place(offset, end.epoch)
    return Resolved(places, tuple(lost))


def _named(survey: Survey, wanted: Positions, bounds: Bounds) -> Mapping[TopicPartition, Offset]:
    """Offsets as they are named; EARLIEST and LATEST may be among them."""
    if wanted.offsets is not None:
        return wanted.offsets
    if wanted.everywhere is not None:
        return dict.fromkeys(bounds.ends, wanted.everywhere)
    if wanted.timestamps is not None:
        times = dict(wanted.timestamps)
    else:
        assert wanted.timestamp is not None
        times = dict.fromkeys(bounds.ends, wanted.timestamp)
    found = {key: each.offset for key, each in survey.ask_all(times).items()}
    for key, offset in found.items():
        if offset < 0 and not wanted.else_latest:
            raise OptionError(
                f"{wanted.option}: {key} has no record as new as {times[key]};"
                " set startingOffsetsByTimestampStrategy to latest to begin at its end"
            )
    # The record of that time may be beyond what readers may see by now.
    ends = bounds.ends
    return {
        key: LATEST if offset < 0 else min(offset, ends[key].offset)
        for key, offset in found.items()
    }
