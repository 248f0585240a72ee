"""Limits for client connections: their number, and the rate of new ones.

One object for all client sockets of a broker: `localhost` has two of them.
"""

from collections.abc import Mapping
from typing import NamedTuple

UNLIMITED = 2**31 - 1
_MS_PER_S = 1000


class ConnectionLimits(NamedTuple):
    """Kafka's limits: `max.connections`, `max.connections.per.ip` and so on."""

    total: int = UNLIMITED
    per_ip: int = UNLIMITED
    per_ip_overrides: Mapping[str, int] = {}
    creation_rate: int = UNLIMITED
    """New connections in a second."""


class Admission:
    """Counts connections by address and admits or refuses new ones."""

    def __init__(self, limits: ConnectionLimits) -> None:
        self.total = 0
        self.refused = 0
        """Refused connections since the broker started."""
        self._limits = limits
        self._by_ip: dict[str, int] = {}
        self._tokens = float(limits.creation_rate)
        self._filled_ms = 0

    def admit(self, ip: str) -> bool:
        """Whether a new connection from this address is allowed; if so, count it."""
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
        """How long to accept no connection; 0 if one may be accepted now.

        Unused capacity is kept for one second.
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
