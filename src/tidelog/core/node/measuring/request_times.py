"""How long requests take, from the turn of the loop that brought them to their answer.

Kafka's names of requests. Fetches of consumers and of followers are told apart, as Kafka does:
both wait on purpose, for very different things.
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
    """How long the turns of the loop take that this broker runs on."""

    __slots__ = ("began_ns",)

    def __init__(self, clock_ns: Callable[[], int]) -> None:
        super().__init__(clock_ns)
        self.began_ns = 0
        """When this turn did."""


class RequestTimes:
    """One histogram for each kind of request that came."""

    __slots__ = ("_clock_ns", "by_request", "fetch_consumer", "fetch_follower", "produce", "turn")

    def __init__(self, clock_ns: Callable[[], int], turn: TurnTimes) -> None:
        self._clock_ns = clock_ns
        self.turn = turn
        self.by_request: dict[str, Histogram] = {}
        self.produce = self.of(PRODUCE)
        self.fetch_consumer = self.of(FETCH_CONSUMER)
        self.fetch_follower = self.of(FETCH_FOLLOWER)

    def of(self, request: str) -> Histogram:
        found = self.by_request.get(request)
        if found is None:
            found = self.by_request[request] = Histogram(self._clock_ns)
        return found


def untimed() -> RequestTimes:
    """Where nobody looks: a clock that stands still."""

    def no_time() -> int:
        return 0

    return RequestTimes(no_time, TurnTimes(no_time))
