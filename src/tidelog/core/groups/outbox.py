"""What follows from a request: answers, and records to be written first.

Always true: everybody who waits for a write hears of it once, when it is known how it went.
Writes that succeed are told in the order in which they were asked for, as they lie in one log.
"""

from collections.abc import Callable
from typing import TypeAlias

from tidelog.core.errors import ErrorCode
from tidelog.core.groups.messages import Answer, Append, Response

OnWritten: TypeAlias = Callable[[ErrorCode, int], None]
"""Gets how it went, and the time."""


class Outbox:
    """Effects in their order, and what is to be done when records are written."""

    __slots__ = ("_effects", "_next_token", "_waiting")

    def __init__(self) -> None:
        self._effects: list[Answer | Append] = []
        self._next_token = 0
        self._waiting: dict[int, list[OnWritten]] = {}

    @property
    def next_token(self) -> int:
        """Grows with every append."""
        return self._next_token

    def answer(self, asker: object, response: Response) -> None:
        self._effects.append(Answer(asker, response))

    def append(self, records: list[tuple[bytes, bytes | None]], on_written: OnWritten) -> int:
        """Have records written as one batch."""
        token = self._next_token
        self._next_token += 1
        self._waiting[token] = [on_written]
        self._effects.append(Append(token, records))
        return token

    def also_when_written(self, token: int, on_written: OnWritten) -> None:
        """One more that waits for the same append."""
        self._waiting[token].append(on_written)

    def written(self, token: int, error: ErrorCode, now_ms: int) -> None:
        """An unknown token is one of before the groups were unloaded."""
        for on_written in self._waiting.pop(token, ()):
            on_written(error, now_ms)

    def fail_all(self, error: ErrorCode, now_ms: int) -> None:
        """Nobody here will learn how the appends went that are under way."""
        for token in sorted(self._waiting):
            self.written(token, error, now_ms)

    def take(self) -> list[Answer | Append]:
        taken, self._effects = self._effects, []
        return taken


def is_in_doubt(error: ErrorCode) -> bool:
    """The records are in the log, and may or may not be there after the next election."""
    return error in (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)


def error_of_group_append(error: ErrorCode) -> ErrorCode:
    """What a member is told if its group could not be written."""
    return _OF_GROUP_APPEND.get(error, error)


def error_of_offset_append(error: ErrorCode) -> ErrorCode:
    """What a consumer is told if its offsets could not be written."""
    return _OF_OFFSET_APPEND.get(error, error)


_OF_ANY_APPEND = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
}
_OF_GROUP_APPEND = {
    **_OF_ANY_APPEND,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.REBALANCE_IN_PROGRESS,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
}
_OF_OFFSET_APPEND = {
    **_OF_ANY_APPEND,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
}
