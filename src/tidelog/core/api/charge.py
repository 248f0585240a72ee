"""What one request of a client counts towards its quotas, and how long the client must wait.

As in Kafka (KIP-219), the response is sent at once and has the throttle time; then the broker reads
nothing more from the connection for that time. So a client that ignores the throttle time is held
back too, and its unread requests stay in the kernel's buffers.

`request_percentage` counts the time that this broker's one thread spends on a request. 100 is the
whole thread; Kafka has 100 for each of its threads.

Invariant: requests have charges only while there are quotas. A charge never refuses a request,
except that a strict mutation quota refuses changes of topics (KIP-599).
"""

from collections.abc import Callable
from typing import Any, Protocol

from tidelog.core.api.context import Handling, Struct
from tidelog.core.principal import USER, Principal
from tidelog.core.quotas.client_quotas import ClientQuota, ClientQuotas, Limit, short_client_id

NS_PER_PERCENT = 10_000_000
"""One percent of a second."""


class Mutable(Protocol):
    """A connection of a client."""

    def mute(self, for_ms: int) -> None:
        """Read no further request for this time."""
        ...


class Charge:
    """The charge of one request."""

    __slots__ = (
        "_began_ns",
        "_client_id",
        "_clock_ns",
        "_connection",
        "_is_exempt",
        "_mutations",
        "_now_ms",
        "_quotas",
        "_running",
        "_size",
        "_throttle_ms",
        "_unrecorded_ns",
        "_user",
    )

    def __init__(
        self,
        quotas: ClientQuotas,
        principal: Principal,
        connection: Mutable,
        now_ms: Callable[[], int],
        clock_ns: Callable[[], int],
    ) -> None:
        self._quotas = quotas.current()
        # A broker as a client has no user's name.
        self._user = principal.name if principal.type == USER else ""
        self._connection = connection
        self._now_ms = now_ms
        self._clock_ns = clock_ns
        self._running = 0
        self._mutations: Limit | None = None
        self._began_ns = 0
        self._unrecorded_ns = 0
        self._is_exempt = False
        """Whether the time of the request does not count."""
        self._throttle_ms: int | None = None
        """How long the client must wait; None until that is decided."""
        self._client_id = ""
        self._size = 0

    def begin(self, client_id: str, size: int) -> None:
        """Note the client id and the bytes of the request."""
        self._client_id = short_client_id(client_id)
        self._size = size

    # -- the time of the request ----------------------------------------------------------------

    def start(self) -> None:
        """The thread works on this request from now on; may be nested."""
        if not self._running:
            self._began_ns = self._clock_ns()
        self._running += 1

    def stop(self) -> None:
        """The thread leaves the request, which may continue later."""
        self._running -= 1
        if not self._running:
            self._unrecorded_ns += self._clock_ns() - self._began_ns
            if self._throttle_ms is not None and not self._is_exempt:
                # What follows the decision is counted, and delays later requests only.
                now_ms = self._now_ms()
                found = self._find(self._quotas.request, now_ms)
                if found is not None:
                    found.usage.rate.record(self._percent(), now_ms)

    def metered(self, handling: Handling) -> Handling:
        """Run a handler that may pause, and count the time of each part."""
        answers: list[Any] | None = None
        while True:
            self.start()
            try:
                requests = next(handling) if answers is None else handling.send(answers)
            except StopIteration as done:
                response: Struct = done.value
                return response
            finally:
                self.stop()
            answers = yield requests

    def _percent(self) -> float:
        if self._running:
            now_ns = self._clock_ns()
            self._unrecorded_ns += now_ns - self._began_ns
            self._began_ns = now_ns
        spent_ns, self._unrecorded_ns = self._unrecorded_ns, 0
        return spent_ns / NS_PER_PERCENT

    # -- decisions ------------------------------------------------------------------------------

    def produced(self, *, acknowledged: bool = True) -> int:
        """Decide the throttle time of a produce. The time that one without acks takes does not
        count, as in Kafka."""
        if self._throttle_ms is not None:
            return self._throttle_ms
        now_ms = self._now_ms()
        by_bytes = self._recorded(self._quotas.produce, self._size, now_ms)
        self._is_exempt = not acknowledged
        by_time = self._time_recorded(now_ms) if acknowledged else (0, None)
        return self._decide(by_bytes, by_time)

    def allows(self, size: int, now_ms: int) -> bool:
        """Decide the throttle time of a fetch; False: its response must be empty."""
        by_time = self._time_recorded(now_ms)
        found = self._find(self._quotas.fetch, now_ms)
        by_bytes: tuple[int, Limit | None] = (0, None)
        if found is not None:
            by_bytes = self._record(found, size, now_ms), found
        throttle_ms = self._decide(by_bytes, by_time)
        if throttle_ms and found is not None:
            found.usage.rate.record(-size, now_ms)  # nothing is sent
        return not throttle_ms

    def fetch_bytes_max(self) -> int | None:
        """The bytes that a fetch may return; more would always be throttled. None: no limit."""
        return self._quotas.fetch.window_total(self._user, self._client_id)

    def finished(self, requested_ms: int = 0) -> int:
        """Decide the throttle time of any other request, at least `requested_ms`."""
        if self._throttle_ms is None:
            by_time = self._time_recorded(self._now_ms())
            self._decide((requested_ms, self._mutations), by_time)
        return self._throttle_ms or 0

    def mutation_quota(self, *, strict: bool) -> "MutationQuota | None":
        """Return the quota of changes of partitions; None without one.

        `strict`: the version of the request knows THROTTLING_QUOTA_EXCEEDED.
        """
        found = self._find(self._quotas.mutation, self._now_ms())
        self._mutations = found
        return None if found is None else MutationQuota(found, self._now_ms, strict=strict)

    def _find(self, quota: ClientQuota, now_ms: int) -> Limit | None:
        return quota.find(self._user, self._client_id, now_ms) if self._user else None

    def _recorded(self, quota: ClientQuota, value: float, now_ms: int) -> tuple[int, Limit | None]:
        """Count what was used; return the throttle time and the limit."""
        found = self._find(quota, now_ms)
        return (0, None) if found is None else (self._record(found, value, now_ms), found)

    def _record(self, limit: Limit, value: float, now_ms: int) -> int:
        limit.usage.rate.record(value, now_ms)
        return limit.usage.rate.throttle_ms(limit.value, now_ms)

    def _time_recorded(self, now_ms: int) -> tuple[int, Limit | None]:
        """Count the time of the request so far. No client waits longer than one window for it."""
        throttle_ms, found = self._recorded(self._quotas.request, self._percent(), now_ms)
        return min(throttle_ms, self._quotas.request.window_ms), found

    def _decide(self, *causes: tuple[int, Limit | None]) -> int:
        """Mute the connection for the longest of these times."""
        throttle_ms, limit = max(causes, key=lambda cause: cause[0])
        self._throttle_ms = throttle_ms
        if throttle_ms:
            if limit is not None:
                limit.usage.throttled += 1
                limit.usage.throttled_ms += throttle_ms
            self._connection.mute(throttle_ms)
        return throttle_ms


class MutationQuota:
    """The quota of one request that creates or deletes partitions.

    A strict one refuses changes while there is a debt; another one counts them and
    delays the next request.
    """

    __slots__ = ("_limit", "_now_ms", "_strict", "throttle_ms")

    def __init__(self, limit: Limit, now_ms: Callable[[], int], *, strict: bool) -> None:
        self._limit = limit
        self._now_ms = now_ms
        self._strict = strict
        self.throttle_ms = 0
        """How long the client must wait before its next change."""

    def refuses(self, partitions: int) -> bool:
        """Count a change of this many partitions, or refuse it."""
        now_ms = self._now_ms()
        value, _, usage = self._limit
        assert usage.tokens is not None, "this quota has tokens"
        if self._strict and usage.tokens.tokens(value, now_ms) < 0:
            self.throttle_ms = usage.tokens.throttle_ms(value, now_ms)
            return True
        usage.tokens.record(partitions, value, now_ms)
        usage.rate.record(partitions, now_ms)
        if not self._strict:
            self.throttle_ms = usage.tokens.throttle_ms(value, now_ms)
        return False
