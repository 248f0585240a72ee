"""Find where a cleaner may have removed records: missing records are not damage there.

A cleaner removes records below its checkpoint and never changes one. If a stop interrupts it, it
may have cleaned closed segments above the checkpoint, but never the active segment. A replica
also gets gaps when it copies a cleaned log, so all replicas of a partition count.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from tidelog.core.types import INTERNAL_TOPICS

if TYPE_CHECKING:
    from tidelog.apps.audit.checks.replica_log import ReplicaLog


class Cleaning(NamedTuple):
    """The state of compaction of a partition, derived from all its replicas."""

    compacted: bool = False
    upto: int = 0
    """Below this offset, a cleaner may have removed any record."""
    noted: bool = False
    """Whether a replica has a cleaner checkpoint for the partition."""


def cleaning_of(logs: Sequence["ReplicaLog"]) -> Cleaning:
    """Return the state of compaction of a partition.

    Without a checkpoint, batches with fewer records than offsets prove a cleaner only if most
    replicas have some. Otherwise they are damage. Internal topics are always compacted.
    """
    newest = max(log.active_base for log in logs)
    noted = [min(log.cleaner_noted, newest) for log in logs if log.cleaner_noted >= 0]
    thinned = sum(log.is_thinned for log in logs)
    internal = any(log.topic in INTERNAL_TOPICS for log in logs)
    if not noted and not internal and thinned * 2 <= len(logs):
        return Cleaning()
    unnoted = not noted and thinned
    at_work = [log.active_base for log in logs if unnoted or not log.clean]
    swapped = any(segment.vanished for log in logs for segment in log.segments)
    anywhere = swapped or (len(logs) == 1 and not noted)  # by a cleaner without a checkpoint
    committed = [log.high_watermark or 0 for log in logs if anywhere]
    seen = [_thinned_upto(log) for log in logs]
    return Cleaning(True, max([*noted, *at_work, *committed, *seen, 0]), bool(noted))


def _thinned_upto(log: "ReplicaLog") -> int:
    """Return the end of the last closed segment in which several batches lack records.

    A broker that stops while its cleaner works leaves a checkpoint below that offset.
    """
    ends = [
        after.base_offset
        for segment, after in pairwise(log.segments)
        if sum(stretch.thinned for stretch in segment.stretches) > 1
    ]
    return max(ends, default=0)
