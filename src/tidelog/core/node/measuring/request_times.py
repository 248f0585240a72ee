"""Durations of requests, from the turn of the loop that received them to the response.

Requests have Kafka's names. As in Kafka, fetches of consumers and of followers are separate: both
wait on purpose, for different things.
"""

from collections.abc import Callable

from tidelog.core.histogram import Histogram

PRODUCE, FETCH, FETCH_CONSUMER, FETCH_FOLLOWER = (
    "Produce",
    "Fetch",
    "FetchConsumer",
    "FetchFollower",
)


class TurnTimes(Histogram):
    """Durations of the turns of this broker's event loop."""

    __slots__ = ("began_ns",)

    def __init__(self, clock_ns: Callable[[], int]) -> None:
        super().__init__(clock_ns)
        self.began_ns = 0
        """When the current turn began."""


class RequestTimes:
    """One histogram for each type of request that was received."""

    __slots__ = ("by_request", "clock_ns", "fetch_consumer", "fetch_follower", "produce", "turn")

    def __init__(self, clock_ns: Callable[[], int], turn: TurnTimes) -> None:
        self.clock_ns = clock_ns
        self.turn = turn
        self.by_request: dict[str, Histogram] = {}
        self.produce = self.of(PRODUCE)
        self.fetch_consumer = self.of(FETCH_CONSUMER)
        self.fetch_follower = self.of(FETCH_FOLLOWER)

    def of(self, request: str) -> Histogram:
        """Return the histogram of a request type."""
        found = self.by_request.get(request)
        if found is None:
            found = self.by_request[request] = Histogram(self.clock_ns)
        return found


def untimed() -> RequestTimes:
    """Return times that measure nothing, for tests and the lab."""

    def no_time() -> int:
        return 0

    return RequestTimes(no_time, TurnTimes(no_time))
