"""So many records a second, evenly; time that was lost is not made up for in one burst."""

_CATCH_UP_S = 0.25


class Pace:
    """Says how many records are due."""

    def __init__(self, rate: float, now_s: float) -> None:
        self._rate = rate
        self._due = 0.0
        self._at = now_s

    def due(self, now_s: float) -> int:
        """How many to send now."""
        self._due = min(self._due + (now_s - self._at) * self._rate, _CATCH_UP_S * self._rate + 1)
        self._at = now_s
        return int(self._due)

    def done(self, count: int) -> None:
        """So many were sent."""
        self._due -= count
