"""Which segments are written into one, so that logs do not fall apart into tiny files.

A group's segments together are no larger than one may be, in bytes, in index entries and in
the span of their offsets: cleaning only makes them smaller.
"""

from collections.abc import Sequence
from typing import NamedTuple

from tidelog.core.storage import layout
from tidelog.core.storage.cleaning.plan import CleaningPlan, SourceSegment
from tidelog.core.storage.disk import Disk
from tidelog.core.storage.log_config import LogConfig
from tidelog.core.storage.segment.succession import RELATIVE_OFFSET_MAX
from tidelog.core.types import Offset


def group_segments(disk: Disk, plan: CleaningPlan, upto: Offset) -> list[tuple[SourceSegment, ...]]:
    """Those that begin below `upto`, in order and in groups."""
    segments = [segment for segment in plan.segments if segment.base_offset < upto]
    groups: list[tuple[SourceSegment, ...]] = []
    group: list[SourceSegment] = []
    room = _Room(0, 0, 0)
    for number, segment in enumerate(segments):
        needed = _needs(disk, plan, segment)
        last = _end_of(plan.segments, number, plan.end_offset) - 1
        if group and not (
            room.plus(needed).fits(plan.config)
            and (segment.size == 0 or last - group[0].base_offset <= RELATIVE_OFFSET_MAX)
        ):
            groups.append(tuple(group))
            group, room = [], _Room(0, 0, 0)
        group.append(segment)
        room = room.plus(needed)
    if group:
        groups.append(tuple(group))
    return groups


class _Room(NamedTuple):
    """Bytes of a segment's files."""

    log: int
    offset_index: int
    time_index: int

    def plus(self, more: "_Room") -> "_Room":
        return _Room(
            self.log + more.log,
            self.offset_index + more.offset_index,
            self.time_index + more.time_index,
        )

    def fits(self, config: LogConfig) -> bool:
        index_bytes = max(self.offset_index, self.time_index)
        return self.log <= config.segment_bytes and index_bytes <= config.segment_index_bytes


def _needs(disk: Disk, plan: CleaningPlan, segment: SourceSegment) -> _Room:
    sizes = []
    for kind in (layout.OFFSET_INDEX, layout.TIME_INDEX):
        path = f"{plan.directory}/{layout.file_name(segment.base_offset, kind)}"
        sizes.append(disk.size(path) if disk.exists(path) else 0)
    return _Room(segment.size, *sizes)


def _end_of(segments: Sequence[SourceSegment], number: int, end: Offset) -> Offset:
    """An offset that no record of that segment reaches."""
    return segments[number + 1].base_offset if number + 1 < len(segments) else end
