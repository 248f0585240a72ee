"""Idle connections cost a broker little memory; `make bench-groups` opens 2,000."""

import resource
import socket
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from real_cluster import PATIENCE_S, eventually, make_topic, read_values, resident_mb, send_all

from tidelog.core.wire.codec import decode_response, encode_request
from tidelog.shell.supervisor.cluster import LocalCluster

CONNECTIONS = 500
GROWTH_MAX_MB = 10
API_VERSIONS = 18


@pytest.fixture
def descriptors() -> Iterator[None]:
    """Raise the limit of open files: this process has the client ends."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = CONNECTIONS + 500
    if soft < wanted:
        if hard != resource.RLIM_INFINITY and hard < wanted:
            pytest.skip(f"this machine allows {hard} descriptors: see ulimit -Hn")
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def greeted(peer: socket.socket) -> bool:
    """Send ApiVersions, as every client does first; return whether it succeeded."""
    peer.sendall(encode_request(API_VERSIONS, 0, 7, "idle", {}))
    answer = b""
    while len(answer) < 4 or len(answer) < 4 + int.from_bytes(answer[:4], "big"):
        received = peer.recv(1 << 16)
        if not received:
            return False
        answer += received
    return bool(decode_response(API_VERSIONS, 0, answer[4:])[1]["error_code"] == 0)


@pytest.mark.usefixtures("descriptors")
def test_idle_connections(name: str) -> None:
    with LocalCluster(brokers=1) as cluster, ExitStack() as opened:
        make_topic(cluster.bootstrap, name)
        pid = cluster.pid(1)
        before_mb = resident_mb(pid)
        address = ("localhost", cluster.port(1))
        peers = [
            opened.enter_context(socket.create_connection(address, timeout=PATIENCE_S))
            for _ in range(CONNECTIONS)
        ]
        assert all(map(greeted, peers))
        assert resident_mb(pid) < before_mb + GROWTH_MAX_MB
        send_all(cluster.bootstrap, name, [b"among many"])
        assert read_values(cluster.bootstrap, name) == [b"among many"]
        assert all(map(greeted, peers[::100])), "they are still served"
        opened.close()
        eventually(lambda: resident_mb(pid) < before_mb + GROWTH_MAX_MB, "nothing is left behind")
