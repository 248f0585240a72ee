"""A client listener: from a request frame to the node, and from the node's response to a frame.

`core/api_table.py` says which APIs and versions are served. Produce and Fetch are passed directly
to the node; every other request is decoded by its schema and passed to its handler. A request that
is malformed, or for an API or version that is not offered, closes the connection, as in Kafka. Only
ApiVersions is answered in any version, so that clients can use a lower one.

Kafka handles one request of a connection at a time. Here requests whose API has `overlaps` may
run together, because their results do not depend on each other; every other request runs alone,
so that a commit after a waiting JoinGroup sees the generation of that join.

Invariant: a client cannot fetch as a replica; followers use the internal listener.

One thread serves all clients. A handler with much work pauses and continues in a later turn of
the event loop; in each turn one paused handler continues.
"""

from collections import deque
from collections.abc import Callable
from struct import Struct as Layout
from types import GeneratorType
from typing import TYPE_CHECKING, Protocol, TypeAlias

from tidelog.core.api.access_control import Access, BrokerAuthorizer, Reader
from tidelog.core.api.context import PAUSE, Broker, BrokerContext, Handling, Struct
from tidelog.core.api.exchange import (
    Chunks,
    CloseCode,
    CurrentLeaders,
    FetchExchange,
    HandlerExchange,
    ProduceExchange,
    Reply,
)
from tidelog.core.api.handlers import handler_of
from tidelog.core.api.peer_session import PeerSession
from tidelog.core.api.settling import UNSETTLED, has_no_image
from tidelog.core.api_table import (
    API_VERSIONS,
    APIS,
    CLIENT_APIS,
    DESCRIBE_LOSSES,
    DESCRIBE_STATE,
    DESCRIBE_TOPIC_PARTITIONS,
    ENTRIES_MAX,
    FETCH,
    FEW,
    METADATA,
    PRODUCE,
    REQUEST_BYTES_MAX,
    Api,
)
from tidelog.core.authorization.acl import Operation
from tidelog.core.errors import ErrorCode
from tidelog.core.node import events as on
from tidelog.core.node.measuring.request_times import RequestTimes, untimed
from tidelog.core.node.messages import Fetch, Produce
from tidelog.core.replication.events import ACKS_NONE
from tidelog.core.types import CLIENT_LISTENER
from tidelog.core.wire.codec import decode_request, encode_response
from tidelog.core.wire.fetch_request import decode_fetch
from tidelog.core.wire.frames import RequestHeader, parse_request_header
from tidelog.core.wire.primitives import MalformedRequest
from tidelog.core.wire.produce import decode_produce

if TYPE_CHECKING:
    from tidelog.core.api.charge import Charge

THROTTLE_TIME = "throttle_time_ms"

CACHED_APIS = frozenset({METADATA, DESCRIBE_TOPIC_PARTITIONS})
CACHED_REQUEST_BYTES_MAX = 1024
CACHED_RESPONSE_BYTES_MIN = 2048
"""Smaller responses cost little to encode."""
CACHE_BYTES_MAX = 8 * 1024 * 1024

_HEAD = Layout(">ii")


