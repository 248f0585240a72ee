"""Requests that are answered later: Kafka's purgatory.

A request for several partitions has one part for each; the response is sent when the last part is
settled, or at the time-out. A part waits at its replica: for the high watermark (acks=all) or for
the low watermark (DeleteRecords). Long polls are in serving/long_poll.py.

Invariant: a pending request is answered exactly once; a part that is settled after that changes
nothing.
"""

from collections import deque
from collections.abc import Callable
from typing import Any, TypeAlias

from tidelog.core.node.events import Peer
from tidelog.core.slotted import slotted
from tidelog.core.types import Offset


@slotted(eq=False)
class Pending:
    """A request with parts that are not settled."""

    peer: Peer
    correlation: int
    answers: list[Any]
    """One result for each part. The preset values are sent at a time-out."""
    left: int
    deadline_ms: int
    finish: Callable[["Pending"], None]
    """Called once, when all parts are settled or at the time-out."""
    done: bool = False

    def settle(self, index: int, answer: object) -> None:
        """Set the result of one part; the last one finishes the request."""
        if self.done:
            return
        self.answers[index] = answer
        self.left -= 1
        if self.left == 0:
            self.done = True
            self.finish(self)

    def time_out(self) -> None:
        """Finish with the preset results of unsettled parts."""
        if not self.done:
            self.done = True
            self.finish(self)


@slotted(eq=False)
class Part:
    """One partition of a pending request."""

    pending: Pending
    index: int
    append_time_ms: int | None = None
    """The append time of the records, if the broker sets it or the batch is a duplicate."""
    offset: Offset = 0
    """The offset that the watermark must reach."""
    base_offset: Offset | None = None


@slotted(eq=False)
class LonePart(Pending):
    """A request with one part, and that part: most produces are for one partition."""

    append_time_ms: int | None = None
    offset: Offset = 0
    base_offset: Offset | None = None

    index = 0

    @property
    def pending(self) -> Pending:
        return self


AnyPart: TypeAlias = Part | LonePart


class PartQueue:
    """Parts that wait for one watermark, ordered by offset.

    Offsets of new produces only grow, so a new part nearly always goes to the end; a retry of an
    older batch waits for a smaller offset.

    Every replica has three queues and most never use them, so the deque, which takes most of a
    kilobyte, is created with the first part.
    """

    __slots__ = ("_parts",)

    def __init__(self) -> None:
        self._parts: deque[AnyPart] | None = None

    def __len__(self) -> int:
        return 0 if self._parts is None else len(self._parts)

    def add(self, part: AnyPart) -> None:
        """Insert a part by its offset."""
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
        """Remove and return the parts whose offset the watermark has reached."""
        parts = self._parts
        if not parts or parts[0].offset > watermark:
            return []
        found = []
        while parts and parts[0].offset <= watermark:
            found.append(parts.popleft())
        return found

    def clear(self) -> list[AnyPart]:
        """Remove and return all parts."""
        found = list(self._parts or ())
        self._parts = None
        return found

    def forget_done(self) -> None:
        """Drop the first parts whose requests timed out, so that the queue stays bounded."""
        parts = self._parts
        while parts and parts[0].pending.done:
            parts.popleft()
