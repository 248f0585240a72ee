"""One request that came over the wire, until it is answered.

An exchange is the `peer` under which the node knows the request: the node's answer comes
back to `respond`, and `refuse` is how it closes the connection of a producer that wants no
answers.
"""

from collections.abc import Callable
from typing import Any, Protocol, TypeAlias

from tidelog.core.api.context import PAUSE, Handling, Struct
from tidelog.core.controller.metadata.cluster_image import ClusterImage
from tidelog.core.histogram import Histogram
from tidelog.core.node.membership.registration import CLIENT_LISTENER
from tidelog.core.node.messages import FetchResponse, Produce, ProduceResponse
from tidelog.core.record.crc32c import Buffer
from tidelog.core.storage.disk import Region
from tidelog.core.types import TopicPartition
from tidelog.core.wire.fetch_response import encode_fetch_response
from tidelog.core.wire.leader_hints import CurrentLeader, NodeEndpoint
from tidelog.core.wire.produce import encode_produce_response

ASKED_AT_ONCE = 500
"""Calls of one handler to the node before it pauses for other requests."""

Chunks: TypeAlias = list[bytes | Region | Buffer]


class Reply(Protocol):
    """Where the answer goes."""

    @property
    def abandoned(self) -> bool:
        """Whether the connection is closed, so that no client waits for the response."""
        ...

    def fill(self, chunks: Chunks) -> None:
        """Send this."""
        ...

    def refuse(self, reason: str) -> None:
        """Close the connection."""
        ...


class LeaderOf:
    """Who leads instead (KIP-951): spares a client the question."""

    __slots__ = ("_image",)

    def __init__(self, image: ClusterImage) -> None:
        self._image = image

    def __call__(self, topic_partition: TopicPartition) -> CurrentLeader | None:
        known = self._image.partition(*topic_partition)
        if known is None or known.leader is None:
            return None
        broker = self._image.brokers.get(known.leader)
        endpoint = None
        for listener, host, port in broker.endpoints if broker and broker.online else ():
            if broker is not None and listener == CLIENT_LISTENER:
                endpoint = NodeEndpoint(known.leader, host, port, broker.rack)
        return CurrentLeader(known.leader, known.leader_epoch, endpoint)


class ProduceExchange:
    """A produce that wants an answer."""

    __slots__ = ("_began_ns", "_correlation_id", "_hints", "_reply", "_request", "_times")

    def __init__(
        self,
        reply: Reply,
        correlation_id: int,
        request: Produce,
        hints: LeaderOf,
        times: Histogram,
        began_ns: int,
    ) -> None:
        self._reply = reply
        self._correlation_id = correlation_id
        self._request = request
        self._hints = hints
        self._times = times
        self._began_ns = began_ns

    def respond(self, _number: int, response: ProduceResponse) -> None:
        self._times.since(self._began_ns)
        frame = encode_produce_response(self._correlation_id, self._request, response, self._hints)
        self._reply.fill([frame])

    def refuse(self, reason: str) -> None:
        self._reply.refuse(reason)


class FetchExchange:
    """A fetch of a consumer or a follower."""

    __slots__ = ("_began_ns", "_correlation_id", "_hints", "_reply", "_times", "_version")

    def __init__(
        self,
        reply: Reply,
        correlation_id: int,
        version: int,
        hints: LeaderOf,
        times: Histogram,
        began_ns: int,
    ) -> None:
        self._reply = reply
        self._correlation_id = correlation_id
        self._version = version
        self._hints = hints
        self._times = times
        self._began_ns = began_ns

    def respond(self, _number: int, response: FetchResponse) -> None:
        self._times.since(self._began_ns)
        self._reply.fill(
            encode_fetch_response(
                self._version, self._correlation_id, response, leader_of=self._hints
            )
        )

    def refuse(self, reason: str) -> None:
        self._reply.refuse(reason)


class HandlerExchange:
    """A request that a handler works on, asking the node as often as it needs to.

    A handler changes nothing itself. So a fault in one costs its client the connection, and
    nobody else anything. One that pauses goes on when `pause` calls `resume`, unless its client
    is gone by then.
    """

    __slots__ = (
        "_answers",
        "_ask",
        "_encode",
        "_failed",
        "_handling",
        "_left",
        "_pause",
        "_reply",
        "_unasked",
    )

    def __init__(
        self,
        reply: Reply,
        handling: Handling,
        ask: Callable[["HandlerExchange", int, object], None],
        encode: Callable[[Struct], bytes],
        failed: Callable[[Reply, Exception], None],
        pause: Callable[["HandlerExchange"], None],
    ) -> None:
        self._reply = reply
        self._failed = failed
        self._pause = pause
        self._handling = handling
        self._ask = ask
        self._encode = encode
        self._answers: list[Any] = []
        self._left = 0
        self._unasked: tuple[list[object], int] | None = None
        """Requests, and the first of them that waits for the end of a pause."""

    def begin(self) -> None:
        self._go_on(None)

    def resume(self) -> None:
        """Continue after a pause."""
        unasked, self._unasked = self._unasked, None
        if self._reply.abandoned:
            self._handling.close()
        elif unasked is not None:
            self._ask_some(*unasked)
        else:
            self._go_on([])

    def respond(self, number: int, response: object) -> None:
        self._answers[number] = response
        self._left -= 1
        if self._left == 0:
            self._go_on(self._answers)

    def refuse(self, reason: str) -> None:
        self._reply.refuse(reason)

    def _go_on(self, answers: list[Any] | None) -> None:
        try:
            requests = self._advance(answers)
        except Exception as error:  # noqa: BLE001 - whatever it is, the others are served
            self._failed(self._reply, error)
            return
        if isinstance(requests, bytes):
            self._reply.fill([requests])
            return
        if requests is PAUSE:
            self._pause(self)
            return
        self._answers = [None] * len(requests)
        self._left = len(requests)
        self._ask_some(requests, 0)

    def _ask_some(self, requests: list[object], first: int) -> None:
        end = min(first + ASKED_AT_ONCE, len(requests))
        for number in range(first, end):
            self._ask(self, number, requests[number])
        if end < len(requests):
            self._unasked = requests, end
            self._pause(self)

    def _advance(self, answers: list[Any] | None) -> list[object] | bytes:
        """What the handler asks next, or its answer."""
        try:
            requests = next(self._handling) if answers is None else self._handling.send(answers)
            while not requests and requests is not PAUSE:
                requests = self._handling.send([])
        except StopIteration as done:
            return self._encode(done.value)
        return requests