class ResponseCache:
    """Encoded responses that are sent again until the cluster's image changes: without length and
    correlation id, by API, version and the request's bytes.

    Every client requests metadata, often many clients at once, and a cluster of thousands of
    partitions takes tens of milliseconds to encode, on the one thread that serves all clients. But
    equal requests on one listener have equal responses as long as the image stays the same.

    Invariant: a cached response was encoded at the image's current revision, with the same recently
    departed brokers. A response with an error (a missing topic) is not cached: the next request may
    create the topic.
    """

    __slots__ = ("_broker", "_responses", "_size", "_state")

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._responses: dict[tuple[int, int, bytes], bytes] = {}
        self._size = 0
        self._state: tuple[object, ...] = ()

    def find(
        self, key: int, version: int, request: bytes, correlation_id: int, now_ms: int
    ) -> Chunks | None:
        """The whole response to a request, or None if it is not cached."""
        self._drop_outdated(now_ms)
        body = self._responses.get((key, version, request))
        return None if body is None else [_HEAD.pack(4 + len(body), correlation_id), body]

    def add(
        self, key: int, version: int, request: bytes, response: Struct, encoded: bytes, now_ms: int
    ) -> None:
        """Cache the encoded response, if it is large and has no error."""
        size = len(encoded)
        if (
            len(request) > CACHED_REQUEST_BYTES_MAX
            or not CACHED_RESPONSE_BYTES_MIN <= size <= CACHE_BYTES_MAX
            or any(topic["error_code"] is not ErrorCode.NONE for topic in response["topics"])
        ):
            return
        self._drop_outdated(now_ms)
        if self._size + size > CACHE_BYTES_MAX:
            self._clear()
        self._responses[key, version, request] = encoded[_HEAD.size :]
        self._size += size

    def _drop_outdated(self, now_ms: int) -> None:
        departed = (known.id for known in self._broker.departed.lately(now_ms))
        state = (self._broker.node.image.revision, *departed)
        if state != self._state:
            self._state = state
            self._clear()

    def _clear(self) -> None:
        self._responses.clear()
        self._size = 0


REPLICAS_PER_TURN = 100
"""Replicas that DescribeState describes before it pauses for other clients: about 2 ms."""
FETCH_WAIT_MAX_MS = 30_000
"""A fetch occupies memory until it is answered, even if its client has disconnected."""
ADMIN_CLIENT = "__admin_client"
"""The client id with which Kafka's tools may write to internal topics."""
_KEY_SIZE = 4
_PRODUCE_FIRST, _PRODUCE_LAST = APIS[PRODUCE].first, APIS[PRODUCE].last
_FETCHED_PARTITIONS_MAX = APIS[FETCH].entries_max
_RELEASED = bytearray()
_DESCRIPTIONS = frozenset({DESCRIBE_STATE, DESCRIBE_LOSSES})

WhenSettled: TypeAlias = Callable[[Callable[[], None], Callable[[], bool]], None]
"""Calls the first function when the second returns False, or after a short time-out."""
NextTurn: TypeAlias = Callable[[Callable[[], None]], None]
"""Runs a callback after all events that are ready now."""


class Refused(Exception):
    """The request is invalid; its connection must be closed."""

    def __init__(self, reason: str, code: CloseCode = CloseCode.REFUSED) -> None:
        super().__init__(reason)
        self.code = code


class ClientConnection(Protocol):
    """A client's connection. It sends responses in the order of their requests."""

    session: PeerSession

    @property
    def peer_host(self) -> str:
        """The client's address."""
        ...

    def mute(self, for_ms: int) -> None:
        """Read no further request for this time; responses are still sent."""
        ...

    def reserve(self) -> Reply:
        """Reserve the place of the next response."""
        ...

    def reserve_alone(self, frame: memoryview) -> Reply | None:
        """Reserve a place for a request that must not overlap with others of this connection.

        None: earlier requests are not answered yet; the connection presents the frame later.
        """
        ...

    def refuse(self, reason: str, code: CloseCode = CloseCode.REFUSED) -> None:
        """Close the connection."""
        ...

    def __hash__(self) -> int: ...


