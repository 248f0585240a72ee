"""Requests to other brokers that wait for a response.

Every request gets a new correlation id, so a response that arrives late, twice or after a time-out
matches no open call and is discarded. The time-out is the node's own: it does not depend on the
host noticing that a connection is dead.
"""

from collections.abc import Callable
from typing import Any

from tidelog.core.node.deadlines import Deadlines
from tidelog.core.node.effects import Send
from tidelog.core.node.turn import Turn
from tidelog.core.slotted import slotted
from tidelog.core.types import BrokerId

Answered = Callable[[Any], None]
"""Called with the response, whose type belongs to the request."""
Failed = Callable[[], None]
"""Called when no response will arrive."""


@slotted(eq=False)
class Call:
    """One open request."""

    answered: Answered
    failed: Failed
    deadline_ms: int


class Calls:
    """Sends requests, and passes each response to the callback of its request."""

    __slots__ = ("_next", "_open", "_turn", "deadlines")

    def __init__(self, turn: Turn) -> None:
        self._turn = turn
        self._open: dict[int, Call] = {}
        self.deadlines: Deadlines[int] = Deadlines()
        self._next = 0

    def send(
        self,
        broker: BrokerId,
        request: object,
        timeout_ms: int,
        answered: Answered,
        failed: Failed,
    ) -> int:
        """Send a request to a broker; return its correlation id."""
        correlation = self._next
        self._next += 1
        call = Call(answered, failed, self._turn.now_ms + timeout_ms)
        self._open[correlation] = call
        self.deadlines.add(correlation, call.deadline_ms)
        self._turn.emit(Send(broker, correlation, request))
        return correlation

    def answer(self, correlation: int, response: object) -> None:
        """Pass on a response."""
        call = self._take(correlation)
        if call is not None:
            call.answered(response)

    def fail(self, correlation: int) -> None:
        """Report that a request has failed."""
        call = self._take(correlation)
        if call is not None:
            call.failed()

    def abandon(self, correlation: int) -> None:
        """Forget a request; its response is discarded."""
        self._take(correlation)

    def tick(self) -> None:
        """Fail the requests that have timed out."""
        for correlation in self.deadlines.due(self._turn.now_ms):
            self.fail(correlation)

    def next_ms(self) -> int | None:
        """When `tick` has something to do."""
        return self.deadlines.next_ms()

    def _take(self, correlation: int) -> Call | None:
        call = self._open.pop(correlation, None)
        if call is not None:
            self.deadlines.remove(correlation, call.deadline_ms)
        return call
