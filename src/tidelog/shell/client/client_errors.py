"""The errors of the client; each text is one line that says what failed and what to do.

Invariant: `Unresolved` and its subclasses mean that a request was sent and its outcome is
unknown; every other error means that the request changed nothing.
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
        14,  # COORDINATOR_LOAD_IN_PROGRESS: also from Kafka while it can't assign producer ids
        15,  # COORDINATOR_NOT_AVAILABLE
    }
)
"""Error codes after which the same request may succeed later, or at another broker."""
_ADVICE: dict[int, str] = {
    ErrorCode.LEADER_NOT_AVAILABLE: "`tidelog partition describe` names replicas that may lead",
    ErrorCode.NOT_ENOUGH_REPLICAS: "`tidelog cluster health` shows which brokers are missing",
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: "`tidelog cluster health` shows missing brokers",
    ErrorCode.MESSAGE_TOO_LARGE: "send smaller batches, or raise max.message.bytes of the topic",
    ErrorCode.OFFSET_OUT_OF_RANGE: "start at an offset that the log has",
    ErrorCode.NOT_CONTROLLER: "try again when a controller is elected; if none is, look at the"
    " metadata store and at `tidelog cluster health`",
    ErrorCode.REQUEST_TIMED_OUT: "try again, or raise the time-out",
    ErrorCode.KAFKA_STORAGE_ERROR: "look for disk errors in the broker's log",
    ErrorCode.UNKNOWN_SERVER_ERROR: "look for the cause in the broker's log",
}
"""Advice to the user by error code; other codes are clear by their name or the broker's message."""


def error_name(code: int) -> str:
    """Return Kafka's name for an error code."""
    try:
        return ErrorCode(code).name
    except ValueError:
        return f"error {code}"


class ClientError(Exception):
    """A request failed. The text is one line for users."""

    @property
    def retriable(self) -> bool:
        """Whether the same request may succeed later, or at another broker."""
        return False


class CannotConnect(ClientError):
    """The connection failed; nothing was sent."""

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


class AuthenticationFailed(ClientError):
    """The broker refused the credentials of this client, or could not prove that it knows them."""

    def __init__(self, address: str, why: str) -> None:
        super().__init__(
            f"authentication at {address} failed: {why}; check sasl.mechanism, the user and the"
            " password"
        )
        self.address = address
        self.why = why


class NotKafka(ClientError):
    """The peer does not speak Kafka's protocol."""

    def __init__(self, address: str, why: str) -> None:
        super().__init__(
            f"{address} does not speak Kafka's protocol ({why}); is it a plaintext listener?"
        )
        self.address = address


class NotOffered(ClientError):
    """The broker does not offer the API, or no version that this client supports."""

    def __init__(self, address: str, name: str, why: str) -> None:
        super().__init__(f"{address} does not offer {name}: {why}")
        self.address = address


class Unresolved(ClientError):
    """The request was sent; whether it was carried out is not known."""

    @property
    def retriable(self) -> bool:
        return True


class NoAnswer(Unresolved):
    """The request timed out."""

    def __init__(self, address: str, name: str, timeout_s: float) -> None:
        # ApiVersions changes nothing, so its outcome does not matter.
        what = (
            "the broker may hang; try tidelog status"
            if name == "ApiVersions"
            else "the request may have been carried out"
        )
        super().__init__(
            f"{address} did not answer {name} within {round(timeout_s, 2):g} s; {what}"
        )
        self.address = address
        self.timeout_s = timeout_s


class Disconnected(Unresolved):
    """The connection ended before the response arrived."""

    def __init__(self, address: str, name: str, why: str) -> None:
        super().__init__(
            f"lost the connection to {address} before the response to {name}: {why};"
            " the request may have been carried out"
        )
        self.address = address


class ClosedAtFirstRequest(Disconnected):
    """The connection ended before the response to ApiVersions."""

    def __init__(self, address: str, *, has_tls: bool) -> None:
        text = f"{address} closed the connection at the first request"
        if not has_tls:
            text += (
                "; if its port requires TLS, name a file with security.protocol=SSL in"
                " --command-config (in Spark: set kafka.security.protocol)"
            )
        ClientError.__init__(self, text)
        self.address = address


class BrokerError(ClientError):
    """The broker returned an error code. `what` names the request or action that failed."""

    def __init__(self, what: str, code: int, message: str | None = None) -> None:
        detail = f" ({message})" if message else ""
        super().__init__(f"{what} failed: {error_name(code)}{detail}{_advice(code)}")
        self.code = code

    @property
    def retriable(self) -> bool:
        return self.code in RETRIABLE


class NotReady(BrokerError):
    """The metadata shows a state in which the request can't be sent.

    The client makes this error itself, with the code that a broker would return.
    """

    def __init__(self, state: str, code: int) -> None:
        ClientError.__init__(self, f"{state}: {error_name(code)}{_advice(code)}")
        self.code = code


def advice(code: int) -> str:
    """Return what a user can do about an error; empty if its name or message says it."""
    return _ADVICE.get(code, "")


def _advice(code: int) -> str:
    return f"; {_ADVICE[code]}" if code in _ADVICE else ""


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
        """The name of the missing topic; None if only a partition is missing."""


class NoSuchPartition(NoSuchTopic):
    """The topic exists, but not the partition."""

    def __init__(self, topic: str, partition: int) -> None:
        hint = f"`tidelog topic describe {topic}` shows its partitions"
        super().__init__(f"partition {partition} of topic {topic!r}", hint=hint)


class NothingMore(ClientError):
    """A log does not reach the requested end offset."""

    def __init__(self, partition: str, offset: int, wanted: int, timeout_s: float) -> None:
        super().__init__(
            f"{partition} ends at offset {offset}, before the requested end {wanted};"
            f" no record arrived within {timeout_s:g} s"
        )
        self.offset = offset
