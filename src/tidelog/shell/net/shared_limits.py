"""The limits that all client connections of one broker share: number, rate and memory.

Connections are counted by address (`Admission`): one object for all client sockets of a broker,
because `localhost` has two of them.

Requests: receive buffers that grew beyond the small one of every connection are counted. A
connection that gets no more memory stops reading, and TCP slows its peer down. When memory is
released, waiting connections retry, each once, in the order of their last attempt, and no more at
a time than the free memory allows: a thousand may wait.

Responses: bytes that were made and not sent. A broker that stopped making them would stop, so
above the limit the connection with the most unsent bytes is closed.

Invariants: one request may exceed the limit, so some connection always makes progress; a request
that takes too long is dropped (listener.py), so the others get their turn; while a connection
waits, no large buffer is empty, except the one that is being read into.
"""

from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import NamedTuple, Protocol

from tidelog.core.api.exchange import CloseCode

_ANY_NUMBER = 2**31 - 1
_MS_PER_S = 1000
UNLIMITED = 1 << 62
"""In bytes; -1 in Kafka's settings."""
PORTION = 128 * 1024
"""The memory that a waiting connection probably needs."""


class Holder(Protocol):
    """A counted buffer."""

    @property
    def size(self) -> int: ...

    def shrink(self) -> None:
        """Release the memory if it is unused."""
        ...

    def __hash__(self) -> int: ...


class RequestMemory:
    """The memory of incomplete and unhandled requests."""

    def __init__(self, limit: int = UNLIMITED) -> None:
        self.limit = limit
        self.used = 0
        self._holders: set[Holder] = set()
        self._exempt: Holder | None = None
        """The buffer that may exceed the limit."""
        self._trim_later = False
        """Much memory was used and not yet returned to the system."""
        self._releases = 0
        """How often memory was released."""
        self.waiting: OrderedDict[Callable[[], None], int] = OrderedDict()
        """Callbacks of waiting connections, in the order of their last attempt, with the count of
        releases at that attempt. Another attempt before the next release would be useless, and
        the loop would spin."""

    @property
    def plenty(self) -> bool:
        """Whether memory may be allocated for a length before its bytes have arrived."""
        return self.used * 2 < self.limit

    def grow(self, holder: Holder, size: int, *, needed: bool = True) -> bool:
        """Count a buffer of this size; False if memory is lacking now."""
        more = size - holder.size
        if self.used + more > self.limit:
            if not self.waiting:
                # Otherwise this was done when the first connection began to wait, and buffers
                # that were read since released their memory: no need to check a thousand.
                self._reclaim(holder)
            if self.used + more > self.limit:
                if not needed or self._exempt not in (None, holder):
                    return False
                self._exempt = holder
        self.used += more
        self._holders.add(holder)
        if self.used > self.limit // 2:
            self._trim_later = True
        return True

    def give_back(self, holder: Holder, size: int) -> None:
        """Stop counting a buffer that released this many bytes."""
        self.used -= size
        self._releases += 1
        self._holders.discard(holder)
        if self._exempt is holder:
            self._exempt = None
        if self._trim_later and self.used < self.limit // 16:
            self._trim_later = False
            give_to_system()

    def wait(self, act: Callable[[], None]) -> None:
        """Call `act` when there may be memory again."""
        self.waiting[act] = self._releases
        self.waiting.move_to_end(act)

    def forget(self, act: Callable[[], None]) -> None:
        self.waiting.pop(act, None)

    def wake(self, read: Holder | None = None) -> None:
        """Let waiting connections retry, after requests in `read` were handled or a connection
        closed."""
        if read is not None:
            read.shrink()
        waiting = self.waiting
        portions = (self.limit - self.used) // PORTION
        if self._exempt is None:
            portions = max(portions, 1)
        while portions > 0 and waiting:
            act = next(iter(waiting))
            if waiting[act] == self._releases:
                return
            del waiting[act]
            act()
            portions -= 1

    def _reclaim(self, kept: Holder) -> None:
        """Release large buffers that are empty."""
        for holder in [each for each in self._holders if each is not kept]:
            holder.shrink()


def give_to_system() -> None:
    """Make glibc return free memory to the system: after an overload, hundreds of megabytes."""
    from contextlib import suppress
    from ctypes import CDLL

    with suppress(OSError, AttributeError):
        CDLL(None).malloc_trim(0)


class SlowReader(Protocol):
    """A connection with unsent responses."""

    def close(self, reason: str, code: CloseCode) -> None: ...

    def __hash__(self) -> int: ...


