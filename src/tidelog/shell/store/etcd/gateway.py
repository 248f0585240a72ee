"""Calls to an etcd cluster through its JSON gateway: node, time limit, meaning of a failure.

A node may be dead, frozen, cut off from the others, or behind them. So every attempt has a short
time limit, a node that fails is avoided for a while, and an answer from a node with a lower Raft
term than one seen before is not used: that node has missed an election. All responses must come
from one etcd cluster: a wrong address must not split the brokers between two stores.

Invariant: `OutcomeLost` is raised only for calls that must not be sent twice. All other failures
mean that the call had no effect, or may be sent again.
"""

import _thread
import json
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from tidelog.shell.store.etcd.address import EtcdAddress, is_loopback, parse_endpoint
from tidelog.shell.store.etcd.http_connection import (
    Answer,
    Endpoint,
    HttpConnection,
    NoAnswer,
    NotSent,
)
from tidelog.shell.store.etcd.name_lookup import NameLookup
from tidelog.shell.store.store_backend import StoreUnusable

if TYPE_CHECKING:
    from ssl import SSLContext

ATTEMPT_S = 1.0
"""The time limit of one attempt on one node."""
_AVOID_S = 3.0
"""How long a node is avoided after it failed."""
_PAUSE_S, _PAUSE_MAX_S = 0.02, 0.2
"""Pauses after all nodes failed."""
_UNAUTHENTICATED, _NOT_FOUND, _PERMISSION_DENIED = 16, 5, 7
_REFUSALS = frozenset((3, _NOT_FOUND, 6, _PERMISSION_DENIED, 8, 9, 11, 12, _UNAUTHENTICATED))
"""gRPC's codes of calls that had no effect. A call with another code, such as CANCELLED or UNKNOWN,
may have been carried out: a node that stops cancels calls that it has already forwarded."""
_NODES_FAULT = frozenset((1, 4, 14))
"""gRPC's codes of a node that is stopping or slow."""
_ANOTHER_NODE = (
    "no leader",
    "leader changed",
    "not a primary lessor",
    "timed out",
    "server stopped",
    "not capable",
    "unhealthy cluster",
    "too many requests",
    "proposal dropped",
)
"""Errors of a node that another node, or the same one a moment later, may not have."""
_CERTAINLY_NOT = ("no leader", "too many requests", "not capable", "proposal dropped")
"""Those that are found before the call takes effect."""
_TOKEN = ("invalid auth token", "auth store is old", "user name is empty", "user name not found")
_COMMON_NAME = "CommonName of client"
_ANY_ADDRESS = ("0.0.0.0", "::")


