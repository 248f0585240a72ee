"""Another user of the machine takes the ports of dead brokers, and learns no secret there."""

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from real_cluster import PATIENCE_S, eventually, make_topic, read_values, send_all

from tidelog.shell.store.cluster_file import prepare
from tidelog.shell.store.log_dir_lock import LogDirLock
from tidelog.shell.supervisor.cluster import LocalCluster

NOBODY = 65534
HOSTILE = """
import os, socket, sys, threading
if os.geteuid() == 0:
    os.setgroups([])
    os.setuid(int(sys.argv[1]))
def take(peer):
    try:
        while got := peer.recv(65536):
            os.write(1, got)
    except OSError:
        pass
def serve(door):
    while True:
        peer, _ = door.accept()
        threading.Thread(target=take, args=(peer,), daemon=True).start()
for port in map(int, sys.argv[2:]):
    tcp, unix = socket.socket(), socket.socket(socket.AF_UNIX)
    tcp.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    beside = b"\\0tidelog-internal-127.0.0.1:%d" % port
    for door, name in ((tcp, ("127.0.0.1", port)), (unix, beside)):
        door.bind(name)
        door.listen()
        threading.Thread(target=serve, args=(door,), daemon=True).start()
print("ready", file=sys.stderr, flush=True)
sys.stdin.read()
"""


@contextmanager
def hostile(ports: list[int], output: Path) -> Iterator[None]:
    """Start a process that listens on the ports and records the received bytes."""
    with output.open("wb") as file:
        process = subprocess.Popen(
            [sys.executable, "-c", HOSTILE, str(NOBODY), *map(str, ports)],
            stdin=subprocess.PIPE,
            stdout=file,
            stderr=subprocess.PIPE,
        )
        with process:
            assert process.stderr is not None
            assert process.stderr.readline() == b"ready\n"
            yield
            process.kill()


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has names without files")
def test_a_hostile_user_at_dead_brokers_ports_learns_no_secret(name: str, tmp_path: Path) -> None:
    """The hostile process is another user's if the tests run as root."""
    # The locks of the dead brokers are held, so that broker 1 takes them for living ones.
    with LocalCluster(settings={"broker.session.timeout.ms": "60000"}) as cluster:
        make_topic(cluster.bootstrap, name, 3)
        send_all(cluster.bootstrap, name, [b"before"])
        secret = prepare(os.path.join(cluster.plan.data, "cluster.db")).secret.encode()
        ports = [cluster.internal_port(broker) for broker in cluster.ids]
        for broker in cluster.ids:
            cluster.kill(broker)
        heard = tmp_path / "heard"
        folders = [f"{cluster.plan.data}/broker-{broker}" for broker in cluster.ids]
        with hostile(ports, heard):
            locks = [LogDirLock.acquire(folder) for folder in folders[1:]]
            cluster.start_broker(1, wait=False)
            eventually(heard.read_bytes, "broker 1 connects to an old port")
            for lock in locks:
                lock.release()
            for broker in cluster.ids[1:]:
                cluster.start_broker(broker, wait=False)
            cluster.wait_ready(started=cluster.ids)
            send_all(cluster.bootstrap, name, [b"meanwhile"])
            assert read_values(cluster.bootstrap, name) == [b"before", b"meanwhile"]
            got = heard.read_bytes()
    assert secret not in got
    assert b"proof" not in got, "an answer to a process that proved nothing"


def test_idle_connections_do_not_keep_a_restarted_broker_out(name: str) -> None:
    with LocalCluster() as cluster:
        make_topic(cluster.bootstrap, name)
        port = cluster.internal_port(1)
        idle = [
            socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S) for _ in range(300)
        ]
        cluster.kill(2)
        cluster.start_broker(2)
        send_all(cluster.bootstrap, name, [b"with all"])
        eventually(lambda: all(map(is_closed, idle)), "unproven connections are closed")
        for sock in idle:
            sock.close()


def is_closed(sock: socket.socket) -> bool:
    sock.setblocking(False)
    try:
        return sock.recv(1) == b""
    except BlockingIOError:
        return False
    except ConnectionResetError:
        return True
