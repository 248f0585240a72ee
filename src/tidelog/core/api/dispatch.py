"""From a frame to the node, and from the node's answer to a frame.

One table says what is offered. Produce and Fetch go straight to the node; everything else
is decoded by its schema and given to a handler. A request that is not offered, in a version
that is not offered, or that makes no sense closes the connection, as Kafka does; only
ApiVersions is answered in any version, so that clients can step down.

Kafka handles one request of a connection at a time. Here Produce, Fetch and the lookups in
OVERLAPPING may overlap, because their results do not depend on each other; every other request
runs alone, so that a commit behind a waiting JoinGroup sees the generation the join ends with.

Nobody passes for a replica on the client listener.

One thread serves all. A handler that has much to do pauses, and goes on in a later turn of the
host's loop; of all that pause, one goes on in each turn.
"""

from collections import deque
from collections.abc import Callable
from types import GeneratorType
from typing import Protocol, TypeAlias

from tidelog.core.api.context import Broker, BrokerContext, Struct
from tidelog.core.api.exchange import (
    FetchExchange,
    HandlerExchange,
    LeaderOf,
    ProduceExchange,
    Reply,
)
from tidelog.core.api.known_answers import KEPT_APIS, KnownAnswers
from tidelog.core.api.offered import OFFERED, resolve
from tidelog.core.api.peer_session import PeerSession
from tidelog.core.api.settling import UNSETTLED
from tidelog.core.node import events as on
from tidelog.core.node.measuring.request_times import RequestTimes, untimed
from tidelog.core.node.membership.registration import CLIENT_LISTENER
from tidelog.core.node.messages import Fetch
from tidelog.core.replication.events import ACKS_NONE
from tidelog.core.wire.apis import (
    API_VERSIONS,
    DESCRIBE_STATE,
    FETCH,
    FIND_COORDINATOR,
    METADATA,
    PRODUCE,
)
from tidelog.core.wire.codec import decode_request, encode_response
from tidelog.core.wire.fetch_request import decode_fetch
from tidelog.core.wire.frames import RequestHeader, parse_request_header
from tidelog.core.wire.primitives import MalformedRequest
from tidelog.core.wire.produce import decode_produce

FETCH_WAIT_MAX_MS = 30_000
"""A fetch takes memory until it is answered, also when its client has left."""
QUESTION_BYTES_MAX = 4 * 1024 * 1024
"""Only records need more. One thread serves all: what takes it seconds hangs everybody."""
ENTRIES_MAX = 100_000
"""Topics, partitions, resources and so on in one request, all together."""
FETCHED_PARTITIONS_MAX = 10_000
ADMIN_ENTRIES_MAX = 10_000
_ADMIN = frozenset({10, 15, 19, 20, 30, 31, 32, 33, 37, 42, 43, 44, 45, 48, 49, 50, 51})
"""Topics made, deleted and grown, groups found, described and deleted, configurations, access,
quotas, passwords, elections, reassignments."""
OVERLAPPING = frozenset({METADATA, FIND_COORDINATOR})
"""APIs that may overlap, besides Produce and Fetch. They wait for the metadata store, and change
nothing that a client's next request depends on."""
ADMIN_CLIENT = "__admin_client"
"""The client id with which Kafka's tools may write into internal topics."""
_KEY_SIZE = 4
_PRODUCE_FIRST, _PRODUCE_LAST = OFFERED[PRODUCE].first, OFFERED[PRODUCE].last
_TAKEN = bytearray()

WhenSettled: TypeAlias = Callable[[Callable[[], None], Callable[[], bool]], None]
"""Does the first once the second is false, or after a moment."""
NextTurn: TypeAlias = Callable[[Callable[[], None]], None]
"""Runs a callback after all events that are ready now."""


class Refused(Exception):
    """The connection is to be closed."""


class Line(Protocol):
    """A connection: answers leave it in the order of their requests."""

    session: PeerSession

    @property
    def peer_host(self) -> str:
        """The address of whoever is at the other end."""
        ...

    def reserve(self) -> Reply:
        """The place of the next answer."""
        ...

    def reserve_alone(self, frame: memoryview) -> Reply | None:
        """The same for a request that must not overlap with others of this connection.

        None: earlier requests are not answered yet; the connection presents the frame later.
        """
        ...

    def refuse(self, reason: str) -> None:
        """Close it."""
        ...

    def __hash__(self) -> int: ...


