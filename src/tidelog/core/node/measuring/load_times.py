"""How long coordinators recently took to load the partitions of their internal topic."""

from collections import deque

WINDOW_MS = 60_000
KEPT_MAX = 1000


class LoadTimes:
    """The loads that ended within the last minute."""

    __slots__ = ("_ended",)

    def __init__(self) -> None:
        self._ended: deque[tuple[int, int]] = deque(maxlen=KEPT_MAX)

    def note(self, now_ms: int, took_ms: int) -> None:
        """Add a load that ended now."""
        self._ended.append((now_ms, took_ms))

    def recent(self, now_ms: int) -> list[int]:
        """Return the durations."""
        return [took_ms for at_ms, took_ms in self._ended if now_ms - at_ms < WINDOW_MS]
