"""Who is let in: how many connections a broker's clients have, and how fast new ones come.

One for all sockets on which a broker listens for clients: `localhost` is two of them.
"""

from collections.abc import Mapping
from typing import NamedTuple

UNLIMITED = 2**31 - 1
_MS_PER_S = 1000


class ConnectionLimits(NamedTuple):
    """Under Kafka's names: `max.connections` and so on."""

    total: int = UNLIMITED
    per_ip: int = UNLIMITED
    per_ip_overrides: Mapping[str, int] = {}
    creation_rate: int = UNLIMITED
    """In a second."""


class Admission:
    """Counts connections by where they come from."""

    def __init__(self, limits: ConnectionLimits) -> None:
        self.total = 0
        self.refused = 0
        """Since the broker started."""
        self._limits = limits
        self._by_ip: dict[str, int] = {}
        self._tokens = float(limits.creation_rate)
        self._filled_ms = 0

    def admit(self, ip: str) -> bool:
        """Whether one more may come from there; if so it counts from now on."""
        limits = self._limits
        here = self._by_ip.get(ip, 0)
        self._tokens -= 1
        if self.total >= limits.total or here >= limits.per_ip_overrides.get(ip, limits.per_ip):
            self.refused += 1
            return False
        self.total += 1
        self._by_ip[ip] = here + 1
        return True

    def leave(self, ip: str) -> None:
        self.total -= 1
        self._by_ip[ip] -= 1
        if not self._by_ip[ip]:
            del self._by_ip[ip]

    def pause_ms(self, now_ms: int) -> int:
        """How long no connection may be taken; 0 if one may be now.

        What is not used up is kept for a second, no longer.
        """
        rate = self._limits.creation_rate
        if rate == UNLIMITED:
            return 0
        earned = (now_ms - self._filled_ms) * rate / _MS_PER_S
        self._tokens = min(self._tokens + earned, float(rate))
        self._filled_ms = now_ms
        if self._tokens >= 1:
            return 0
        return int((1 - self._tokens) * _MS_PER_S / rate) + 1 if rate else _MS_PER_S