class EtcdError(Exception):
    """etcd refused the call, which had no effect."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message

    @property
    def not_found(self) -> bool:
        """Whether the lease does not exist (any more)."""
        return self.code == _NOT_FOUND or "lease not found" in self.message


class NodesUnavailable(Exception):
    """No node answered in time; the call had no effect, or can be sent again."""


class OutcomeLost(Exception):
    """The call may have taken effect, or may still do so."""


class Nodes:
    """The nodes of the cluster and what is known of them, shared by the threads of a client."""

    def __init__(self, address: EtcdAddress) -> None:
        self.address = address
        self.highest_term = 0
        self.cluster: str | None = None
        """etcd's id of the cluster that answered first."""
        self.token: str | None = None
        self._lock = _thread.allocate_lock()
        self._tls: SSLContext | None = None
        self._tls_ready = False
        self._endpoints = list(address.endpoints)
        self._avoid_until: dict[Endpoint, float] = {}
        self._names = NameLookup()

    @property
    def endpoints(self) -> list[Endpoint]:
        """All known nodes, the one in use first."""
        with self._lock:
            return list(self._endpoints)

    def tls(self) -> "SSLContext | None":
        """The context of TLS connections, made once."""
        with self._lock:
            if not self._tls_ready:
                self._tls = self.address.tls()
                self._tls_ready = True
            return self._tls

    def connection(self, node: Endpoint) -> HttpConnection:
        """A new connection to a node. All names are looked up before another node is needed."""
        self._names.prepare(self.endpoints)
        return HttpConnection(node, self.tls(), self._names.addresses)

    def current(self) -> Endpoint:
        """The node to use: the present one until it fails."""
        now = time.monotonic()
        with self._lock:
            return min(
                self._endpoints,
                key=lambda node: max(0.0, self._avoid_until.get(node, 0.0) - now),
            )

    def failed(self, node: Endpoint) -> None:
        """Avoid a node for a while, and use it as the last one afterwards."""
        with self._lock:
            self._avoid_until[node] = time.monotonic() + _AVOID_S
            if node in self._endpoints and len(self._endpoints) > 1:
                self._endpoints.remove(node)
                self._endpoints.append(node)

    def saw_term(self, term: int) -> bool:
        """Remember the highest Raft term; return whether this one is not behind it."""
        with self._lock:
            self.highest_term = max(self.highest_term, term)
            return term >= self.highest_term

    def check_answer(self, header: Mapping[str, Any]) -> None:
        """Raise NoAnswer if the header is of a node that must not be used."""
        cluster, term = header.get("cluster_id"), int(header.get("raft_term", 0))
        if cluster:
            with self._lock:
                self.cluster = self.cluster or str(cluster)
            if str(cluster) != self.cluster:
                raise NoAnswer(
                    "it belongs to another etcd cluster; check the addresses in"
                    f" {self.address.url} and etcd's --advertise-client-urls"
                )
        if term and not self.saw_term(term):
            raise NoAnswer(f"its Raft term {term} is behind {self.highest_term}")

    def forget_token(self, used: str | None) -> None:
        """Log in again for the next call, unless another thread just did."""
        with self._lock:
            if self.token == used:
                self.token = None

    def learn(self, members: list[Any]) -> None:
        """Add the members' own addresses to the configured ones; forget members that left.

        The configured addresses stay: members may announce addresses that work elsewhere only. A
        member's loopback address is used only if a configured one is: on another machine it would
        lead to that machine's own etcd.
        """
        found = []
        near = any(is_loopback(endpoint.host) for endpoint in self.address.endpoints)
        scheme = "https://" if self.address.secure else "http://"
        for url in (url for member in members for url in member.get("clientURLs") or ()):
            if url.startswith(scheme):
                endpoint = parse_endpoint(url.removeprefix(scheme).rstrip("/"), self.address.url)
                usable = near or not is_loopback(endpoint.host)
                if usable and self.address.allows(endpoint) and endpoint.host not in _ANY_ADDRESS:
                    found.append(endpoint)
        wanted = dict.fromkeys((*self.address.endpoints, *found))
        with self._lock:
            kept = [node for node in self._endpoints if node in wanted]
            self._endpoints = [*kept, *(node for node in wanted if node not in kept)]
        self._names.prepare(self.endpoints)


