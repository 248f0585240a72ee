"""A received request until its response is sent.

An exchange is the `peer` of a request to the node: the node calls `respond` with its response, and
`refuse` to close the connection of a producer that uses acks=0.
"""

from collections.abc import Callable
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from tidelog.core.api.context import PAUSE, Handling, Struct
from tidelog.core.controller.metadata.cluster_image import ClusterImage
from tidelog.core.histogram import Histogram
from tidelog.core.node.messages import FetchResponse, Produce, ProduceResponse
from tidelog.core.record.crc32c import Buffer
from tidelog.core.storage.disk import Region
from tidelog.core.types import CLIENT_LISTENER, TopicPartition
from tidelog.core.wire.fetch_response import encode_fetch_response
from tidelog.core.wire.leader_hints import CurrentLeader, NodeEndpoint
from tidelog.core.wire.produce import encode_produce_response

if TYPE_CHECKING:
    from tidelog.core.api.charge import Charge

REQUESTS_PER_TURN = 500
"""Requests of one handler to the node before it pauses for other clients."""

Chunks: TypeAlias = list[bytes | Region | Buffer]


class CloseCode(StrEnum):
    """Why a broker closed a connection: the label `reason` of the metric."""

    MALFORMED = "malformed"
    TOO_LARGE = "too large"
    NOT_OFFERED = "not offered"
    IDLE = "idle"
    SLOW_REQUEST = "slow request"
    NOT_A_BROKER = "no broker"
    FAILED_PRODUCE = "failed produce"
    RESPONSES_NOT_READ = "answers not taken"
    TLS = "tls"
    AUTHENTICATION = "authentication"
    REFUSED = "refused"
    NOT_COUNTED = ""
    """The peer closed the connection, or the broker stops."""


class Reply(Protocol):
    """The place of one response on its connection."""

    @property
    def abandoned(self) -> bool:
        """Whether the connection is closed, so that no client waits for the response."""
        ...

    def fill(self, chunks: Chunks) -> None:
        """Send the response."""
        ...

    def refuse(self, reason: str, code: CloseCode = CloseCode.REFUSED) -> None:
        """Close the connection."""
        ...


class CurrentLeaders:
    """Looks up the current leader for a client that used the wrong broker (KIP-951), with its
    address on the client's listener."""

    __slots__ = ("_image", "_listener")

    def __init__(self, image: ClusterImage, listener: str = CLIENT_LISTENER) -> None:
        self._image = image
        self._listener = listener

    def __call__(self, topic_partition: TopicPartition) -> CurrentLeader | None:
        known = self._image.partition(*topic_partition)
        if known is None or known.leader is None:
            return None
        broker = self._image.brokers.get(known.leader)
        found = broker.endpoint(self._listener) if broker is not None and broker.online else None
        if broker is None or found is None:
            return CurrentLeader(known.leader, known.leader_epoch, None)
        endpoint = NodeEndpoint(known.leader, found.host, found.port, broker.rack)
        return CurrentLeader(known.leader, known.leader_epoch, endpoint)


class ProduceExchange:
    """A produce with acks=1 or all, which is answered."""

    __slots__ = (
        "_began_ns",
        "_charge",
        "_correlation_id",
        "_hints",
        "_reply",
        "_request",
        "_times",
    )

    def __init__(
        self,
        reply: Reply,
        correlation_id: int,
        request: Produce,
        hints: CurrentLeaders,
        times: Histogram,
        began_ns: int,
        charge: "Charge | None" = None,
    ) -> None:
        self._charge = charge
        self._reply = reply
        self._correlation_id = correlation_id
        self._request = request
        self._hints = hints
        self._times = times
        self._began_ns = began_ns

    def respond(self, _number: int, response: ProduceResponse) -> None:
        self._times.since(self._began_ns)
        throttle_ms = 0 if self._charge is None else self._charge.produced()
        frame = encode_produce_response(
            self._correlation_id, self._request, response, self._hints, throttle_ms
        )
        self._reply.fill([frame])

    def refuse(self, reason: str, code: CloseCode = CloseCode.REFUSED) -> None:
        self._reply.refuse(reason, code)


