"""Detection of missing records when a log is opened.

A crash may lose the end of the last write. It never loses records below the recovery point, which
were synced, nor the first segment, nor one in the middle. If those are missing, the disk failed or
an operator removed them. This module compares the log that recovery found with other files:

- the recovery point and the high watermark checkpoint: the log ended there or later;
- each segment: it ends where the next one begins, unless compaction left a gap;
- the first entry of `leader-epoch-checkpoint`: the log began there or earlier. It is written
  before segments are dropped (node/hosting/replicas.py).

Damage removes nothing by itself. The replica reports it before it may lead, and truncates to
`Damage.offset` when it follows a leader, which has the records. Without another replica it
serves the remaining records.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from tidelog.core.storage.disk import DiskError
from tidelog.core.storage.segment.segment import Segment
from tidelog.core.types import EpochEntry, Offset


class Damage(NamedTuple):
    """The log lacks records from `offset` on that it once had.

    If `inside`, there are records after the missing ones. Else the log ends at `offset`, and only
    later records are missing.
    """

    offset: Offset
    reason: str
    inside: bool = True


def missing_start(epochs: Sequence[EpochEntry], segments: Sequence[Segment]) -> Damage | None:
    """Return damage if the first segments are missing: the log starts after its first epoch."""
    if not epochs or not segments:
        return None
    first, base = epochs[0].start_offset, segments[0].base_offset
    if first >= base:
        return None
    return Damage(first, f"offsets {first} to {base - 1} are missing at the start of the log")


def missing_between(segments: Sequence[Segment], cleaned_upto: Offset) -> Damage | None:
    """Return damage if a segment is missing or ends too early. Gaps below `cleaned_upto` are from
    compaction."""
    return next(all_missing_between(segments, cleaned_upto), None)


def all_missing_between(segments: Iterable[Segment], cleaned_upto: Offset) -> Iterator[Damage]:
    """Like `missing_between`, for every segment that does not end where the next one starts."""
    for earlier, later in pairwise(segments):
        try:
            end = earlier.next_offset()
        except DiskError as error:
            yield Damage(earlier.base_offset, str(error))
            continue
        if end > later.base_offset:
            beyond = f"ends at offset {end}, the next segment starts at {later.base_offset}"
            yield Damage(earlier.base_offset, f"{earlier.path}: {beyond}")
        elif end != later.base_offset and later.base_offset > cleaned_upto:
            missing = f"offsets {end} to {later.base_offset - 1} are missing between segments"
            yield Damage(end, f"{earlier.path}: {missing}")


def missing_end(log_end: Offset, known_end: Offset) -> Damage | None:
    """Return damage if the log ends below `known_end`, which it once reached."""
    if log_end >= known_end:
        return None
    reason = f"the log ends at offset {log_end}, its checkpoints say {known_end}"
    return Damage(log_end, reason, inside=False)
