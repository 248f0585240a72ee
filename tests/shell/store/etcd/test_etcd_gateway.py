"""How the client of etcd reads refusals: nodes with scripted responses, for what no real etcd does
on demand."""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partialmethod
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

import pytest
from blocking_store import PATIENCE_S, LocalClient

from tidelog.shell.clock import boot_ms
from tidelog.shell.store.etcd import gateway as etcd_gateway
from tidelog.shell.store.etcd.address import EtcdAddress, parse_address, parse_endpoint
from tidelog.shell.store.etcd.etcd_store import EtcdStore
from tidelog.shell.store.etcd.gateway import (
    EtcdError,
    Gateway,
    Nodes,
    NodesUnavailable,
    OutcomeLost,
)
from tidelog.shell.store.etcd.http_connection import Endpoint, _Chunks
from tidelog.shell.store.metadata_store_client import Renewed
from tidelog.shell.store.store_backend import NO_ACCESS, StoreAccess, StoreUnusable

Reply = tuple[int, Any]


class ScriptedNode:
    """A node that answers each call by a function, and remembers the calls."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, dict[str, Any], str | None]] = []
        self.answer: Callable[[str, dict[str, Any]], Reply] = lambda _path, _body: (200, header())
        node = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                node.calls.append((self.path, body, self.headers.get("Authorization")))
                status, reply = node.answer(self.path, body)
                data = reply.encode() if isinstance(reply, str) else json.dumps(reply).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_words: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.port: int = self._server.server_address[1]
        self._thread = Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def header(term: int = 5, **more: Any) -> dict[str, Any]:
    return {"header": {"raft_term": str(term), "revision": "7"}, **more}


def failure(code: int, message: str) -> Reply:
    return 503, {"error": message, "code": code, "message": message}


def accepted(_path: str, _body: dict[str, Any]) -> Reply:
    return 200, header()


def dropped(_path: str, _body: dict[str, Any]) -> Reply:
    return failure(2, "raft proposal dropped")


@pytest.fixture
def nodes() -> Iterator[list[ScriptedNode]]:
    nodes = [ScriptedNode(), ScriptedNode()]
    yield nodes
    for node in nodes:
        node.close()


def address(nodes: list[ScriptedNode], access: StoreAccess = NO_ACCESS) -> EtcdAddress:
    hosts = ",".join(f"127.0.0.1:{node.port}" for node in nodes)
    return parse_address(f"etcd://{hosts}/test", access)


@pytest.fixture
def gateway(nodes: list[ScriptedNode]) -> Iterator[Gateway]:
    gateway = Gateway(Nodes(address(nodes)))
    yield gateway
    gateway.close()


@pytest.fixture(autouse=True)
def _patient_attempts(monkeypatch: pytest.MonkeyPatch) -> None:
    """A node that gets no CPU for some seconds is not left for another one."""
    monkeypatch.setattr(Gateway, "call", partialmethod(Gateway.call, attempt_s=PATIENCE_S))
    monkeypatch.setattr(etcd_gateway, "_AVOID_S", PATIENCE_S)


def soon() -> float:
    return time.monotonic() + PATIENCE_S


def test_a_node_with_a_lower_raft_term_is_left(gateway: Gateway, nodes: list[ScriptedNode]) -> None:
    gateway.call("/v3/kv/range", {}, soon())
    nodes[0].answer = lambda _path, _body: (200, header(4))
    assert gateway.call("/v3/kv/range", {}, soon())["header"]["raft_term"] == "5"
    assert len(nodes[1].calls) == 1
    assert gateway.nodes.current().port == nodes[1].port


def test_a_node_of_another_etcd_cluster_is_not_used(
    gateway: Gateway, nodes: list[ScriptedNode]
) -> None:
    for node, cluster in zip(nodes, "12", strict=True):
        node.answer = lambda _path, _body, cluster=cluster: (  # type: ignore[misc]
            200,
            {"header": {"cluster_id": cluster, "raft_term": "5"}},
        )
    gateway.call("/v3/kv/range", {}, soon())
    gateway.nodes.failed(gateway.nodes.current())
    answer = gateway.call("/v3/kv/range", {}, soon())
    assert answer["header"]["cluster_id"] == "1"
    assert len(nodes[1].calls) == 1
    with pytest.raises(NodesUnavailable, match="belongs to another etcd cluster"):
        gateway.call_node(Endpoint("127.0.0.1", nodes[1].port), "/v3/kv/range", {})


@pytest.mark.parametrize("message", ["etcdserver: no leader", "etcdserver: request cancelled"])
def test_the_watch_leaves_a_node_without_a_leader(
    gateway: Gateway, nodes: list[ScriptedNode], message: str
) -> None:
    node = Endpoint("127.0.0.1", nodes[0].port)
    code = 14 if "leader" in message else 1
    nodes[0].answer = lambda _path, _body: failure(code, message)
    with pytest.raises(NodesUnavailable, match=message):
        gateway.call_node(node, "/v3/kv/range", {})
    with pytest.raises(NodesUnavailable, match=message):
        gateway.open_stream(node, "/v3/watch", {})


@pytest.mark.parametrize(
    ("code", "message"),
    [
        (14, "etcdserver: no leader"),
        (14, "etcdserver: leader changed"),
        (14, "etcdserver: request timed out"),
        (2, "lease: not a primary lessor"),
    ],
)
def test_a_call_that_may_be_repeated_goes_to_the_next_node(
    gateway: Gateway, nodes: list[ScriptedNode], code: int, message: str
) -> None:
    nodes[0].answer = lambda _path, _body: failure(code, message)
    assert EtcdStore(gateway).renew_session(1, soon()) is None
    assert (len(nodes[0].calls), len(nodes[1].calls)) == (1, 1)


@pytest.mark.parametrize(
    ("code", "message"),
    [
        (14, "etcdserver: request timed out"),
        (1, "etcdserver: request cancelled"),
        (2, "etcdserver: request cancelled"),
        (4, "context deadline exceeded"),
        (13, "stream terminated by RST_STREAM"),
    ],
)
def test_a_transaction_is_not_repeated_if_it_may_have_been_applied(
    gateway: Gateway, nodes: list[ScriptedNode], code: int, message: str
) -> None:
    """A node that stops cancels requests that it may have passed on to the leader."""
    nodes[0].answer = lambda _path, _body: failure(code, message)
    with pytest.raises(OutcomeLost):
        gateway.call("/v3/kv/txn", {}, soon(), once=True)
    assert not nodes[1].calls


def test_a_transaction_is_repeated_if_the_node_had_no_leader_or_was_away(
    gateway: Gateway, nodes: list[ScriptedNode]
) -> None:
    nodes[0].answer = lambda _path, _body: failure(14, "etcdserver: no leader")
    gateway.call("/v3/kv/txn", {}, soon(), once=True)
    assert len(nodes[1].calls) == 1
    nodes[1].answer, nodes[0].answer = dropped, accepted
    gateway.call("/v3/kv/txn", {}, soon(), once=True)
    nodes[1].answer = accepted
    with_a_dead_one = Nodes(
        parse_address(f"etcd://127.0.0.1:1,127.0.0.1:{nodes[1].port}", NO_ACCESS)
    )
    gateway = Gateway(with_a_dead_one)
    gateway.call("/v3/kv/txn", {}, soon(), once=True)
    gateway.close()


@pytest.mark.parametrize("reply", [{"ID": "1"}, {"ID": "1", "TTL": "0"}, {"result": {"ID": "1"}}])
def test_a_renewal_without_a_time_to_live_means_expired(
    gateway: Gateway, nodes: list[ScriptedNode], reply: dict[str, Any]
) -> None:
    nodes[0].answer = lambda _path, _body: (200, reply)
    assert EtcdStore(gateway).renew_session(1, soon()) is None
    nodes[0].answer = lambda _path, _body: (200, {"result": header(ID="1", TTL="9")})
    before = boot_ms()
    sent_ms = EtcdStore(gateway).renew_session(1, soon())
    assert sent_ms is not None
    assert before <= sent_ms <= boot_ms()


@pytest.mark.parametrize(
    ("reply", "text"),
    [
        (failure(8, "etcdserver: mvcc: database space exceeded"), "alarm NOSPACE"),
        (failure(7, "etcdserver: permission denied"), "check the user"),
        ((400, "CommonName of client sending a request against gateway will be"), r"\(CN\)"),
        ((404, "404 page not found"), "has no JSON gateway"),
    ],
)
def test_errors_for_people_are_clear(
    gateway: Gateway, nodes: list[ScriptedNode], reply: Reply, text: str
) -> None:
    nodes[0].answer = lambda _path, _body: reply
    with pytest.raises(StoreUnusable, match=text):
        gateway.call("/v3/kv/txn", {}, soon(), once=True)


@pytest.mark.parametrize(
    "reply",
    [
        {"error": "lease not found", "code": 5, "message": "lease not found"},
        {"error": {"grpc_code": 5, "message": "lease not found"}},
        {"code": 5, "message": "lease not found", "details": []},
    ],
)
def test_errors_are_read_in_the_form_of_every_version(
    gateway: Gateway, nodes: list[ScriptedNode], reply: dict[str, Any]
) -> None:
    nodes[0].answer = lambda _path, _body: (404, reply)
    with pytest.raises(EtcdError) as refused:
        gateway.call("/v3/lease/revoke", {}, soon())
    assert refused.value.not_found


def test_the_error_names_why_no_node_answered(gateway: Gateway, nodes: list[ScriptedNode]) -> None:
    for node in nodes:
        node.answer = lambda _path, _body: (502, "bad gateway")
    with pytest.raises(NodesUnavailable, match="HTTP 502: bad gateway"):
        gateway.call("/v3/kv/range", {}, time.monotonic() + 1)


def test_a_token_is_renewed_when_it_expires(nodes: list[ScriptedNode], tmp_path: Any) -> None:
    (tmp_path / "password").write_text("secret\n")
    access = StoreAccess(user="me", password_file=str(tmp_path / "password"))
    tokens = iter(["first", "second"])
    valid = "first"

    def answer(path: str, body: dict[str, Any]) -> Reply:
        if path == "/v3/auth/authenticate":
            assert body == {"name": "me", "password": "secret"}
            return 200, header(token=next(tokens))
        if nodes[0].calls[-1][2] == valid:
            return 200, header()
        return 401, {"code": 16, "message": "etcdserver: invalid auth token"}

    nodes[0].answer = answer
    gateway = Gateway(Nodes(address(nodes, access)))
    gateway.call("/v3/kv/txn", {}, soon(), once=True)
    valid = "second"
    gateway.call("/v3/kv/txn", {}, soon(), once=True)
    gateway.close()
    assert [call[2] for call in nodes[0].calls] == [None, "first", "first", None, "second"]


def test_a_login_that_no_node_accepts_is_not_repeated_without_a_pause(
    nodes: list[ScriptedNode], tmp_path: Any
) -> None:
    (tmp_path / "password").write_text("secret\n")
    access = StoreAccess(user="me", password_file=str(tmp_path / "password"))

    def answer(path: str, _body: dict[str, Any]) -> Reply:
        if path == "/v3/auth/authenticate":
            return 200, header(token="token")
        return 401, {"code": 16, "message": "etcdserver: invalid auth token"}

    for node in nodes:
        node.answer = answer
    gateway = Gateway(Nodes(address(nodes, access)))
    with pytest.raises(NodesUnavailable, match=r"login is not accepted: .*invalid auth token"):
        gateway.call("/v3/kv/range", {}, time.monotonic() + 1)
    gateway.close()
    assert sum(len(node.calls) for node in nodes) < 60


def test_a_token_of_another_thread_is_kept() -> None:
    nodes = Nodes(parse_address("etcd://127.0.0.1:1/p", NO_ACCESS))
    nodes.token = "new"
    nodes.forget_token("old")
    assert nodes.token == "new"
    nodes.forget_token("new")
    assert nodes.token is None


def test_loopback_addresses_of_members_on_other_machines_are_not_used() -> None:
    """etcd announces http://localhost:2379 unless another address is configured."""
    access = StoreAccess(allow_plaintext=True)
    nodes = Nodes(parse_address("etcd://10.0.0.1:2379/p", access))
    nodes.learn([{"clientURLs": ["http://localhost:2379", "http://10.0.0.2:2379"]}])
    assert [node.host for node in nodes.endpoints] == ["10.0.0.1", "10.0.0.2"]


