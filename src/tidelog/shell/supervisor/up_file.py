"""`up.json` in the data folder: the processes of the cluster and their addresses.

Invariants: the file is complete or absent (it is replaced atomically), and it counts only while
the process that wrote it lives: pid and start time must both match.
"""

import json
import os
from typing import Any, NamedTuple

from tidelog.shell.supervisor import process_identity

NAME = "up.json"
HERE = "tidelog-data"
"""The default of `--data`."""
VERSION = 1

STARTING, UP, NO_STORE, DEAD, STOPPED = "starting", "up", "no store", "dead", "stopped"
"""The states of a broker. `no store`: it serves, but the metadata store does not respond. A dead
broker ended without being stopped."""


class BrokerEntry(NamedTuple):
    """One broker in the file. Brokers of one process have the same pid."""

    id: int
    pid: int
    started: str
    host: str
    port: int
    internal_port: int
    log: str
    state: str
    metrics: str | None = None
    """The URL of the broker's metrics."""

    def is_running(self) -> bool:
        """Whether the broker's process runs."""
        return process_identity.is_running(self.pid, self.started)


class UpFile(NamedTuple):
    """The whole file."""

    pid: int
    started: str
    bootstrap: str
    data: str
    ephemeral: bool
    one_process: bool
    supervise: bool
    brokers: list[BrokerEntry]

    def alive(self) -> bool:
        """Whether the supervisor that wrote this still runs."""
        return process_identity.is_running(self.pid, self.started)

    def as_data(self) -> dict[str, Any]:
        """The contents of the file, and of `--format json`."""
        brokers = [entry._asdict() for entry in self.brokers]
        return {"version": VERSION, **self._asdict(), "brokers": brokers}


def option(data: str) -> str:
    """The `--data` option for this folder in a suggested command; empty for the default."""
    if data == os.path.abspath(HERE):
        return ""
    from shlex import quote

    return f" --data {quote(data)}"


def path(data: str) -> str:
    """The path of the file in this data folder."""
    return os.path.join(data, NAME)


def read(data: str) -> UpFile | None:
    """Read the file of this data folder; None if it is missing or unreadable."""
    try:
        with open(path(data), encoding="utf-8") as file:
            found = json.load(file)
        if found.pop("version") != VERSION:
            return None
        brokers = [BrokerEntry(**entry) for entry in found.pop("brokers")]
        return UpFile(**found, brokers=brokers)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def write(up: UpFile) -> None:
    """Replace the file of `up.data`."""
    target = path(up.data)
    draft = f"{target}.{os.getpid()}.tmp"
    with open(draft, "w", encoding="utf-8") as file:
        json.dump(up.as_data(), file, indent=1)
    os.replace(draft, target)


def remove(data: str) -> None:
    """Remove the file: the cluster has stopped."""
    try:
        os.unlink(path(data))
    except FileNotFoundError:
        return