class Dispatch:
    """Dispatches the requests of the clients of one listener.

    `listener` is its `endpoint_name`: responses have the brokers' addresses on that listener.
    """

    def __init__(
        self,
        broker: Broker,
        step: Callable[[on.Event], None],
        now_ms: Callable[[], int],
        when_settled: WhenSettled,
        next_turn: NextTurn,
        times: RequestTimes | None = None,
        fault: Callable[[Exception], None] | None = None,
        listener: str = CLIENT_LISTENER,
    ) -> None:
        self._broker = broker
        self._authorizer = broker.authorizer
        self._listener = listener
        self._image = broker.node.image
        self._names = self._image.topic_names
        self._step = step
        self._now_ms = now_ms
        self._when_settled = when_settled
        self._next_turn = next_turn
        self._paused: deque[HandlerExchange] = deque()
        self._resuming = False
        """Whether the first paused request is scheduled to continue in the next turn."""
        self._fetch_max_bytes: int = broker.settings.get("fetch.max.bytes")
        self._hints = CurrentLeaders(broker.node.image, listener)
        self._cache = ResponseCache(broker)
        self._times = times if times is not None else untimed()
        self._fault = fault

    def frame(self, connection: ClientConnection, frame: memoryview) -> None:
        """Start a client's request, or close the connection if it is invalid."""
        try:
            if self._image.quotas and _has_identity(connection.session):
                self._charged(connection, frame)
            else:
                self._dispatch(connection, frame, None)
        except MalformedRequest as malformed:
            connection.refuse(f"malformed request: {malformed}", CloseCode.MALFORMED)
        except Refused as refused:
            connection.refuse(str(refused), refused.code)

    def _charged(self, connection: ClientConnection, frame: memoryview) -> None:
        """Start a request that counts towards the quotas of its client."""
        from tidelog.core.api.charge import Charge

        quotas, principal = self._broker.node.client_quotas, connection.session.principal
        charge = Charge(quotas, principal, connection, self._now_ms, self._times.clock_ns)
        charge.start()
        try:
            self._dispatch(connection, frame, charge)
        finally:
            charge.stop()

    def _dispatch(
        self, connection: ClientConnection, frame: memoryview, charge: "Charge | None"
    ) -> None:
        size = len(frame)
        if size < _KEY_SIZE:
            raise Refused(f"request of {size} bytes is too short", CloseCode.MALFORMED)
        header = parse_request_header(frame)
        key, version = header.api_key, header.api_version
        if charge is not None:
            charge.begin(header.client_id or "", size)
        if key == PRODUCE and _PRODUCE_FIRST <= version <= _PRODUCE_LAST:
            self._produce(connection, version, header, frame, charge)
            return
        api = CLIENT_APIS.get(key)
        if size > REQUEST_BYTES_MAX and (api is None or size > api.bytes_max):
            raise Refused(
                f"request of {size} bytes exceeds the limit of {REQUEST_BYTES_MAX}",
                CloseCode.TOO_LARGE,
            )
        if api is not None and api.first <= version <= api.last:  # faster than `api.serves`
            if key == FETCH:
                fetch = self._fetch_of(version, frame, header.position)
                if self._authorizer is not None:
                    fetch.reader = self._reader(connection, self._authorizer)
                if charge is not None:
                    _limit_fetch(fetch, charge)
                self.fetch(connection.reserve(), fetch, version, header.correlation_id, charge)
            elif key in _DESCRIPTIONS:
                self._describe(connection, api, header, frame, charge)
            else:
                self._reserve(connection, api, header, frame, charge)
        elif key == API_VERSIONS:
            self._refuse_version(connection.reserve(), header.correlation_id)
        else:
            raise Refused(f"API {key} version {version} is not offered", CloseCode.NOT_OFFERED)

    def _produce(
        self,
        connection: ClientConnection,
        version: int,
        header: RequestHeader,
        frame: memoryview,
        charge: "Charge | None" = None,
    ) -> None:
        request, transactional_id = decode_produce(version, frame, header.position, self._names)
        if transactional_id is not None:
            request.transactional_id = transactional_id
        if header.client_id == ADMIN_CLIENT:
            request.internal_topics_allowed = True
        if self._authorizer is not None:
            self._produce_guarded(connection, header, request, self._authorizer, charge)
            return
        exchange: on.Peer
        times = self._times
        if request.acks == ACKS_NONE:
            exchange = connection
            times.produce.since(times.turn.began_ns)
            if charge is not None:
                charge.produced(acknowledged=False)
        else:
            exchange = ProduceExchange(
                connection.reserve(),
                header.correlation_id,
                request,
                self._hints,
                times.produce,
                times.turn.began_ns,
                charge,
            )
        self._step(on.RequestReceived(exchange, 0, request, self._now_ms()))
        _release(request)

    def _produce_guarded(
        self,
        connection: ClientConnection,
        header: RequestHeader,
        request: Produce,
        authorizer: BrokerAuthorizer,
        charge: "Charge | None",
    ) -> None:
        """Append what the principal may write. Without acks, a refusal closes the connection."""
        from tidelog.core.api.guards.produce_guard import GuardedExchange, GuardedProduce

        access = self._access(connection, authorizer, PRODUCE)
        guarded = GuardedProduce(access, request)
        times = self._times
        exchange: on.Peer = connection
        if request.acks == ACKS_NONE:
            times.produce.since(times.turn.began_ns)
            if charge is not None:
                charge.produced(acknowledged=False)
        else:
            exchange = ProduceExchange(
                connection.reserve(),
                header.correlation_id,
                request,
                self._hints,
                times.produce,
                times.turn.began_ns,
                charge,
            )
            if guarded.has_refusals:
                exchange = GuardedExchange(exchange, guarded)
        self._step(on.RequestReceived(exchange, 0, guarded.allowed, self._now_ms()))
        _release(request)
        if guarded.has_refusals and request.acks == ACKS_NONE:
            connection.refuse("a topic of a produce without acks is not allowed")

    def _access(
        self, connection: ClientConnection, authorizer: BrokerAuthorizer, api_key: int
    ) -> Access:
        session = connection.session
        return Access(authorizer, session.principal, connection.peer_host, APIS[api_key].name)

    def _fetch_of(self, version: int, frame: memoryview, at: int) -> Fetch:
        request = decode_fetch(version, frame, at, self._names, _FETCHED_PARTITIONS_MAX)
        if request.replica is not None:
            raise Refused(
                "a client can't fetch as a replica; brokers use the internal listener",
                CloseCode.NOT_A_BROKER,
            )
        request.max_bytes = min(request.max_bytes, self._fetch_max_bytes)
        request.max_wait_ms = min(request.max_wait_ms, FETCH_WAIT_MAX_MS)
        return request

    def _reader(self, connection: ClientConnection, authorizer: BrokerAuthorizer) -> Reader:
        return Reader(
            authorizer, connection.session.principal, connection.peer_host, APIS[FETCH].name
        )

    def fetch(
        self,
        reply: Reply,
        request: Fetch,
        version: int,
        correlation_id: int,
        charge: "Charge | None" = None,
    ) -> None:
        """Start a fetch of a consumer, or on the internal listener of a follower."""
        times = self._times
        kind = times.fetch_consumer if request.replica is None else times.fetch_follower
        began_ns = times.turn.began_ns
        exchange = FetchExchange(
            reply, correlation_id, version, self._hints, kind, began_ns, charge
        )
        self._step(on.RequestReceived(exchange, 0, request, self._now_ms()))

    def _reserve(
        self,
        connection: ClientConnection,
        api: Api,
        header: RequestHeader,
        frame: memoryview,
        charge: "Charge | None",
    ) -> None:
        """Handle a request now, or let the connection present it again later."""
        reply = connection.reserve() if api.overlaps else connection.reserve_alone(frame)
        if reply is not None:
            self._handle(connection, reply, api, header, frame, charge)

    def _handle(
        self,
        connection: ClientConnection,
        reply: Reply,
        api: Api,
        header: RequestHeader,
        frame: memoryview,
        charge: "Charge | None",
    ) -> None:
        key, version = header.api_key, header.api_version
        request = decode_request(key, version, frame, header.position)
        if len(frame) > FEW:  # an entry takes at least one byte
            _check_entries(api, request)
        context = BrokerContext(
            self._broker,
            version,
            header.client_id,
            self._listener,
            self._now_ms(),
            connection.peer_host,
            connection.session.software,
            connection.session.principal,
            charge,
        )
        if key == API_VERSIONS:
            connection.session.software = _software(request)

        times, began_ns = self._times.of(api.name), self._times.turn.began_ns

        body = b""
        if key in CACHED_APIS:
            body = self._cache_key(context, frame[header.position :])
        correlation_id, cache = header.correlation_id, self._cache

        def encode(response: Struct) -> bytes:
            times.since(began_ns)
            if charge is not None:
                throttle_ms = charge.finished(response.get(THROTTLE_TIME, 0))
                response = {**response, THROTTLE_TIME: throttle_ms}
            encoded = encode_response(key, version, correlation_id, response)
            if key in CACHED_APIS and not response[THROTTLE_TIME]:
                cache.add(key, version, body, response, encoded, self._now_ms())
            return encoded

        def begin() -> None:
            if key in CACHED_APIS and self._is_answered(reply, header, body, charge):
                times.since(began_ns)
                return
            try:
                handling = self._handling(connection, context, key, request)
                encoded = encode(handling) if isinstance(handling, dict) else None
            except Exception as error:  # noqa: BLE001 - as in HandlerExchange
                self._handler_failed(reply, error)
                return
            if encoded is not None:
                reply.fill([encoded])
            else:
                assert isinstance(handling, GeneratorType), "a handler is a dict or a generator"
                failed = self._handler_failed
                steps = handling if charge is None else charge.metered(handling)
                HandlerExchange(reply, steps, self._send, encode, failed, self._pause).begin()

        unsettled = UNSETTLED.get(key)
        if unsettled is None:
            begin()
        else:
            image = self._broker.node.image
            self._when_settled(begin, lambda: unsettled(image, request))

    def _handling(
        self, connection: ClientConnection, context: BrokerContext, key: int, request: Struct
    ) -> Handling | Struct:
        """Run the handler, behind its guard if there is an authoriser."""
        authorizer = self._authorizer
        if authorizer is None:
            return handler_of(key)(context, request)
        from tidelog.core.api.guards import guarded

        def serve(allowed: Struct) -> Handling | Struct:
            return handler_of(key)(context, allowed)

        return guarded(key, self._access(connection, authorizer, key), context, request, serve)

    def _is_answered(
        self, reply: Reply, header: RequestHeader, body: bytes, charge: "Charge | None"
    ) -> bool:
        """Whether the response was cached, or this broker has no image to respond from. A cached
        response has no throttle time."""
        if has_no_image(self._broker.node.image):
            reply.refuse("this broker has not read the metadata store yet")
            return True
        if charge is not None and charge.finished():
            return False
        key, version, correlation_id = header.api_key, header.api_version, header.correlation_id
        found = self._cache.find(key, version, body, correlation_id, self._now_ms())
        if found is not None:
            reply.fill(found)
        return found is not None

    def _cache_key(self, context: BrokerContext, request: memoryview) -> bytes:
        """The request's bytes; with an authoriser also the principal, since responses differ. A
        change of the ACLs is a change of the image."""
        if self._authorizer is None:
            return bytes(request)
        return f"{context.principal}\0{context.client_host}\0".encode() + bytes(request)

    def _handler_failed(self, reply: Reply, error: Exception) -> None:
        """Log the fault and close the connection; in tests and the fuzzer, raise it."""
        if self._fault is None:
            raise error
        self._fault(error)
        reply.refuse("internal error; see the broker's log")

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

    def _send(self, exchange: HandlerExchange, number: int, request: object) -> None:
        self._step(on.RequestReceived(exchange, number, request, self._now_ms()))

    def _refuse_version(self, reply: Reply, correlation_id: int) -> None:
        from tidelog.core.api.handlers.api_versions import unsupported_version

        reply.fill([encode_response(API_VERSIONS, 0, correlation_id, unsupported_version())])

    def _describe(
        self,
        connection: ClientConnection,
        api: Api,
        header: RequestHeader,
        frame: memoryview,
        charge: "Charge | None",
    ) -> None:
        """Respond to one of Tidelog's own APIs, which need DESCRIBE on the cluster. Their responses
        have no throttle time."""
        reply, authorizer = connection.reserve(), self._authorizer

        def encode(response: Struct) -> bytes:
            if charge is not None:
                charge.finished()
            return encode_response(api.key, 0, header.correlation_id, response)

        if authorizer is not None:
            access = self._access(connection, authorizer, api.key)
            if not access.may_on_cluster(Operation.DESCRIBE):
                document = b'{"error": "not authorised: DESCRIBE on the cluster is needed"}'
                reply.fill([encode({"document": document})])
                return
        if api.key == DESCRIBE_STATE:
            state = self._describe_state(header, frame)
            steps = state if charge is None else charge.metered(state)
            failed = self._handler_failed
            HandlerExchange(reply, steps, self._send, encode, failed, self._pause).begin()
        else:
            reply.fill([encode(self._describe_losses(header, frame))])

    def _describe_state(self, header: RequestHeader, frame: memoryview) -> Handling:
        """Return this broker's view of itself and its replicas, as JSON."""
        import json

        body = decode_request(DESCRIBE_STATE, 0, frame, header.position)["document"]
        try:
            filters = json.loads(body or "{}")
            topic, partition = filters.get("topic"), filters.get("partition")
        except (ValueError, AttributeError, RecursionError) as error:
            raise Refused(f"DescribeState: {error}") from error
        if not isinstance(topic, str | None) or not isinstance(partition, int | None):
            raise Refused("DescribeState: topic must be a string, partition a number")
        return self._state(topic, partition)

    def _state(self, topic: str | None, partition: int | None) -> Handling:
        """Describe some replicas in each turn: thousands take longer than clients should wait."""
        import json

        from tidelog.core.node.description import describe_broker, describe_replicas, hosted_names

        node = self._broker.node
        broker = describe_broker(node, topic, partition)
        state = json.dumps({**broker, "cluster_id": self._broker.cluster_id})
        names = hosted_names(node, topic, partition)
        parts = []
        for start in range(0, len(names), REPLICAS_PER_TURN):
            if start:
                yield PAUSE
            replicas = describe_replicas(node, names[start : start + REPLICAS_PER_TURN])
            if replicas:
                parts.append(json.dumps(replicas)[1:-1])
        document = f'{state[:-1]}, "partitions": [{", ".join(parts)}]}}'
        return {"document": document.encode()}

    def _describe_losses(self, header: RequestHeader, frame: memoryview) -> Struct:
        """Return a page of this broker's loss ledger, as JSON."""
        import json

        from tidelog.core.node.loss_pages import describe_losses

        body = decode_request(DESCRIBE_LOSSES, 0, frame, header.position)["document"]
        try:
            page = describe_losses(self._broker.node, json.loads(body or "{}"))
        except (ValueError, TypeError, AttributeError, RecursionError, OverflowError) as error:
            raise Refused(f"DescribeLosses: {error}") from error
        return {"document": json.dumps(page).encode()}


