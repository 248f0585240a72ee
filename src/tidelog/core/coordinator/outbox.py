"""The effects of a request: responses, and records that must be written first.

Invariant: each callback that waits for an append is called once, when the outcome is known.
Callbacks of successful appends run in the order of the appends, which is their order in the log.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

from tidelog.core.errors import ErrorCode

OnWritten: TypeAlias = Callable[[ErrorCode, int], None]
"""Called with the outcome of an append and the time."""


class Answer(NamedTuple):
    """The response to a request of `requester`."""

    requester: object
    response: Any


class Append(NamedTuple):
    """Records to write as one batch to all in-sync replicas. A value of None is a tombstone.

    The runtime calls `CoordinatorShard.written(token, error)` once when the outcome is known.
    """

    token: int
    records: list[tuple[bytes, bytes | None]]


class Outbox:
    """The effects of a shard in their order, and the callbacks that wait for its appends."""

    __slots__ = ("_effects", "_next_token", "_waiting")

    def __init__(self) -> None:
        self._effects: list[Any] = []
        self._next_token = 0
        self._waiting: dict[int, list[OnWritten]] = {}

    @property
    def next_token(self) -> int:
        """The token of the next append; tokens only grow."""
        return self._next_token

    def answer(self, requester: object, response: object) -> None:
        """Send a response."""
        self._effects.append(Answer(requester, response))

    def append(self, records: list[tuple[bytes, bytes | None]], on_written: OnWritten) -> int:
        """Write records as one batch. Return the token of the append."""
        token = self._next_token
        self._next_token += 1
        self._waiting[token] = [on_written]
        self._effects.append(Append(token, records))
        return token

    def emit(self, effect: object) -> None:
        """Add an effect that only this coordinator's runtime knows (`carry_out`)."""
        self._effects.append(effect)

    def also_when_written(self, token: int, on_written: OnWritten) -> None:
        """Add a callback to an append that is not written yet."""
        self._waiting[token].append(on_written)

    def written(self, token: int, error: ErrorCode, now_ms: int) -> None:
        """Call the callbacks of an append. Ignore a token from before the shard was unloaded."""
        for on_written in self._waiting.pop(token, ()):
            on_written(error, now_ms)

    def fail_all(self, error: ErrorCode, now_ms: int) -> None:
        """Fail the pending appends: this broker will not learn their outcome."""
        for token in sorted(self._waiting):
            self.written(token, error, now_ms)

    def take(self) -> list[Any]:
        """Remove and return the effects."""
        taken, self._effects = self._effects, []
        return taken


def is_in_doubt(error: ErrorCode) -> bool:
    """Whether records are in the log but may be lost in the next election."""
    return error in (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)


APPEND_ERRORS = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
}
"""The error of an append, and the error that a client of any coordinator gets for it."""