class Gateway:
    """Calls of one thread, over connections of its own."""

    def __init__(self, nodes: Nodes) -> None:
        self.nodes = nodes
        self._connections: dict[Endpoint, HttpConnection] = {}

    def call(
        self,
        path: str,
        request: Mapping[str, Any],
        give_up_s: float,
        *,
        attempt_s: float = ATTEMPT_S,
        once: bool = False,
        before: Callable[[], None] | None = None,
    ) -> dict[str, Any]:
        """Send a call to one node after the other until one answers.

        `once`: the call must not be carried out twice; it raises OutcomeLost when that could be.
        `before` is called before each attempt. Raises EtcdError, NodesUnavailable, StoreUnusable.
        """
        body = json.dumps(request).encode()
        why, pause_s, tried, logins = "no time left", _PAUSE_S, 0, 0
        while time.monotonic() < give_up_s:
            node = self.nodes.current()
            if before is not None:
                before()
            try:
                return self._attempt(node, path, body, min(give_up_s, time.monotonic() + attempt_s))
            except NotSent as error:
                why = f"{node}: {error}"
            except NoAnswer as error:
                why = f"{node}: {error}"
                if once:
                    self.nodes.failed(node)
                    raise OutcomeLost(why) from error
            except _TokenExpired as error:
                why = f"{node}: the login is not accepted: {error}"
                logins += 1
                if logins == 1:
                    continue
            except EtcdError as error:
                why = f"{node}: {error.message}"
                if once and _may_have_effect(error):
                    self.nodes.failed(node)
                    raise OutcomeLost(why) from error
                if not _is_nodes_fault(error):
                    raise
            self.nodes.failed(node)
            tried += 1
            if tried % len(self.nodes.endpoints) == 0:
                time.sleep(max(0.0, min(pause_s, give_up_s - time.monotonic())))
                pause_s = min(_PAUSE_MAX_S, pause_s * 2)
        raise NodesUnavailable(why)

    def call_node(
        self, node: Endpoint, path: str, request: Mapping[str, Any], timeout_s: float = ATTEMPT_S
    ) -> dict[str, Any]:
        """Call this very node, once. Raises NodesUnavailable, EtcdError."""
        try:
            body = json.dumps(request).encode()
            return self._attempt(node, path, body, time.monotonic() + timeout_s)
        except (NotSent, NoAnswer, _TokenExpired) as error:
            raise NodesUnavailable(f"{node}: {error}") from error
        except EtcdError as error:
            raise _unavailable_if_nodes_fault(node, error) from error

    def open_stream(
        self, node: Endpoint, path: str, request: Mapping[str, Any], timeout_s: float = ATTEMPT_S
    ) -> HttpConnection:
        """Open a stream on a new connection. Raises NodesUnavailable, EtcdError."""
        connection = self.nodes.connection(node)
        body = json.dumps(request).encode()
        try:
            token = self._token(node, time.monotonic() + timeout_s)
            give_up_s = time.monotonic() + timeout_s
            answer = connection.open_stream(path, body, _headers(token), give_up_s)
        except (NotSent, NoAnswer, _TokenExpired) as error:
            raise NodesUnavailable(f"{node}: {error}") from error
        if answer is not None:
            connection.close()
            try:
                self._decode(node, answer, token)
            except (NoAnswer, _TokenExpired) as error:
                raise NodesUnavailable(f"{node}: {error}") from error
            except EtcdError as error:
                raise _unavailable_if_nodes_fault(node, error) from error
            raise NodesUnavailable(f"{node}: the response is not a stream")
        return connection

    def close(self) -> None:
        """Close all connections."""
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    def _attempt(self, node: Endpoint, path: str, body: bytes, give_up_s: float) -> dict[str, Any]:
        connection = self._connections.get(node)
        if connection is None:
            connection = self.nodes.connection(node)
            self._connections[node] = connection
        token = self._token(node, give_up_s)
        answer = connection.post(path, body, _headers(token), give_up_s)
        reply = self._decode(node, answer, token)
        self.nodes.check_answer(reply.get("header") or {})
        return reply

    def _decode(self, node: Endpoint, answer: Answer, token: str | None) -> dict[str, Any]:
        try:
            reply = json.loads(answer.body)
        except ValueError:
            raise _text_refusal(node, answer) from None
        if answer.status == 200 and isinstance(reply, dict) and "error" not in reply:
            found = reply.get("result", reply)  # a keepalive is a stream of one response
            return found if isinstance(found, dict) else {}
        raise self._error(reply, answer.status, token)

    def _error(self, reply: Any, status: int, token: str | None) -> Exception:
        error = error_of(reply) or EtcdError(0, f"HTTP {status}")
        expired = error.code == _UNAUTHENTICATED or any(t in error.message for t in _TOKEN)
        if expired and self.nodes.address.access.user:
            self.nodes.forget_token(token)
            return _TokenExpired(error.message)
        if "space exceeded" in error.message:
            return StoreUnusable(
                f"etcd ({self.nodes.address.url}) has no space left (alarm NOSPACE): compact and"
                " defragment it, then clear the alarm with `etcdctl alarm disarm`"
            )
        if expired or error.code == _PERMISSION_DENIED or "permission denied" in error.message:
            return StoreUnusable(
                f"etcd ({self.nodes.address.url}) denies access: {error.message}; check the user"
                f" and its role on {self.nodes.address.prefix}"
            )
        return error

    def _token(self, node: Endpoint, give_up_s: float) -> str | None:
        """The token of the user; None without a user."""
        if not self.nodes.address.access.user:
            return None
        token = self.nodes.token
        if token is None:
            token = self.nodes.token = self._log_in(node, give_up_s)
        return token

    def _log_in(self, node: Endpoint, give_up_s: float) -> str:
        address = self.nodes.address
        request = {"name": address.access.user, "password": address.password()}
        with_own = self.nodes.connection(node)
        try:
            answer = with_own.post(
                "/v3/auth/authenticate", json.dumps(request).encode(), "", give_up_s
            )
        except NoAnswer as error:
            raise NotSent(str(error)) from error  # the call itself was not sent
        finally:
            with_own.close()
        try:
            reply = json.loads(answer.body)
        except ValueError:
            raise _text_refusal(node, answer) from None
        if answer.status == 200 and reply.get("token"):
            return str(reply["token"])
        refusal = error_of(reply) or EtcdError(0, f"HTTP {answer.status}")
        if _is_nodes_fault(refusal):
            raise NotSent(refusal.message)
        raise StoreUnusable(f"etcd ({address.url}) refuses user {address.access.user}: {refusal}")


