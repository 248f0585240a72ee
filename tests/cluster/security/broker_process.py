"""Helpers for brokers that tests start by the command line: their JSON logs and their ports."""

import json
import random
import socket
from pathlib import Path
from typing import Any

STOP_S = 120.0
PORTS = 20_000, 32_000
"""Below the ports that systems choose by themselves, for connections and instead of port 0."""


def logged_events(log: Path) -> list[dict[str, Any]]:
    """Return the events of a JSON log; leave out a last line that is not complete yet."""
    complete, _, _ = log.read_text().rpartition("\n")
    return [json.loads(line) for line in complete.splitlines()]


def listening_event(log: Path) -> dict[str, Any] | None:
    """Return the event with the addresses of the broker, once it listens."""
    return next((one for one in logged_events(log) if one.get("event") == "listening"), None)


def free_port() -> int:
    """Return a free port that no other process is likely to take before the broker does."""
    while True:
        port = random.randrange(*PORTS)
        with socket.socket() as sock:
            try:
                sock.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