def _has_identity(session: PeerSession) -> bool:
    """Whether the client is whom it claims to be: before it is authenticated by SASL, its requests
    count towards nobody's quota, as in Kafka."""
    return session.sasl is None or session.sasl.principal is not None


def _release(request: Produce) -> None:
    """Drop the records: they are in the log or refused, and a request that waits must not keep
    their buffer."""
    for partition in request.partitions:
        partition.records = _RELEASED


def _limit_fetch(request: Fetch, charge: "Charge") -> None:
    """Let the consumer's quota decide on the response, and limit it to what is never throttled."""
    request.allowance = charge
    most = charge.fetch_bytes_max()
    if most is not None:
        request.max_bytes = min(request.max_bytes, most)
        request.min_bytes = min(request.min_bytes, request.max_bytes)


def _software(api_versions: Struct) -> str:
    """Name and version of the client library, which clients send from version 3 on."""
    return " ".join(
        api_versions.get(field, "") for field in ("client_software_name", "client_software_version")
    )


def _check_entries(api: Api, request: Struct) -> None:
    for name, value in request.items():
        if isinstance(value, list) and len(value) > api.entries_max:
            raise Refused(
                f"API {api.key}: {len(value)} {name} exceed the limit of {api.entries_max}",
                CloseCode.TOO_LARGE,
            )
    entries = _entries(request)
    if entries > ENTRIES_MAX:
        raise Refused(
            f"API {api.key}: {entries} entries exceed the limit of {ENTRIES_MAX}",
            CloseCode.TOO_LARGE,
        )


def _entries(struct: Struct) -> int:
    """Count the entries of all arrays, nested ones included."""
    count = 0
    for value in struct.values():
        if isinstance(value, list):
            count += len(value)
            if value and isinstance(value[0], dict):
                count += sum(map(_entries, value))
    return count
