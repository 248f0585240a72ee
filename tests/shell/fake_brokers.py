"""Brokers that only listen and answer Metadata, for tests of the supervisor.

The rack says how one behaves: `fails` at the start, `raises`, is `silent` (does not listen) or
`deaf` to SIGTERM. Each broker of a data folder writes a file, by which the others find it.
"""

import os
import select
import signal
import socket
import struct
from collections.abc import Callable
from contextlib import suppress
from typing import Any

CONTROLLER = 1


def run_brokers(settings: list[Any], report: Callable[[dict[str, object]], None]) -> int:
    stop, out = os.pipe()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: os.write(out, b"x"))
    listening: list[socket.socket] = []
    poll = select.poll()
    poll.register(stop, select.POLLIN)
    for one in settings:
        rack = one.get("broker.rack")
        if rack == "fails":
            report({"event": "failed", "broker": one.node_id, "reason": "the rack says so"})
            return 1
        if rack == "raises":
            raise RuntimeError("the rack says so")
        if rack == "deaf":
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        if rack == "silent":
            continue
        listening.append(_start(one, report))
        poll.register(listening[-1], select.POLLIN)
    while True:
        for fd, _ in poll.poll():
            if fd == stop:
                for one in settings:
                    report({"event": "stopped", "broker": one.node_id, "clean": True})
                return 0
            sock = next(s for s in listening if s.fileno() == fd)
            connection, _ = sock.accept()
            with connection, suppress(OSError, struct.error):  # the client may have given up
                _answer(connection, os.path.dirname(settings[0].log_dir))


def _start(settings: Any, report: Callable[[dict[str, object]], None]) -> socket.socket:
    port = settings.listener.port
    sock = socket.create_server(("127.0.0.1", port))
    port = sock.getsockname()[1]
    os.makedirs(settings.log_dir, exist_ok=True)
    with open(os.path.join(settings.log_dir, "port"), "w") as file:
        file.write(str(port))
    where = {"host": "localhost", "port": port, "internal_port": 1}
    report({"event": "listening", "broker": settings.node_id, **where})
    report({"event": "acting", "broker": settings.node_id})
    return sock


def _answer(connection: socket.socket, data: str) -> None:
    (size,) = struct.unpack(">i", connection.recv(4))
    connection.recv(size)
    brokers = []
    for name in sorted(os.listdir(data)):
        path = os.path.join(data, name, "port")
        if os.path.exists(path):
            with open(path) as file:
                brokers.append((int(name.removeprefix("broker-")), int(file.read() or 0)))
    body = struct.pack(">ii", 1, len(brokers))
    for broker, port in brokers:
        body += struct.pack(">ih9sih", broker, 9, b"localhost", port, -1)
    body += struct.pack(">ii", CONTROLLER, 0)
    connection.sendall(struct.pack(">i", len(body)) + body)