class Dispatch:
    """All requests of one broker's clients."""

    def __init__(
        self,
        broker: Broker,
        step: Callable[[on.Event], None],
        now_ms: Callable[[], int],
        when_settled: WhenSettled,
        next_turn: NextTurn,
        times: RequestTimes | None = None,
        fault: Callable[[Exception], None] | None = None,
    ) -> None:
        self._broker = broker
        self._names = broker.node.image.topic_names
        self._step = step
        self._now_ms = now_ms
        self._when_settled = when_settled
        self._next_turn = next_turn
        self._paused: deque[HandlerExchange] = deque()
        self._resuming = False
        """Whether the first paused request is scheduled to continue in the next turn."""
        self._fetch_max_bytes: int = broker.settings.get("fetch.max.bytes")
        self._hints = LeaderOf(broker.node.image)
        self._known = KnownAnswers(broker)
        self._times = times if times is not None else untimed()
        self._fault = fault

    def frame(self, connection: Line, frame: memoryview) -> None:
        """Take a client's request in."""
        try:
            self._take(connection, frame)
        except MalformedRequest as malformed:
            connection.refuse(f"malformed request: {malformed}")
        except Refused as refused:
            connection.refuse(str(refused))

    def _take(self, connection: Line, frame: memoryview) -> None:
        size = len(frame)
        if size < _KEY_SIZE:
            raise Refused(f"a request of {size} bytes")
        header = parse_request_header(frame)
        key, version = header.api_key, header.api_version
        if key == PRODUCE and _PRODUCE_FIRST <= version <= _PRODUCE_LAST:
            self._produce(connection, version, header, frame)
            return
        if size > QUESTION_BYTES_MAX and key != PRODUCE:
            raise Refused(f"a request of {size} bytes, {QUESTION_BYTES_MAX} at most")
        offered = OFFERED.get(key)
        if key == DESCRIBE_STATE and version == 0:
            self._describe(connection.reserve(), header.correlation_id, frame, header.position)
        elif offered is not None and offered.first <= version <= offered.last:
            if key == FETCH:
                self.fetch(
                    connection.reserve(),
                    self._fetch_of(version, frame, header.position),
                    version,
                    header.correlation_id,
                )
            else:
                self._reserve(connection, header, frame)
        elif key == API_VERSIONS:
            self._step_down(connection.reserve(), header.correlation_id)
        else:
            raise Refused(f"API {key} version {version} is not offered")

    def _produce(
        self, connection: Line, version: int, header: RequestHeader, frame: memoryview
    ) -> None:
        request, _transactional_id = decode_produce(version, frame, header.position, self._names)
        if header.client_id == ADMIN_CLIENT:
            request.internal_topics_allowed = True
        exchange: on.Peer
        times = self._times
        if request.acks == ACKS_NONE:
            exchange = connection
            times.produce.since(times.turn.began_ns)
        else:
            exchange = ProduceExchange(
                connection.reserve(),
                header.correlation_id,
                request,
                self._hints,
                times.produce,
                times.turn.began_ns,
            )
        self._step(on.RequestReceived(exchange, 0, request, self._now_ms()))
        # They are in the log or refused; a request that waits must not keep their buffer.
        for partition in request.partitions:
            partition.records = _TAKEN

    def _fetch_of(self, version: int, frame: memoryview, at: int) -> Fetch:
        request = decode_fetch(version, frame, at, self._names, FETCHED_PARTITIONS_MAX)
        if request.replica is not None:
            raise Refused("only brokers are replicas, and they ask elsewhere")
        request.max_bytes = min(request.max_bytes, self._fetch_max_bytes)
        request.max_wait_ms = min(request.max_wait_ms, FETCH_WAIT_MAX_MS)
        return request

    def fetch(self, reply: Reply, request: Fetch, version: int, correlation_id: int) -> None:
        """A consumer's, or on the internal listener a follower's."""
        times = self._times
        kind = times.fetch_consumer if request.replica is None else times.fetch_follower
        began_ns = times.turn.began_ns
        exchange = FetchExchange(reply, correlation_id, version, self._hints, kind, began_ns)
        self._step(on.RequestReceived(exchange, 0, request, self._now_ms()))

    def _reserve(self, connection: Line, header: RequestHeader, frame: memoryview) -> None:
        """Handle a request now, or leave it to the connection to present it again."""
        overlaps = header.api_key in OVERLAPPING
        reply = connection.reserve() if overlaps else connection.reserve_alone(frame)
        if reply is not None:
            self._handle(connection, reply, header, frame)

    def _handle(
        self, connection: Line, reply: Reply, header: RequestHeader, frame: memoryview
    ) -> None:
        key, version = header.api_key, header.api_version
        request = decode_request(key, version, frame, header.position)
        if len(frame) > ADMIN_ENTRIES_MAX:  # an entry takes a byte at least
            _check_entries(key, request)
        context = BrokerContext(
            self._broker,
            version,
            header.client_id,
            CLIENT_LISTENER,
            self._now_ms(),
            connection.peer_host,
            connection.session.software,
        )
        if key == API_VERSIONS:
            connection.session.software = _software(request)

        times, began_ns = self._times.of(OFFERED[key].name), self._times.turn.began_ns

        question = bytes(frame[header.position :]) if key in KEPT_APIS else b""
        correlation_id, known = header.correlation_id, self._known

        def encode(response: Struct) -> bytes:
            times.since(began_ns)
            answer = encode_response(key, version, correlation_id, response)
            if key in KEPT_APIS:
                known.keep(key, version, question, response, answer, self._now_ms())
            return answer

        def begin() -> None:
            if key in KEPT_APIS:
                found = known.find(key, version, question, correlation_id, self._now_ms())
                if found is not None:
                    times.since(began_ns)
                    reply.fill(found)
                    return
            try:
                handling = resolve(key)(context, request)
                answer = encode(handling) if isinstance(handling, dict) else None
            except Exception as error:  # noqa: BLE001 - as in HandlerExchange
                self._handler_failed(reply, error)
                return
            if answer is not None:
                reply.fill([answer])
            else:
                assert isinstance(handling, GeneratorType), "a handler answers or goes on"
                failed = self._handler_failed
                HandlerExchange(reply, handling, self._ask, encode, failed, self._pause).begin()

        unsettled = UNSETTLED.get(key)
        if unsettled is None:
            begin()
        else:
            image = self._broker.node.image
            self._when_settled(begin, lambda: unsettled(image, request))

    def _handler_failed(self, reply: Reply, error: Exception) -> None:
        """Told and survived where somebody listens; in tests and the fuzzer it ends the run."""
        if self._fault is None:
            raise error
        self._fault(error)
        reply.refuse("a fault in Tidelog, told in the broker's log")

    def _pause(self, exchange: HandlerExchange) -> None:
        """Queue a paused request behind those that paused before."""
        self._paused.append(exchange)
        self._resume_one_next_turn()

    def _resume_one_next_turn(self) -> None:
        if self._paused and not self._resuming:
            self._resuming = True
            self._next_turn(self._resume_one)

    def _resume_one(self) -> None:
        self._resuming = False
        exchange = self._paused.popleft()
        self._resume_one_next_turn()
        exchange.resume()

    def _ask(self, exchange: HandlerExchange, number: int, request: object) -> None:
        self._step(on.RequestReceived(exchange, number, request, self._now_ms()))

    def _step_down(self, reply: Reply, correlation_id: int) -> None:
        from tidelog.core.api.handlers.api_versions import unsupported_version

        reply.fill([encode_response(API_VERSIONS, 0, correlation_id, unsupported_version())])

    def _describe(self, reply: Reply, correlation_id: int, frame: memoryview, at: int) -> None:
        """What this broker knows about itself and its replicas, as JSON."""
        import json

        try:
            asked = json.loads(decode_request(DESCRIBE_STATE, 0, frame, at)["document"] or "{}")
            state = self._broker.node.describe(asked.get("topic"), asked.get("partition"))
        except (ValueError, TypeError, AttributeError, RecursionError) as error:
            raise Refused(f"DescribeState: {error}") from error
        state["cluster_id"] = self._broker.cluster_id
        document = {"document": json.dumps(state).encode()}
        reply.fill([encode_response(DESCRIBE_STATE, 0, correlation_id, document)])


def _software(api_versions: Struct) -> str:
    """A client library and its version, as it names itself from version 3 on."""
    return " ".join(
        api_versions.get(field, "") for field in ("client_software_name", "client_software_version")
    )


def _check_entries(key: int, request: Struct) -> None:
    most = ADMIN_ENTRIES_MAX if key in _ADMIN else ENTRIES_MAX
    for name, value in request.items():
        if isinstance(value, list) and len(value) > most:
            raise Refused(f"API {key}: {len(value)} {name}, {most} at most")
    entries = _entries(request)
    if entries > ENTRIES_MAX:
        raise Refused(f"API {key}: {entries} entries in all, {ENTRIES_MAX} at most")


def _entries(struct: Struct) -> int:
    """In all the arrays, also those in others."""
    count = 0
    for value in struct.values():
        if isinstance(value, list):
            count += len(value)
            if value and isinstance(value[0], dict):
                count += sum(map(_entries, value))
    return count
