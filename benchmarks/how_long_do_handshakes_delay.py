"""How long a request of one client waits while many others begin TLS at the same moment.

One broker, one client that sends a small request again and again on an open TLS connection, and
another process that connects, then completes all handshakes as fast as it can.

    python benchmarks/how_long_do_handshakes_delay.py [CONNECTIONS]
"""

import json
import multiprocessing as mp
import os
import select
import socket
import ssl
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tidelog.core.api_table import METADATA
from tidelog.shell.client.connection import KafkaConnection
from tidelog.shell.client.security import read_security

HOST = "127.0.0.1"
SECONDS = 3.0
KEYS = {
    "ECDSA P-256": ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"),
    "RSA 2048": ("-newkey", "rsa:2048"),
}


def certificate(folder: Path, key: str) -> Path:
    """Make a self-signed certificate; return the file with it and its key."""
    files = ("-keyout", "key.pem", "-out", "ca.pem", "-subj", "/O=bench")
    names = ("-addext", "subjectAltName=IP:127.0.0.1")
    command = ["openssl", "req", "-x509", *KEYS[key], "-nodes", "-days", "1", *files, *names]
    subprocess.run(command, cwd=folder, check=True, capture_output=True)
    store = folder / "store.pem"
    store.write_text((folder / "key.pem").read_text() + (folder / "ca.pem").read_text())
    return store


def connect_all(port: int, count: int, begin: Any, done: Any) -> None:
    """Connect, wait for the word, and complete all handshakes."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    plain = [socket.create_connection((HOST, port)) for _ in range(count)]
    done.put("connected")
    begin.wait()
    began = time.monotonic()
    poller, secure = select.poll(), {}
    for sock in plain:
        sock.setblocking(False)
        one = context.wrap_socket(sock, do_handshake_on_connect=False)
        secure[one.fileno()] = one
        poller.register(one, select.POLLIN | select.POLLOUT)
    waiting = set(secure)
    while waiting:
        for fd, _ in poller.poll(1000):
            try:
                secure[fd].do_handshake()
            except ssl.SSLWantReadError:
                poller.modify(fd, select.POLLIN)
            except ssl.SSLWantWriteError:
                poller.modify(fd, select.POLLOUT)
            else:
                poller.unregister(fd)
                waiting.discard(fd)
    done.put(time.monotonic() - began)


def latencies(connection: KafkaConnection, until: Any) -> list[float]:
    """Send requests one after another; return how long each took, in milliseconds."""
    found = []
    while not until():
        began = time.perf_counter()
        connection.call(METADATA, {"topics": [], "allow_auto_topic_creation": False})
        found.append((time.perf_counter() - began) * 1000)
    return found


def shown(values: list[float]) -> str:
    ranked = sorted(values)
    p99 = ranked[int(len(ranked) * 0.99)]
    return f"median {ranked[len(ranked) // 2]:.2f} ms, p99 {p99:.2f} ms, max {ranked[-1]:.1f} ms"


def measure(key: str, count: int, folder: Path) -> None:
    store = certificate(folder, key)
    (folder / "server.properties").write_text(
        f"node.id=1\nlisteners=SSL://{HOST}:0\ntidelog.log.format=json\n"
        f"ssl.keystore.type=PEM\nssl.keystore.location={store}\n"
        f"ssl.truststore.type=PEM\nssl.truststore.location={folder}/ca.pem\n"
    )
    log = folder / "log.txt"
    command = [sys.executable, "-m", "tidelog", "broker", "--config", "server.properties"]
    with log.open("wb") as file:
        broker = subprocess.Popen(command, cwd=folder, stderr=file, env=dict(os.environ))
    try:
        port = None
        while port is None:
            events = map(json.loads, log.read_text().splitlines())
            listening = [one for one in events if one.get("event") == "listening"]
            port = int(listening[0]["listeners"][0].rpartition(":")[2]) if listening else None
            time.sleep(0.05)
        texts = {
            "security.protocol": "SSL",
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": f"{folder}/ca.pem",
        }
        with KafkaConnection(HOST, port, security=read_security(texts)) as connection:
            deadline = time.monotonic() + SECONDS
            idle = latencies(connection, lambda: time.monotonic() > deadline)
            begin, done = mp.Event(), mp.Queue()  # type: ignore[var-annotated]
            others = mp.Process(target=connect_all, args=(port, count, begin, done))
            others.start()
            done.get()
            begin.set()
            during = latencies(connection, lambda: not done.empty())
            took = done.get()
            others.join()
        print(f"{key}: {count} handshakes in {took:.2f} s")
        print(f"  a request before: {shown(idle)}")
        print(f"  a request during: {shown(during)} ({len(during)} requests)")
    finally:
        broker.terminate()
        broker.wait(30)


if __name__ == "__main__":
    for kind in KEYS:
        with TemporaryDirectory(prefix="tidelog-tls-") as name:
            measure(kind, int(sys.argv[1]) if len(sys.argv) > 1 else 500, Path(name))
