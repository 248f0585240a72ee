"""Limits on connections: they hold for clients, and never keep brokers from each other."""

import socket
from contextlib import ExitStack

import pytest
from real_cluster import PATIENCE_S, eventually, make_topic, read_values, send_all

from tidelog.core.api_table import API_VERSIONS
from tidelog.core.wire.codec import encode_request
from tidelog.shell.client.admin import create_topic
from tidelog.shell.client.cluster import Cluster
from tidelog.shell.supervisor.cluster import LocalCluster


def is_served(sock: socket.socket) -> bool:
    """Whether the broker answers on this connection; it closes one above the limit."""
    sock.settimeout(PATIENCE_S)
    try:
        sock.sendall(encode_request(API_VERSIONS, 0, 7, "limited", {}))
        return sock.recv(1 << 16) != b""
    except ConnectionError:
        return False


def served(stack: ExitStack, address: tuple[str, int]) -> socket.socket:
    """Connect until the broker serves the connection: it may still count one that has ended."""

    def connect() -> socket.socket | None:
        sock = socket.create_connection(address, timeout=PATIENCE_S)
        if is_served(sock):
            return sock
        sock.close()
        return None

    return stack.enter_context(eventually(connect, "a connection is served"))


def is_open(sock: socket.socket) -> bool:
    """Whether the connection is open: one above the limit is accepted and closed at once."""
    sock.settimeout(0.3)
    try:
        return sock.recv(1) != b""
    except TimeoutError:
        return True
    except ConnectionError:
        return False


@pytest.mark.parametrize("key", ["max.connections", "max.connections.per.ip"])
def test_connections(name: str, key: str) -> None:
    """The brokers of this machine share the clients' address, and still replicate."""
    with LocalCluster(settings={key: "3", "socket.request.max.bytes": "5000"}) as cluster:
        make_topic(cluster.bootstrap, name)
        send_all(cluster.bootstrap, name, [b"replicated"], conf={"acks": "all"})
        assert read_values(cluster.bootstrap, name) == [b"replicated"]
        with ExitStack() as opened:
            address = ("localhost", cluster.port(1))
            socks = [opened.enter_context(socket.create_connection(address)) for _ in range(5)]
            eventually(lambda: sum(map(is_open, socks)) <= 3, "the limit holds")
        assert read_values(cluster.bootstrap, name) == [b"replicated"]


def test_a_limit_smaller_than_the_number_of_brokers(name: str) -> None:
    settings = {"max.connections": "1", "max.connections.per.ip": "1"}
    with LocalCluster(4, settings=settings) as cluster:
        address = ("localhost", cluster.port(1))
        with ExitStack() as opened:
            first = served(opened, address)
            second = opened.enter_context(socket.create_connection(address))
            assert not is_served(second)
            assert is_served(first)
        with Cluster(cluster.bootstrap, timeout_s=PATIENCE_S) as client:
            eventually(lambda: create(client, name), "the topic is created")

            def all_in_sync() -> bool:
                partitions = client.refresh([name]).topics[name].partitions.values()
                return len(partitions) == 8 and all(len(each.isr) == 3 for each in partitions)

            eventually(all_in_sync, "every broker follows every other")


def create(client: Cluster, name: str) -> bool:
    """Create a topic. While a broker counts an ended connection, it refuses the next one."""
    create_topic(client, name, 8, 3, exist_ok=True)
    return True


def test_limits_that_are_set(name: str) -> None:
    """An incomplete request, and an address that may have two connections."""
    settings = {
        "tidelog.request.receive.timeout.ms": "300",
        "max.connections.per.ip.overrides": "127.0.0.1:2",
        "max.connection.creation.rate": "1000",
        "queued.max.request.bytes": "104857600",
    }
    with LocalCluster(1, settings=settings) as cluster:
        address = ("127.0.0.1", cluster.port(1))
        with ExitStack() as opened:
            slow, idle = served(opened, address), served(opened, address)
            third = opened.enter_context(socket.create_connection(address))
            assert not is_served(third)
            slow.sendall((100).to_bytes(4, "big") + b"\0\3")
            eventually(lambda: not is_open(slow), "the slow one is dropped")
            assert is_served(idle)
        make_topic(cluster.bootstrap, name)
