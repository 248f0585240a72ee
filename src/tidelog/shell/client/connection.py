"""One connection to one broker: requests, responses and their time limits.

The versions of the APIs are agreed on before the first request: the newest that both sides
support. Invariant: a connection whose response did not arrive is closed, so that no response is
mistaken for the response to another request.
"""

import json
import select
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from itertools import count
from struct import Struct as Packing
from typing import Any, NamedTuple

from tidelog.core.api_table import (
    API_VERSIONS,
    APIS,
    SASL_AUTHENTICATE,
    SASL_HANDSHAKE,
    api_name,
    known_versions,
)
from tidelog.core.errors import ErrorCode
from tidelog.core.record.crc32c import Buffer
from tidelog.core.sasl.mechanism import SaslFailed
from tidelog.core.wire.codec import Struct, decode_response, encode_request
from tidelog.core.wire.primitives import MalformedRequest
from tidelog.shell.client.client_errors import (
    AuthenticationFailed,
    BrokerError,
    CannotConnect,
    ClientError,
    ClosedAtFirstRequest,
    Disconnected,
    NoAnswer,
    NotKafka,
    NotOffered,
    Unresolved,
)
from tidelog.shell.client.security import ClientSecurity
from tidelog.shell.net.same_host import unpace

CLIENT_ID = "tidelog"
TIMEOUT_S = 10.0
FRAME_BYTES_MAX = 512 * 1024 * 1024
API_VERSIONS_NEWEST = 3
"""The first version with the client's name; brokers that do not know it respond in version 0."""
_SET_TIMEOUT_AT = 0.9
LOGIN_VALID = 0.85
"""The part of its lifetime after which an authentication is renewed, before it ends."""
_LENGTH = Packing(">i")
_ERROR_CODE = Packing(">4xh")
"""After the correlation id, in every version of an ApiVersions response."""


class SentRequest(NamedTuple):
    """A request whose response was not received yet."""

    api_key: int
    version: int
    correlation: int


class ReceiveMemory:
    """Reusable memory for responses: each is valid until the next one is received."""

    def __init__(self) -> None:
        self._memory = bytearray()

    def view(self, length: int) -> memoryview:
        """Return memory for a response."""
        if length > len(self._memory):
            self._memory = bytearray(length)
        return memoryview(self._memory)[:length]


