"""How much memory the peers of one broker may take, all together.

Requests under way: buffers that grew beyond the small one every connection has are counted.
A connection that gets no more stops reading, and its peer is held up by TCP. When memory was
given back those that wait try again, each once, in the order in which they last did, and no
more of them at a time than there is memory for: a thousand may wait.

Answers nobody takes: bytes that were made and not sent. Holding them up would hold up the
broker, so past the limit the connection with the most of them is closed.

Always true: one request may go beyond the limit, so somebody can always go on; a request
that takes too long is dropped (listener.py), so the others get their turn; while anybody waits,
no large buffer is empty, but the one that is being read into.
"""

from collections import OrderedDict
from collections.abc import Callable
from typing import NamedTuple, Protocol

UNLIMITED = 1 << 62
"""In bytes: what -1 in Kafka's settings means."""
PORTION = 128 * 1024
"""What one that waits is expected to need."""


class Holder(Protocol):
    """A buffer that counts."""

    @property
    def size(self) -> int: ...

    def shrink(self) -> None:
        """Give back what holds nothing."""
        ...

    def __hash__(self) -> int: ...


class RequestMemory:
    """What requests under way take."""

    def __init__(self, limit: int = UNLIMITED) -> None:
        self.limit = limit
        self.used = 0
        self._holders: set[Holder] = set()
        self._favoured: Holder | None = None
        """The one that may go beyond the limit."""
        self._swollen = False
        """Much was used, and the system was not given it back since."""
        self._returns = 0
        """How often memory was given back."""
        self.waiting: OrderedDict[Callable[[], None], int] = OrderedDict()
        """Who would take what is given back, and after which return each last tried: there is no
        use in another try before the next, and the loop would spin. They are in that order."""

    @property
    def plenty(self) -> bool:
        """Whether a length alone, without its bytes, may be believed."""
        return self.used * 2 < self.limit

    def grow(self, holder: Holder, size: int, *, needed: bool = True) -> bool:
        """Let a buffer become this large; False if it has to wait, or do without."""
        more = size - holder.size
        if self.used + more > self.limit:
            if not self.waiting:
                # Else all was taken back that could be, when the first of them came to wait,
                # and what was read since then gave its own back: no need to ask a thousand.
                self._reclaim(holder)
            if self.used + more > self.limit:
                if not needed or self._favoured not in (None, holder):
                    return False
                self._favoured = holder
        self.used += more
        self._holders.add(holder)
        if self.used > self.limit // 2:
            self._swollen = True
        return True

    def give_back(self, holder: Holder, size: int) -> None:
        """A buffer holds so many bytes less, and no longer counts."""
        self.used -= size
        self._returns += 1
        self._holders.discard(holder)
        if self._favoured is holder:
            self._favoured = None
        if self._swollen and self.used < self.limit // 16:
            self._swollen = False
            give_to_system()

    def wait(self, act: Callable[[], None]) -> None:
        """Call this when there may be memory again."""
        self.waiting[act] = self._returns
        self.waiting.move_to_end(act)

    def forget(self, act: Callable[[], None]) -> None:
        self.waiting.pop(act, None)

    def wake(self, read: Holder | None = None) -> None:
        """Requests of this one were handled, or connections are gone: let those that wait try
        again."""
        if read is not None:
            read.shrink()
        waiting = self.waiting
        portions = (self.limit - self.used) // PORTION
        if self._favoured is None:
            portions = max(portions, 1)
        while portions > 0 and waiting:
            act = next(iter(waiting))
            if waiting[act] == self._returns:
                return
            del waiting[act]
            act()
            portions -= 1

    def _reclaim(self, asking: Holder) -> None:
        """Take back what large buffers keep for a next request."""
        for holder in [each for each in self._holders if each is not asking]:
            holder.shrink()


def give_to_system() -> None:
    """glibc keeps free memory that lies between other things: after an overload that may be
    hundreds of megabytes. Asked for it, it gives it to the system."""
    from contextlib import suppress
    from ctypes import CDLL

    with suppress(OSError, AttributeError):
        CDLL(None).malloc_trim(0)


class Hoarder(Protocol):
    """A connection with answers that nobody takes."""

    def close(self, reason: str) -> None: ...

    def __hash__(self) -> int: ...


class AnswerMemory:
    """What answers that were not sent take."""

    def __init__(self, limit: int = UNLIMITED) -> None:
        self.limit = limit
        self.used = 0
        self._held: dict[Hoarder, int] = {}

    def hold(self, hoarder: Hoarder, size: int) -> None:
        """So much waits for this one's peer now; 0 forgets it."""
        self.used += size - self._held.pop(hoarder, 0)
        if size:
            self._held[hoarder] = size
        while self.used > self.limit and self._held:
            most = max(self._held, key=self._held.__getitem__)
            size = self._held.pop(most)
            self.used -= size
            most.close(f"{size} bytes of answers were not taken")


class Bounds(NamedTuple):
    """What one connection may take."""

    frame_max: int
    in_flight_max: int
    requests: RequestMemory
    answers: AnswerMemory