@pytest.mark.parametrize("size", [b"-1", b"5000000", b"x"])
def test_a_chunk_of_an_impossible_size_is_an_error(size: bytes) -> None:
    chunks = _Chunks()
    chunks.data += b"x" * (60 << 20)
    with pytest.raises(ValueError, match=r"HTTP|too long|invalid literal"):
        chunks.feed(size + b"\r\nabc")
    with pytest.raises(ValueError, match="not HTTP"):
        _Chunks().feed(b"0" * (1 << 17))


def test_nodes_are_learned_from_the_members_and_configured_ones_stay() -> None:
    nodes = Nodes(parse_address("etcd://127.0.0.1:1,127.0.0.1:2/p", NO_ACCESS))
    nodes.learn(
        [
            {"clientURLs": ["http://127.0.0.1:2", "https://127.0.0.1:9"]},
            {"clientURLs": ["http://127.0.0.1:3", "http://0.0.0.0:4", "http://elsewhere:5"]},
            {},
        ]
    )
    assert [node.port for node in nodes.endpoints] == [1, 2, 3]
    nodes.learn([])
    assert [node.port for node in nodes.endpoints] == [1, 2]


def test_members_are_learned_while_clients_request_metadata(nodes: list[ScriptedNode]) -> None:
    """Requests for metadata probe for dead brokers, here every 0.2 s."""
    configured, replacement = nodes
    members = [{"clientURLs": [f"http://127.0.0.1:{replacement.port}"]}]

    requested: list[str] = []

    def lists_members(path: str, _body: dict[str, Any]) -> Reply:
        requested.append(path)
        return 200, header(members=members)

    configured.answer = lists_members
    replacement.answer = lambda _path, _body: (200, header(TTL="9"))
    with closing(LocalClient(address([configured]).url)) as client:
        give_up = time.monotonic() + 120
        while "/v3/cluster/member/list" not in requested:
            assert time.monotonic() < give_up, "the members were never requested"
            client.probe()
            client.until(lambda: False, 0.2)
        configured.answer = lambda _path, _body: failure(14, "etcdserver: server stopped")
        assert isinstance(client.renew(1), Renewed)
    assert "/v3/lease/keepalive" in {path for path, *_ in replacement.calls}


