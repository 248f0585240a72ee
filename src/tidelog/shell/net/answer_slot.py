"""The place of one answer in the line of a connection's answers.

Always true: what is filled in after the connection is gone goes nowhere, and keeps no file open.
"""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from tidelog.shell.net.outbox import Chunk, Outbox, Stretch

if TYPE_CHECKING:
    from tidelog.shell.net.connection import Connection


class Slot:
    """The place of one answer in the line."""

    __slots__ = ("_connection", "chunks", "size")

    def __init__(self, connection: "Connection") -> None:
        self._connection: Connection | None = connection
        self.chunks: Sequence[Chunk | Stretch] | None = None
        """The answer, once it is there."""
        self.size = 0
        """What the answer takes in memory, or a little more."""

    @property
    def abandoned(self) -> bool:
        return self._connection is None

    def fill(self, chunks: list[Chunk]) -> None:
        """The answer; an empty one only gives the place free (acks=0)."""
        if self._connection is not None:
            self.chunks = chunks
            # A stretch of a file counts as a few bytes, which is near enough.
            self.size = len(chunks[0]) if len(chunks) == 1 else sum(map(len, chunks))
            self._connection.answered(self)

    def refuse(self, reason: str) -> None:
        if self._connection is not None:
            self._connection.close(reason)

    def abandon(self) -> None:
        """The connection is gone. Who works on the answer may still do so for long, and must
        not keep the connection's memory."""
        for chunk in self.chunks or ():
            if isinstance(chunk, Stretch):
                chunk.release()
        self._connection = self.chunks = None

    def hold_files(self, outbox: Outbox) -> None:
        if self.chunks is not None:
            self.chunks = outbox.hold_files(self.chunks)


def any_awaited(slots: Iterable[Slot]) -> bool:
    """Whether a request of these slots is not answered yet."""
    return any(slot.chunks is None for slot in slots)