class _TokenExpired(Exception):
    """The token is not valid any more; the call had no effect, and is sent again with a new one."""


def error_of(reply: Any) -> EtcdError | None:
    """The error in a response or in a line of a stream; its form differs between versions."""
    if not isinstance(reply, dict) or ("error" not in reply and "message" not in reply):
        return None
    found = reply.get("error")
    if isinstance(found, dict):
        reply = found
        found = None
    code = reply.get("code", reply.get("grpc_code", 0))
    return EtcdError(int(code), str(reply.get("message") or found or "unknown error"))


def _text_refusal(node: Endpoint, answer: Answer) -> Exception:
    """The error for a response that is not JSON."""
    text = answer.body[:200].decode("utf-8", "replace").strip()
    if _COMMON_NAME in text:
        return StoreUnusable(
            f"etcd at {node} refuses the client certificate: etcd has authentication on, and its"
            " gateway does not accept certificates with a common name (CN); use a certificate"
            " without CN, and a user with a password"
        )
    if answer.status == 404:
        return StoreUnusable(
            f"etcd at {node} has no JSON gateway (HTTP 404); start etcd 3.4 or newer without"
            " --enable-grpc-gateway=false"
        )
    return NoAnswer(f"HTTP {answer.status}: {text or 'no text'}")


def _headers(token: str | None) -> str:
    """The headers of a call: the token, and that the node must know a leader."""
    leader = "Grpc-Metadata-hasleader: true\r\n"
    return leader if token is None else f"{leader}Authorization: {token}\r\n"


def _is_nodes_fault(error: EtcdError) -> bool:
    return error.code in _NODES_FAULT or any(text in error.message for text in _ANOTHER_NODE)


def _may_have_effect(error: EtcdError) -> bool:
    """Whether a call that failed with this error may have been carried out."""
    refused = error.code in _REFUSALS or error.not_found
    return not refused and not any(text in error.message for text in _CERTAINLY_NOT)


def _unavailable_if_nodes_fault(node: Endpoint, error: EtcdError) -> Exception:
    """NodesUnavailable if another node may not have the error, else the error itself."""
    return NodesUnavailable(f"{node}: {error.message}") if _is_nodes_fault(error) else error
