"""Calls to an etcd cluster through its JSON gateway: node, time limit, meaning of a failure.

A node may be dead, frozen, cut off from the others, or behind them. So every attempt has a short
time limit, a node that fails is avoided for a while, and an answer from a node with a lower Raft
term than one seen before is not used: that node has missed an election.

Invariant: `OutcomeLost` is raised only for calls that must not be sent twice. All other failures
mean that the call had no effect, or may be sent again.
"""

import _thread
import json
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from tidelog.shell.store.etcd.address import EtcdAddress, parse_endpoint
from tidelog.shell.store.etcd.http_connection import (
    Answer,
    Endpoint,
    HttpConnection,
    NoAnswer,
    NotSent,
)
from tidelog.shell.store.store_backend import StoreUnusable

if TYPE_CHECKING:
    from ssl import SSLContext

ATTEMPT_S = 1.0
"""The time limit of one attempt on one node."""
_AVOID_S = 3.0
"""How long a node is avoided after it failed."""
_PAUSE_S, _PAUSE_MAX_S = 0.02, 0.2
"""Pauses after all nodes failed."""
_UNAVAILABLE, _UNAUTHENTICATED, _NOT_FOUND, _EXHAUSTED = 14, 16, 5, 8
_ANOTHER_NODE = (
    "no leader",
    "leader changed",
    "not a primary lessor",
    "timed out",
    "server stopped",
    "not capable",
    "unhealthy cluster",
    "too many requests",
)
"""Errors of a node that another node, or the same one a moment later, may not have."""
_CERTAINLY_NOT = ("no leader", "too many requests", "not capable")
"""Those that are found before the call takes effect."""
_TOKEN = ("invalid auth token", "auth store is old", "user name is empty", "user name not found")
_COMMON_NAME = "CommonName of client"


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
        self.token: str | None = None
        self._lock = _thread.allocate_lock()
        self._tls: SSLContext | None = None
        self._tls_ready = False
        self._endpoints = list(address.endpoints)
        self._avoid_until: dict[Endpoint, float] = {}

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

    def learn(self, members: list[Any]) -> None:
        """Add the members' own addresses to the configured ones; forget members that left.

        The configured addresses stay: members may announce addresses that work elsewhere only.
        """
        found = []
        scheme = "https://" if self.address.secure else "http://"
        for url in (url for member in members for url in member.get("clientURLs") or ()):
            if url.startswith(scheme):
                endpoint = parse_endpoint(url.removeprefix(scheme).rstrip("/"), self.address.url)
                if self.address.allows(endpoint) and endpoint.host not in ("0.0.0.0", "::"):
                    found.append(endpoint)
        wanted = dict.fromkeys((*self.address.endpoints, *found))
        with self._lock:
            kept = [node for node in self._endpoints if node in wanted]
            self._endpoints = [*kept, *(node for node in wanted if node not in kept)]


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
        why, pause_s, tried = "no time left", _PAUSE_S, 0
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
            except _TokenExpired:
                why = f"{node}: the login expired"
                continue
            except EtcdError as error:
                if not _is_nodes_fault(error):
                    raise
                why = f"{node}: {error.message}"
                if once and not any(text in error.message for text in _CERTAINLY_NOT):
                    self.nodes.failed(node)
                    raise OutcomeLost(why) from error
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

    def open_stream(
        self, node: Endpoint, path: str, request: Mapping[str, Any], timeout_s: float = ATTEMPT_S
    ) -> HttpConnection:
        """Open a stream on a new connection. Raises NodesUnavailable, EtcdError."""
        connection = HttpConnection(node, self.nodes.tls())
        body = json.dumps(request).encode()
        try:
            headers = self._headers(node, time.monotonic() + timeout_s)
            answer = connection.open_stream(path, body, headers, time.monotonic() + timeout_s)
        except (NotSent, NoAnswer, _TokenExpired) as error:
            raise NodesUnavailable(f"{node}: {error}") from error
        if answer is not None:
            connection.close()
            try:
                self._decode(node, answer)
            except _TokenExpired as error:
                raise NodesUnavailable(f"{node}: the login expired") from error
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
            connection = HttpConnection(node, self.nodes.tls())
            self._connections[node] = connection
        headers = self._headers(node, give_up_s)
        reply = self._decode(node, connection.post(path, body, headers, give_up_s))
        term = int(reply.get("header", {}).get("raft_term", 0))
        if term and not self.nodes.saw_term(term):
            raise NoAnswer(f"its Raft term {term} is behind {self.nodes.highest_term}")
        return reply

    def _decode(self, node: Endpoint, answer: Answer) -> dict[str, Any]:
        try:
            reply = json.loads(answer.body)
        except ValueError:
            raise _text_refusal(node, answer) from None
        if answer.status == 200 and isinstance(reply, dict) and "error" not in reply:
            found = reply.get("result", reply)  # a keepalive is a stream of one response
            return found if isinstance(found, dict) else {}
        raise self._error(reply, answer.status)

    def _error(self, reply: Any, status: int) -> Exception:
        error = error_of(reply) or EtcdError(0, f"HTTP {status}")
        expired = error.code == _UNAUTHENTICATED or any(t in error.message for t in _TOKEN)
        if expired and self.nodes.address.access.user:
            self.nodes.token = None
            return _TokenExpired(error.message)
        if "space exceeded" in error.message:
            return StoreUnusable(
                f"etcd ({self.nodes.address.url}) has no space left (alarm NOSPACE): compact and"
                " defragment it, then clear the alarm with `etcdctl alarm disarm`"
            )
        if expired or error.code == 7 or "permission denied" in error.message:
            return StoreUnusable(
                f"etcd ({self.nodes.address.url}) denies access: {error.message}; check the user"
                f" and its role on {self.nodes.address.prefix}"
            )
        return error

    def _headers(self, node: Endpoint, give_up_s: float) -> str:
        """The headers of a call: the token, and that the node must know a leader."""
        if not self.nodes.address.access.user:
            return "Grpc-Metadata-hasleader: true\r\n"
        token = self.nodes.token
        if token is None:
            token = self.nodes.token = self._log_in(node, give_up_s)
        return f"Grpc-Metadata-hasleader: true\r\nAuthorization: {token}\r\n"

    def _log_in(self, node: Endpoint, give_up_s: float) -> str:
        address = self.nodes.address
        request = {"name": address.access.user, "password": address.password()}
        with_own = HttpConnection(node, self.nodes.tls())
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


def _is_nodes_fault(error: EtcdError) -> bool:
    return error.code == _UNAVAILABLE or any(text in error.message for text in _ANOTHER_NODE)