class FetchExchange:
    """A fetch of a consumer or a follower."""

    __slots__ = (
        "_began_ns",
        "_charge",
        "_correlation_id",
        "_hints",
        "_reply",
        "_times",
        "_version",
    )

    def __init__(
        self,
        reply: Reply,
        correlation_id: int,
        version: int,
        hints: CurrentLeaders,
        times: Histogram,
        began_ns: int,
        charge: "Charge | None" = None,
    ) -> None:
        self._charge = charge
        self._reply = reply
        self._correlation_id = correlation_id
        self._version = version
        self._hints = hints
        self._times = times
        self._began_ns = began_ns

    def respond(self, _number: int, response: FetchResponse) -> None:
        self._times.since(self._began_ns)
        throttle_ms = 0 if self._charge is None else self._charge.finished()
        self._reply.fill(
            encode_fetch_response(
                self._version, self._correlation_id, response, self._hints, throttle_ms
            )
        )

    def refuse(self, reason: str, code: CloseCode = CloseCode.REFUSED) -> None:
        self._reply.refuse(reason, code)


class HandlerExchange:
    """A request that a handler processes, with as many requests to the node as it needs.

    A handler changes no state itself. So a fault in a handler only closes the connection of its
    client. A paused handler continues when `pause` calls `resume`, unless its client has
    disconnected.
    """

    __slots__ = (
        "_encode",
        "_failed",
        "_handling",
        "_left",
        "_pause",
        "_reply",
        "_responses",
        "_send",
        "_unsent",
    )

    def __init__(
        self,
        reply: Reply,
        handling: Handling,
        send: Callable[["HandlerExchange", int, object], None],
        encode: Callable[[Struct], bytes],
        failed: Callable[[Reply, Exception], None],
        pause: Callable[["HandlerExchange"], None],
    ) -> None:
        self._reply = reply
        self._failed = failed
        self._pause = pause
        self._handling = handling
        self._send = send
        self._encode = encode
        self._responses: list[Any] = []
        self._left = 0
        self._unsent: tuple[list[object], int] | None = None
        """Requests to the node, and the index of the first one to send after the pause."""

    def begin(self) -> None:
        self._continue(None)

    def resume(self) -> None:
        """Continue after a pause."""
        unsent, self._unsent = self._unsent, None
        if self._reply.abandoned:
            self._handling.close()
        elif unsent is not None:
            self._send_some(*unsent)
        else:
            self._continue([])

    def respond(self, number: int, response: object) -> None:
        self._responses[number] = response
        self._left -= 1
        if self._left == 0:
            self._continue(self._responses)

    def refuse(self, reason: str, code: CloseCode = CloseCode.REFUSED) -> None:
        self._reply.refuse(reason, code)

    def _continue(self, responses: list[Any] | None) -> None:
        try:
            requests = self._advance(responses)
        except Exception as error:  # noqa: BLE001 - a fault must not stop other clients
            self._failed(self._reply, error)
            return
        if isinstance(requests, bytes):
            self._reply.fill([requests])
            return
        if requests is PAUSE:
            self._pause(self)
            return
        self._responses = [None] * len(requests)
        self._left = len(requests)
        self._send_some(requests, 0)

    def _send_some(self, requests: list[object], first: int) -> None:
        end = min(first + REQUESTS_PER_TURN, len(requests))
        for number in range(first, end):
            self._send(self, number, requests[number])
        if end < len(requests):
            self._unsent = requests, end
            self._pause(self)

    def _advance(self, responses: list[Any] | None) -> list[object] | bytes:
        """The handler's next requests to the node, or its encoded response."""
        try:
            handling = self._handling
            requests = next(handling) if responses is None else handling.send(responses)
            while not requests and requests is not PAUSE:
                requests = self._handling.send([])
        except StopIteration as done:
            return self._encode(done.value)
        return requests