class KafkaConnection:
    """A connection to `host`:`port`, opened at once.

    `advertised`: a broker advertised the address; errors then name `advertised.listeners`.
    """

    def __init__(
        self,
        host: str,
        port: int,
        client_id: str = CLIENT_ID,
        timeout_s: float = TIMEOUT_S,
        *,
        advertised: bool = False,
        security: ClientSecurity | None = None,
    ) -> None:
        self.address = format_address(host, port)
        self.client_id = client_id
        self.timeout_s = timeout_s
        self._correlation = count(1)
        self._versions: dict[int, tuple[int, int]] | None = None
        self._security = security
        self._has_tls = security is not None and security.context is not None
        self._log_in_after_s: float | None = None
        """When to authenticate again; None: never."""
        self._unanswered = 0
        """Requests of `ask` without a response: no login may come between."""
        connected = _connect(host, port, self.address, timeout_s, advertised)
        self._socket: socket.socket | None = connected
        if security is not None:
            self._socket = _protect(security, connected, host, self.address, advertised)
            try:
                self._log_in(timeout_s)
            except Unresolved as error:
                raise CannotConnect(self.address, f"no login: {error}", advertised) from None

    def __enter__(self) -> "KafkaConnection":
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def close_if_ended(self) -> None:
        """Close an idle connection that the broker has closed."""
        if self._socket is not None:
            poller = select.poll()
            poller.register(self._socket, select.POLLIN)
            if poller.poll(0):  # no response is expected, so this is the end
                self.close()

    @property
    def closed(self) -> bool:
        """Whether the connection can no longer be used."""
        return self._socket is None

    # -- authentication ---------------------------------------------------------------------

    def _log_in(self, timeout_s: float) -> None:
        """Authenticate by SASL, if it is configured. Raises ClientError."""
        if self._security is None or self._security.new_login is None:
            return
        try:
            login = self._security.new_login(self.client_id, self.address)
        except SaslFailed as failed:  # no access token
            self.close()
            raise AuthenticationFailed(self.address, str(failed)) from None
        self._log_in_after_s = None
        began_s = time.monotonic()
        deadline = began_s + timeout_s
        correlation = next(self._correlation)
        frame: bytes | None = login.first(correlation)
        api_key = SASL_HANDSHAKE
        try:
            while frame is not None:
                self._put(api_key, [frame], deadline)
                answer = self._await(api_key, correlation, timeout_s, deadline)
                correlation = next(self._correlation)
                frame = login.receive(answer, correlation)
                api_key = SASL_AUTHENTICATE
        except SaslFailed as failed:
            self.close()
            raise AuthenticationFailed(self.address, str(failed)) from None
        except MalformedRequest as error:
            raise self._not_kafka(f"{api_name(api_key)}: {error}") from None
        if login.lifetime_ms > 0:
            self._log_in_after_s = began_s + login.lifetime_ms * LOGIN_VALID / 1000

    def _renew_login(self) -> None:
        """Authenticate again before the broker closes the connection (KIP-368)."""
        due_s = self._log_in_after_s
        if due_s is not None and time.monotonic() >= due_s and not self._unanswered:
            self._log_in(self.timeout_s)

    # -- versions ---------------------------------------------------------------------------

    @property
    def versions(self) -> Mapping[int, tuple[int, int]]:
        """The lowest and highest version of each API that the broker offers."""
        return self._agree(self.timeout_s)

    def _agree(self, timeout_s: float) -> Mapping[int, tuple[int, int]]:
        if self._versions is None:
            answer = self._ask_versions(API_VERSIONS_NEWEST, timeout_s)
            if answer is None:
                answer = self._ask_versions(0, timeout_s)
            if answer is None or answer["error_code"] != ErrorCode.NONE:
                code = ErrorCode.UNSUPPORTED_VERSION if answer is None else answer["error_code"]
                raise BrokerError(f"ApiVersions request to {self.address}", code)
            self._versions = {
                api["api_key"]: (api["min_version"], api["max_version"])
                for api in answer["api_keys"]
            }
        return self._versions

    def _ask_versions(self, version: int, timeout_s: float) -> Struct | None:
        """Return None if the broker does not support this version of ApiVersions."""
        request = {"client_software_name": "tidelog", "client_software_version": "0"}
        try:
            frame = self._exchange(API_VERSIONS, version, request, timeout_s)
        except Disconnected:
            raise ClosedAtFirstRequest(self.address, has_tls=self._has_tls) from None
        if len(frame) < _ERROR_CODE.size:
            raise self._not_kafka(f"a response of {len(frame)} bytes")
        if _ERROR_CODE.unpack_from(frame)[0] == ErrorCode.UNSUPPORTED_VERSION:
            return None
        return self._decode(API_VERSIONS, version, frame)

    def offers(self, api_key: int) -> bool:
        """Whether both sides support a common version."""
        return self._common(api_key, None) is not None

    def version(self, api_key: int, max_version: int | None = None) -> int:
        """Return the newest common version, up to `max_version`. Raises NotOffered."""
        common = self._common(api_key, max_version)
        if common is None:
            offered = self.versions.get(api_key)
            spoken = known_versions(api_key)
            why = (
                _missing(api_key)
                if offered is None
                else f"the broker has versions {offered[0]} to {offered[1]},"
                f" this client {'none' if spoken is None else f'{spoken[0]} to {spoken[1]}'}"
            )
            raise NotOffered(self.address, api_name(api_key), why)
        return common

    def _common(self, api_key: int, max_version: int | None) -> int | None:
        offered = self.versions.get(api_key)
        spoken = known_versions(api_key)
        if offered is None or spoken is None:
            return None
        newest = min(offered[1], spoken[1])
        if max_version is not None:
            newest = min(newest, max_version)
        return newest if newest >= max(offered[0], spoken[0]) else None

    # -- calls ------------------------------------------------------------------------------

    def call(
        self,
        api_key: int,
        request: Struct,
        max_version: int | None = None,
        timeout_s: float | None = None,
    ) -> Struct:
        """Send a request and wait for its response. Raises ClientError."""
        wait_s = self.timeout_s if timeout_s is None else timeout_s
        self._agree(wait_s)
        version = self.version(api_key, max_version)
        return self._decode(api_key, version, self._exchange(api_key, version, request, wait_s))

    def send(self, api_key: int, request: Struct, max_version: int | None = None) -> None:
        """Send a request that has no response."""
        version = self.version(api_key, max_version)
        self._send(api_key, version, request, time.monotonic() + self.timeout_s)

    def ask(self, api_key: int, request: Struct, max_version: int | None = None) -> SentRequest:
        """Send a request; `answer` receives the response. Send nothing else in between."""
        version = self.version(api_key, max_version)
        deadline = time.monotonic() + self.timeout_s
        correlation = self._send(api_key, version, request, deadline)
        self._unanswered += 1
        return SentRequest(api_key, version, correlation)

    def ask_in_pieces(
        self, api_key: int, version: int, encode: Callable[[int, str], list[Buffer]]
    ) -> SentRequest:
        """Send a request in several buffers; `encode` gets the correlation id and client id.

        More requests may be sent before the response is received: responses arrive in the order of
        requests.
        """
        self._renew_login()
        correlation = next(self._correlation)
        deadline = time.monotonic() + self.timeout_s
        self._put(api_key, encode(correlation, self.client_id), deadline)
        self._unanswered += 1
        return SentRequest(api_key, version, correlation)

    def answer(
        self,
        sent: SentRequest,
        timeout_s: float | None = None,
        memory: ReceiveMemory | None = None,
    ) -> Struct:
        """Wait for the response to a request. Raises ClientError.

        The response is stored in `memory`, if given.
        """
        wait_s = self.timeout_s if timeout_s is None else timeout_s
        deadline = time.monotonic() + wait_s
        frame = self._await(sent.api_key, sent.correlation, wait_s, deadline, memory)
        self._unanswered -= 1
        return self._decode(sent.api_key, sent.version, frame)

    def fileno(self) -> int:
        """The socket, for a selector: readable once a response begins to arrive."""
        return -1 if self._socket is None else self._socket.fileno()

    def call_private(
        self, api_key: int, document: Mapping[str, Any], timeout_s: float | None = None
    ) -> dict[str, Any]:
        """Call one of Tidelog's private APIs, with JSON in request and response.

        Raises NotOffered if the broker closes the connection, because it does not know the API, and
        ClientError if it refuses the request.
        """
        wait_s = self.timeout_s if timeout_s is None else timeout_s
        body = {"document": json.dumps(document).encode()}
        try:
            frame = self._exchange(api_key, 0, body, wait_s)
        except Disconnected as error:
            raise NotOffered(
                self.address, api_name(api_key), "this is not a Tidelog broker"
            ) from error
        try:
            answer = json.loads(bytes(self._decode(api_key, 0, frame)["document"]))
        except ValueError:
            answer = None
        if not isinstance(answer, dict):
            raise self._not_kafka("the response is not a JSON object")
        if set(answer) == {"error"}:
            raise ClientError(f"{self.address}: {api_name(api_key)}: {answer['error']}")
        return answer

    def _exchange(
        self, api_key: int, version: int, request: Struct, timeout_s: float
    ) -> memoryview:
        """Send a request and return the frame of its response."""
        deadline = time.monotonic() + timeout_s
        correlation = self._send(api_key, version, request, deadline)
        return self._await(api_key, correlation, timeout_s, deadline)

    def _await(
        self,
        api_key: int,
        correlation: int,
        timeout_s: float,
        deadline: float,
        memory: ReceiveMemory | None = None,
    ) -> memoryview:
        if self._socket is None:
            raise Disconnected(self.address, api_name(api_key), "the connection was closed")
        try:
            frame = self._receive(deadline, memory)
        except TimeoutError:
            self.close()
            raise NoAnswer(self.address, api_name(api_key), timeout_s) from None
        except OSError as error:
            self.close()
            raise Disconnected(self.address, api_name(api_key), _reason(error)) from None
        except BaseException:
            self.close()  # interrupted: the response may still arrive
            raise
        if len(frame) < _LENGTH.size or _LENGTH.unpack_from(frame)[0] != correlation:
            raise self._not_kafka("the response has another correlation id")
        return frame

    def _send(self, api_key: int, version: int, request: Struct, deadline: float) -> int:
        self._renew_login()
        correlation = next(self._correlation)
        frame = encode_request(api_key, version, correlation, self.client_id, request)
        self._put(api_key, [frame], deadline)
        return correlation

    def _put(self, api_key: int, pieces: list[Buffer], deadline: float) -> None:
        if self._socket is None:
            raise CannotConnect(self.address, "the connection was closed")
        try:
            self._socket.settimeout(max(deadline - time.monotonic(), 0.001))
            if len(pieces) == 1:
                self._socket.sendall(pieces[0])
            elif self._has_tls:
                self._socket.sendall(b"".join(pieces))
            else:
                _send_pieces(self._socket, pieces)
        except TimeoutError:
            self.close()
            raise NoAnswer(self.address, api_name(api_key), self.timeout_s) from None
        except OSError as error:
            self.close()
            raise Disconnected(self.address, api_name(api_key), _reason(error)) from None
        except BaseException:
            self.close()
            raise

    def _receive(self, deadline: float, memory: ReceiveMemory | None) -> memoryview:
        head = memoryview(bytearray(_LENGTH.size))
        self._read(head, deadline)
        (length,) = _LENGTH.unpack(head)
        if not 0 <= length <= FRAME_BYTES_MAX:
            raise self._not_kafka(f"a response of {length} bytes")
        frame = memoryview(bytearray(length)) if memory is None else memory.view(length)
        self._read(frame, deadline)
        return frame

    def _read(self, view: memoryview, deadline: float) -> None:
        """Fill the view from the socket.

        The socket's timeout is set again only when 10 % of it have passed, because setting it is
        a system call.
        """
        assert self._socket is not None
        set_s = float("inf")
        while view:
            remaining = deadline - time.monotonic()
            if remaining <= 0:
                raise TimeoutError
            if remaining < set_s * _SET_TIMEOUT_AT:
                self._socket.settimeout(remaining)
                set_s = remaining
            received = self._socket.recv_into(view)
            if not received:
                raise ConnectionResetError(0, "the connection was closed")
            view = view[received:]

    def _decode(self, api_key: int, version: int, frame: memoryview) -> Struct:
        try:
            return decode_response(api_key, version, frame)[1]
        except MalformedRequest as error:
            raise self._not_kafka(f"{api_name(api_key)} version {version}: {error}") from None

    def _not_kafka(self, why: str) -> NotKafka:
        self.close()
        return NotKafka(self.address, why)


