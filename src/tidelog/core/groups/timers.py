"""The keys of the timers of a group shard."""

from enum import IntEnum
from typing import NamedTuple


class TimerKind(IntEnum):
    """The action of a timer. Timers of the same millisecond fire in this order."""

    SESSION = 0
    """Remove a member that sent no heartbeat."""
    PENDING = 1
    """Forget a member id that was assigned and never used."""
    JOIN = 2
    """End the join phase of a rebalance."""
    SYNC = 3
    """Remove members that joined but sent no SyncGroup."""
    EXPIRE = 4
    """Delete expired offsets and empty groups."""
    DELETED_TOPICS = 5
    """Delete offsets of deleted topics."""


class Timer(NamedTuple):
    """The action, and the group and member it is about. There is at most one timer for each key."""

    kind: TimerKind
    group_id: str = ""
    member_id: str = ""
