"""What can go wrong between a client and a cluster, each in one line that says what to do.

Always true: `Unresolved` and its kinds mean that a request was sent and its fate is not
known; every other error means that the request did nothing.
"""

from tidelog.core.errors import ErrorCode

RETRIABLE = frozenset(
    {
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
        14,  # COORDINATOR_LOAD_IN_PROGRESS: Kafka says so while it can't give producer ids
        15,  # COORDINATOR_NOT_AVAILABLE
    }
)
"""Errors that may be gone when asked again, maybe of another broker."""


def error_name(code: int) -> str:
    """Kafka's name for an error code."""
    try:
        return ErrorCode(code).name
    except ValueError:
        return f"error {code}"


class ClientError(Exception):
    """A request failed. The text is one line for people."""

    @property
    def retriable(self) -> bool:
        """Whether the same request may succeed later, or at another broker."""
        return False


class CannotConnect(ClientError):
    """No connection came about; nothing was sent."""

    def __init__(self, address: str, why: str, advertised: bool = False) -> None:
        if advertised:
            hint = (
                "this is the address that the broker advertises;"
                " set advertised.listeners to one that can be reached from here"
            )
        else:
            hint = "is the cluster up? try tidelog status"
        super().__init__(f"can't connect to {address}: {why}; {hint}")
        self.address = address
        self.why = why
        self.advertised = advertised

    @property
    def retriable(self) -> bool:
        return True


class NotKafka(ClientError):
    """Whatever answered does not speak Kafka's protocol."""

    def __init__(self, address: str, why: str) -> None:
        super().__init__(
            f"{address} does not answer in Kafka's protocol ({why}); is it a plaintext listener?"
        )
        self.address = address


class NotOffered(ClientError):
    """The broker does not know the API, or no version that this client speaks."""

    def __init__(self, address: str, name: str, why: str) -> None:
        super().__init__(f"{address} does not offer {name}: {why}")
        self.address = address


class Unresolved(ClientError):
    """The request was sent; whether it was carried out is not known."""

    @property
    def retriable(self) -> bool:
        return True


class NoAnswer(Unresolved):
    """The time was up before the answer was there."""

    def __init__(self, address: str, name: str, timeout_s: float) -> None:
        # Nothing but a greeting: it has no effect that one could wonder about.
        what = (
            "it may hang; try tidelog status"
            if name == "ApiVersions"
            else "it may have been carried out all the same"
        )
        super().__init__(
            f"{address} did not answer {name} within {round(timeout_s, 2):g} s; {what}"
        )
        self.address = address
        self.timeout_s = timeout_s


class Disconnected(Unresolved):
    """The connection ended before the answer was there."""

    def __init__(self, address: str, name: str, why: str) -> None:
        super().__init__(
            f"{address}: {why} while {name} was under way;"
            " it may have been carried out all the same"
        )
        self.address = address


class BrokerError(ClientError):
    """The broker answered with an error."""

    def __init__(self, what: str, code: int, message: str | None = None) -> None:
        told = f" ({message})" if message else ""
        super().__init__(f"{what}: {error_name(code)}{told}")
        self.code = code

    @property
    def retriable(self) -> bool:
        return self.code in RETRIABLE


class NoSuchTopic(ClientError):
    """The cluster has no topic or partition of that name."""

    def __init__(
        self,
        name: str,
        topic: str | None = None,
        hint: str = "`tidelog topic list` shows topics",
    ) -> None:
        super().__init__(f"there is no {name} in the cluster; {hint}")
        self.name = name
        self.topic = topic
        """The topic itself, if it is that which is not there."""


class NoSuchPartition(NoSuchTopic):
    """The topic is there, but has no such partition."""

    def __init__(self, topic: str, partition: int) -> None:
        hint = f"`tidelog topic describe {topic}` shows its partitions"
        super().__init__(f"partition {partition} of topic {topic!r}", hint=hint)


class NothingMore(ClientError):
    """A log does not reach the offset that was asked for."""

    def __init__(self, partition: str, offset: int, wanted: int, timeout_s: float) -> None:
        super().__init__(
            f"{partition} has nothing from offset {offset} on, {wanted} was wanted as its end;"
            f" nothing came within {timeout_s:g} s"
        )
        self.offset = offset