def _send_pieces(connected: socket.socket, pieces: list[Buffer]) -> None:
    left = [memoryview(piece) for piece in pieces]
    while left:
        sent = connected.sendmsg(left)
        while left and sent >= len(left[0]):
            sent -= len(left.pop(0))
        if sent:
            left[0] = left[0][sent:]


def _missing(api_key: int) -> str:
    api = APIS.get(api_key)
    hint = f"; Kafka has it from {api.since} on" if api is not None and api.since else ""
    return f"the broker does not list this API{hint}"


def format_address(host: str, port: int) -> str:
    """Return `host:port`, with brackets around an IPv6 address."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _connect(
    host: str, port: int, address: str, timeout_s: float, advertised: bool
) -> socket.socket:
    """Connect to the first address of the name that accepts, within the time."""
    deadline = time.monotonic() + timeout_s
    why = "the name has no address"
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise CannotConnect(address, f"unknown host ({_reason(error)})", advertised) from None
    for wait_s, (family, kind, protocol, _, target) in _shared_time(found, deadline):
        try:
            connected = socket.socket(family, kind, protocol)
        except OSError as error:
            why = _reason(error)
            continue
        try:
            connected.settimeout(wait_s)
            connected.connect(target)
            connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            unpace(connected, target[0])
        except BaseException as error:
            connected.close()
            if not isinstance(error, OSError):
                raise
            slow = isinstance(error, TimeoutError)
            why = f"no response within {timeout_s:g} s" if slow else _reason(error)
        else:
            return connected
    raise CannotConnect(address, why, advertised)


def _protect(
    security: ClientSecurity, connected: socket.socket, host: str, address: str, advertised: bool
) -> socket.socket:
    """Begin TLS within the socket's time-out."""
    try:
        return security.protect(connected, host)
    except BaseException as error:
        connected.close()
        if not isinstance(error, OSError):
            raise
        raise CannotConnect(address, _reason(error), advertised) from None


def _shared_time(found: list[Any], deadline: float) -> Iterator[tuple[float, Any]]:
    """Yield each address with an equal share of the remaining time."""
    for number, each in enumerate(found):
        remaining = deadline - time.monotonic()
        yield max(remaining / (len(found) - number), 0.001), each


def _reason(error: Exception) -> str:
    if type(error).__module__ == "ssl":
        from tidelog.shell.net.tls_transport import reason

        return reason(error)  # type: ignore[arg-type]
    text = (isinstance(error, OSError) and error.strerror) or str(error)
    return text[:1].lower() + text[1:]
