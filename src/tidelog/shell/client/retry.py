"""The retry policy of the client: which errors are retried, how often, and for how long.

Every operation that may be repeated holds one `Retry`. It knows the operation's deadline, the
pause before the next attempt (it doubles, from 50 ms to 1 s), which errors are worth another
attempt, and how to refresh what the failed attempt relied on, such as the metadata.

Invariant: no attempt begins after the deadline; the last error is raised instead.
"""

import time
from collections.abc import Callable, Collection
from typing import TypeVar

from tidelog.shell.client.client_errors import BrokerError, ClientError

T = TypeVar("T")
PAUSE_S = 0.05
PAUSE_MAX_S = 1.0


def is_retriable(error: ClientError) -> bool:
    """Whether the same request may succeed later, or at another broker."""
    return error.retriable


def retriable_codes(codes: Collection[int]) -> Callable[[ClientError], bool]:
    """Retry lost connections, and broker errors with one of these codes."""

    def matches(error: ClientError) -> bool:
        return error.code in codes if isinstance(error, BrokerError) else error.retriable

    return matches


class Backoff:
    """The pause before the next attempt: it doubles up to a maximum."""

    def __init__(self, first_s: float = PAUSE_S) -> None:
        self._first_s = first_s
        self.pause_s = first_s

    def grow(self) -> None:
        self.pause_s = min(self.pause_s * 2, PAUSE_MAX_S)

    def reset(self) -> None:
        self.pause_s = self._first_s


class Retry:
    """The attempts of one operation. `refresh` is called before each attempt but the first,
    `waiting` with the error before each pause."""

    def __init__(
        self,
        timeout_s: float,
        *,
        retriable: Callable[[ClientError], bool] = is_retriable,
        refresh: Callable[[], object] = lambda: None,
        waiting: Callable[[Exception], object] = lambda _error: None,
    ) -> None:
        self._deadline = time.monotonic() + timeout_s
        self._retriable = retriable
        self._refresh = refresh
        self._waiting = waiting
        self._backoff = Backoff()

    @property
    def remaining_s(self) -> float:
        return self._deadline - time.monotonic()

    def call(self, attempt: Callable[[], T]) -> T:
        """Return the result of the first attempt that succeeds. Raises ClientError."""
        first = True
        while True:
            try:
                if not first:
                    self._refresh()
                return attempt()
            except ClientError as error:
                self.failed(error)
                first = False

    def failed(self, error: ClientError) -> None:
        """Wait before the next attempt. Raises `error` if it is permanent or the time is up."""
        if not self._retriable(error):
            raise error
        self.wait(error)

    def wait(self, error: Exception) -> None:
        """Wait before the next attempt. Raises `error` if the time is up."""
        if self.remaining_s <= self._backoff.pause_s:
            raise error
        self._waiting(error)
        time.sleep(self._backoff.pause_s)
        self._backoff.grow()
