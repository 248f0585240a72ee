"""Calls to etcd keep their time limits while the system's resolver does not respond."""

import _thread
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Thread
from typing import Any

import pytest

from tidelog.shell.store.etcd import name_lookup
from tidelog.shell.store.etcd.address import parse_address
from tidelog.shell.store.etcd.gateway import Gateway, Nodes, NodesUnavailable
from tidelog.shell.store.etcd.http_connection import Endpoint
from tidelog.shell.store.etcd.name_lookup import NameLookup
from tidelog.shell.store.store_backend import StoreAccess

LONG_S = 120.0


class Resolver:
    """Stands for the system's resolver: names of a table, and no response while it is held."""

    def __init__(self) -> None:
        self.table: dict[str, str] = {}
        self.lookups: list[str] = []
        self.responds = Event()
        self.responds.set()
        self._real = socket.getaddrinfo

    def getaddrinfo(self, host: str, port: int, **more: Any) -> Any:
        if more.get("flags", 0) & socket.AI_NUMERICHOST:
            return self._real(host, port, **more)
        self.lookups.append(host)
        self.responds.wait(LONG_S)
        if host not in self.table:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return self._real(self.table[host], port, **more)


@pytest.fixture
def resolver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Resolver]:
    """A resolver of this test only: lookups in the background end with the test."""
    made = Resolver()
    lookups: list[Event] = []
    start_new_thread = _thread.start_new_thread

    def start(look_up: Callable[..., None], arguments: tuple[Any, ...]) -> int:
        ended = Event()
        lookups.append(ended)

        def run() -> None:
            try:
                look_up(*arguments)
            finally:
                ended.set()

        return start_new_thread(run, ())

    monkeypatch.setattr(_thread, "start_new_thread", start)
    monkeypatch.setattr(socket, "getaddrinfo", made.getaddrinfo)
    yield made
    made.responds.set()
    assert all(ended.wait(LONG_S) for ended in lookups)


class Node(BaseHTTPRequestHandler):
    """A node of etcd that answers each call with an empty result."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"{}")

    def log_message(self, *_words: object) -> None:
        pass


@pytest.fixture
def port() -> Iterator[int]:
    """The port of a node on 127.0.0.1."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Node)
    server.daemon_threads = True
    thread = Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield server.server_address[1]
    server.shutdown()
    server.server_close()
    thread.join()


def gateway_of(*places: str) -> "closing[Gateway]":
    address = parse_address(f"etcd://{','.join(places)}/test", StoreAccess(allow_plaintext=True))
    return closing(Gateway(Nodes(address)))


def call(gateway: Gateway, limit_s: float = 1.0) -> float:
    """Call etcd; return how long it took."""
    began_s = time.monotonic()
    gateway.call("/v3/kv/range", {}, began_s + limit_s)
    return time.monotonic() - began_s


def test_a_name_that_is_not_resolved_in_time_fails_within_the_limit(resolver: Resolver) -> None:
    resolver.responds.clear()
    began_s = time.monotonic()
    with gateway_of("etcd-1:2379") as gateway, pytest.raises(NodesUnavailable, match="in time"):
        call(gateway, 0.3)
    assert time.monotonic() - began_s < 45
    assert resolver.lookups == ["etcd-1"], "later attempts wait for the same lookup"


def test_the_last_known_address_is_used_while_the_resolver_is_silent(
    resolver: Resolver, port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(name_lookup, "FRESH_S", 0.0)
    resolver.table["etcd-1"] = "127.0.0.1"
    with gateway_of(f"etcd-1:{port}") as gateway:
        call(gateway, LONG_S)
        resolver.responds.clear()
        for _ in range(3):
            gateway.close()
            assert call(gateway, LONG_S) < 45


def test_the_names_of_all_nodes_are_looked_up_before_they_are_needed(
    resolver: Resolver, port: int
) -> None:
    resolver.table |= {"etcd-1": "127.0.0.1", "etcd-2": "127.0.0.1"}
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        with gateway_of(f"etcd-2:{port}", f"etcd-1:{unused.getsockname()[1]}") as gateway:
            call(gateway, LONG_S)
            give_up_s = time.monotonic() + LONG_S
            while len(resolver.lookups) < 2:
                assert time.monotonic() < give_up_s
            gateway.nodes.failed(gateway.nodes.current())
            resolver.responds.clear()
            assert call(gateway, LONG_S) < 45  # etcd-1 refuses, etcd-2 answers
    assert sorted(resolver.lookups) == ["etcd-1", "etcd-2"]


def test_a_new_address_is_used_after_the_old_one_failed(
    resolver: Resolver, port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(name_lookup, "FRESH_S", 0.0)
    resolver.table["etcd-1"] = "127.0.0.2"  # nothing listens there
    with gateway_of(f"etcd-1:{port}") as gateway:
        with pytest.raises(NodesUnavailable):
            call(gateway, 0.3)
        resolver.table["etcd-1"] = "127.0.0.1"
        call(gateway, LONG_S)


def test_a_failed_lookup_is_named_and_repeated(resolver: Resolver, port: int) -> None:
    with gateway_of(f"etcd-1:{port}") as gateway:
        with pytest.raises(NodesUnavailable, match="etcd-1 can't be resolved: Name or service"):
            call(gateway, 1.5)
        resolver.table["etcd-1"] = "127.0.0.1"
        call(gateway, LONG_S)


def test_a_failed_lookup_keeps_the_last_known_address(
    resolver: Resolver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(name_lookup, "FRESH_S", 0.0)
    resolver.table["etcd-1"] = "127.0.0.1"
    names, etcd = NameLookup(), Endpoint("etcd-1", 2379)
    found = names.addresses(etcd, time.monotonic() + LONG_S)
    del resolver.table["etcd-1"]
    for _ in range(3):
        assert names.addresses(etcd, time.monotonic() + LONG_S) == found


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_an_address_needs_no_lookup(resolver: Resolver, host: str) -> None:
    ((*_, place),) = NameLookup().addresses(Endpoint(host, 2379), 0.0)
    assert place[:2] == (host, 2379)
    assert resolver.lookups == []


def test_a_thread_that_can_not_be_started_is_a_failed_lookup(
    resolver: Resolver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(name_lookup, "_AGAIN_S", 0.0)
    resolver.table["etcd-1"] = "127.0.0.1"
    names, etcd = NameLookup(), Endpoint("etcd-1", 2379)

    def refuse(*_words: object) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(_thread, "start_new_thread", refuse)
        with pytest.raises(OSError, match="can't start new thread"):
            names.addresses(etcd, time.monotonic() + LONG_S)
    assert names.addresses(etcd, time.monotonic() + LONG_S)
