"""Requests that are answered later: Kafka's purgatory.

A request over several partitions has one part for each; it is answered when its last part
is settled, or when its time is over. A part waits at its replica: for the high watermark
(acks=all) or for the low watermark (DeleteRecords). Long polls are in serving/long_poll.py,
for they are woken, not settled.

Always true: a pending request is answered exactly once; a part that is settled later finds
its request done and changes nothing.
"""

from collections import deque
from collections.abc import Callable
from typing import Any, TypeAlias

from tidelog.core.node.events import Peer
from tidelog.core.slotted import slotted
from tidelog.core.types import Offset


@slotted(eq=False)
class Pending:
    """A request of which some parts are not settled."""

    peer: Peer
    correlation: int
    answers: list[Any]
    """One for each part; what is preset is what a time-out answers."""
    left: int
    deadline_ms: int
    finish: Callable[["Pending"], None]
    """Called once, when nothing is left or the time is over."""
    done: bool = False

    def settle(self, index: int, answer: object) -> None:
        if self.done:
            return
        self.answers[index] = answer
        self.left -= 1
        if self.left == 0:
            self.done = True
            self.finish(self)

    def time_out(self) -> None:
        if not self.done:
            self.done = True
            self.finish(self)


@slotted(eq=False)
class Part:
    """One partition of a pending request."""

    pending: Pending
    index: int
    append_time_ms: int | None = None
    """What the records were stamped with, where the broker stamps them."""
    offset: Offset = 0
    """What the watermark it waits for has to reach."""
    base_offset: Offset | None = None


@slotted(eq=False)
class LonePart(Pending):
    """A request of one part, and that part: most produces are for one partition."""

    append_time_ms: int | None = None
    offset: Offset = 0
    base_offset: Offset | None = None

    index = 0

    @property
    def pending(self) -> Pending:
        return self


AnyPart: TypeAlias = Part | LonePart


class PartQueue:
    """Parts that wait for one watermark, in the order of what they wait for.

    Offsets of new produces only grow, so a part nearly always goes to the end; a retry of
    an older batch waits for less than those before it.

    Every replica has three of these and most never use them, so the deque, which takes most
    of a kilobyte, comes with the first part.
    """

    __slots__ = ("_parts",)

    def __init__(self) -> None:
        self._parts: deque[AnyPart] | None = None

    def __len__(self) -> int:
        return 0 if self._parts is None else len(self._parts)

    def add(self, part: AnyPart) -> None:
        parts = self._parts
        if parts is None:
            parts = self._parts = deque()
        at = len(parts)
        if not at or parts[-1].offset <= part.offset:
            parts.append(part)
            return
        while at and parts[at - 1].offset > part.offset:
            at -= 1
        parts.insert(at, part)

    def reached(self, watermark: Offset) -> list[AnyPart]:
        """Take out those who have waited long enough."""
        parts = self._parts
        if not parts or parts[0].offset > watermark:
            return []
        found = []
        while parts and parts[0].offset <= watermark:
            found.append(parts.popleft())
        return found

    def clear(self) -> list[AnyPart]:
        """Take out all."""
        found = list(self._parts or ())
        self._parts = None
        return found

    def forget_done(self) -> None:
        """Drop the oldest, as far as their requests timed out: the queue stays bounded."""
        parts = self._parts
        while parts and parts[0].pending.done:
            parts.popleft()