def test_a_node_that_failed_is_avoided_for_a_while() -> None:
    nodes = Nodes(parse_address("etcd://127.0.0.1:1,127.0.0.1:2/p", NO_ACCESS))
    nodes.failed(nodes.current())
    assert nodes.current().port == 2
    nodes.failed(nodes.current())
    assert nodes.current().port == 1, "all failed: the one that failed first"


@pytest.mark.parametrize(
    ("text", "endpoint"),
    [
        ("h1", Endpoint("h1", 2379)),
        ("h1:1", Endpoint("h1", 1)),
        ("[::1]:1", Endpoint("::1", 1)),
        ("[::1]", Endpoint("::1", 2379)),
    ],
)
def test_endpoints(text: str, endpoint: Endpoint) -> None:
    assert parse_endpoint(text, "") == endpoint


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::1]", "127.1.2.3"])
def test_plain_http_is_for_this_machine(host: str) -> None:
    parse_address(f"etcd://{host}:1", NO_ACCESS)


@pytest.mark.parametrize("host", ["10.0.0.1", "127.example.org", "h1", "[fe80::1]"])
def test_plain_http_elsewhere_must_be_allowed(host: str) -> None:
    with pytest.raises(StoreUnusable, match="without encryption"):
        parse_address(f"etcd://{host}:1", NO_ACCESS)
    parse_address(f"etcd://{host}:1", StoreAccess(allow_plaintext=True))
    parse_address(f"etcds://{host}:1", NO_ACCESS)