class AnswerMemory:
    """The memory of unsent responses."""

    def __init__(self, limit: int = UNLIMITED) -> None:
        self.limit = limit
        self.used = 0
        self._held: dict[SlowReader, int] = {}

    def hold(self, reader: SlowReader, size: int) -> None:
        """Set the unsent bytes of a connection; close the largest ones above the limit."""
        self.used += size - self._held.pop(reader, 0)
        if size:
            self._held[reader] = size
        while self.used > self.limit and self._held:
            most = max(self._held, key=self._held.__getitem__)
            size = self._held.pop(most)
            self.used -= size
            most.close(f"{size} bytes of responses were not read", CloseCode.RESPONSES_NOT_READ)


class Bounds(NamedTuple):
    """The limits of one connection."""

    frame_max: int
    in_flight_max: int
    requests: RequestMemory
    answers: AnswerMemory


HELD_MAX = 500
"""Connections beyond the quota of their addresses that are held open, so that their clients wait
before they connect again."""


class CreationRate:
    """A largest rate of new connections. Unused capacity is kept for one second."""

    def __init__(self, rate: int = _ANY_NUMBER) -> None:
        self._rate = rate
        self._tokens = float(rate)
        self._filled_ms = 0

    def take(self) -> None:
        """Count a new connection."""
        self._tokens -= 1

    def pause_ms(self, now_ms: int) -> int:
        """How long to accept no connection; 0 if one may be accepted now."""
        rate = self._rate
        if rate == _ANY_NUMBER:
            return 0
        earned = (now_ms - self._filled_ms) * rate / _MS_PER_S
        self._tokens = min(self._tokens + earned, float(rate))
        self._filled_ms = now_ms
        if self._tokens >= 1:
            return 0
        return int((1 - self._tokens) * _MS_PER_S / rate) + 1 if rate else _MS_PER_S


class ConnectionLimits(NamedTuple):
    """Kafka's limits: `max.connections`, `max.connections.per.ip` and so on."""

    total: int = _ANY_NUMBER
    per_ip: int = _ANY_NUMBER
    per_ip_overrides: Mapping[str, int] = {}
    creation_rate: int = _ANY_NUMBER
    """New connections in a second."""


class Admission:
    """Counts connections by address and admits or refuses new ones."""

    def __init__(
        self, limits: ConnectionLimits, quota: Callable[[str, int], int] | None = None
    ) -> None:
        """`quota` returns how long a new connection of an address must wait at a time, 0 after it
        counted the connection."""
        self._quota = quota
        self._held = 0
        self.total = 0
        self.refused = 0
        """Refused connections since the broker started."""
        self._limits = limits
        self._by_ip: dict[str, int] = {}
        self._rate = CreationRate(limits.creation_rate)

    def admit(self, ip: str) -> bool:
        """Whether a new connection from this address is allowed; if so, count it."""
        limits = self._limits
        here = self._by_ip.get(ip, 0)
        self._rate.take()
        if self.total >= limits.total or here >= limits.per_ip_overrides.get(ip, limits.per_ip):
            self.refused += 1
            return False
        self.total += 1
        self._by_ip[ip] = here + 1
        return True

    def wait_ms(self, ip: str, now_ms: int) -> int:
        """How long a new connection of this address must be held, unread, before it is closed: it
        exceeds the quota of the address. 0: it may be admitted."""
        if self._quota is None:
            return 0
        wait_ms = self._quota(ip, now_ms)
        if wait_ms:
            self.refused += 1
        return wait_ms

    def hold(self) -> bool:
        """Whether a connection beyond its quota may be held open; else it is closed at once."""
        if self._held >= HELD_MAX:
            return False
        self._held += 1
        return True

    def release(self) -> None:
        """A held connection was closed."""
        self._held -= 1

    def leave(self, ip: str) -> None:
        self.total -= 1
        self._by_ip[ip] -= 1
        if not self._by_ip[ip]:
            del self._by_ip[ip]

    def pause_ms(self, now_ms: int) -> int:
        """How long to accept no connection; 0 if one may be accepted now."""
        return self._rate.pause_ms(now_ms)


class Shares(NamedTuple):
    """The limits that client connections share: all of a broker, or those of one listener."""

    admission: Admission
    requests: RequestMemory
    answers: AnswerMemory
    creation_rate: CreationRate
    """That of one listener, which all of its sockets share."""

    @classmethod
    def unlimited(cls) -> "Shares":
        return cls(Admission(ConnectionLimits()), RequestMemory(), AnswerMemory(), CreationRate())
