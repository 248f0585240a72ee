"""Where cleaners may have been: what is missing there is no damage.

A cleaner takes records away below its checkpoint, and never changes one. One that was stopped
at work may have gone on in closed segments, never in the one that is written to. Replicas also
have gaps by copying from one that was cleaned, so all of them are asked.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from tidelog.core.types import INTERNAL_TOPICS

if TYPE_CHECKING:
    from tidelog.apps.audit.checks.replica_log import ReplicaLog


class Cleaning(NamedTuple):
    """Of a partition, as far as its replicas show."""

    compacted: bool = False
    upto: int = 0
    """Below this offset a cleaner may have taken anything."""
    noted: bool = False
    """Whether a checkpoint tells of it."""


def cleaning_of(logs: Sequence["ReplicaLog"]) -> Cleaning:
    """Batches with fewer records than offsets are a cleaner's work only if most replicas have
    some: one that stands alone is damaged."""
    newest = max(log.active_base for log in logs)
    noted = [min(log.cleaner_noted, newest) for log in logs if log.cleaner_noted >= 0]
    thinned = sum(log.is_thinned for log in logs)
    internal = any(log.topic in INTERNAL_TOPICS for log in logs)
    if not noted and not internal and thinned * 2 <= len(logs):
        return Cleaning()
    unnoted = not noted and thinned
    at_work = [log.active_base for log in logs if unnoted or not log.clean]
    swapped = any(segment.vanished for log in logs for segment in log.segments)
    anywhere = swapped or (len(logs) == 1 and not noted)  # by a cleaner that is not seen
    committed = [log.high_watermark or 0 for log in logs if anywhere]
    seen = [_thinned_upto(log) for log in logs]
    return Cleaning(True, max([*noted, *at_work, *committed, *seen, 0]), bool(noted))


def _thinned_upto(log: "ReplicaLog") -> int:
    """Where the last closed segment ends in which a cleaner thinned several batches. A broker
    that stops while its cleaner works leaves an older checkpoint."""
    ends = [
        after.base_offset
        for segment, after in pairwise(log.segments)
        if sum(stretch.thinned for stretch in segment.stretches) > 1
    ]
    return max(ends, default=0)
