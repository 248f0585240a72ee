"""`up.json` in the data folder: which processes make up the cluster, and where they listen.

Always true: the file is whole or absent (it is replaced, never rewritten), and it is believed
only while the process that wrote it lives: pid and start time must both fit.
"""

import json
import os
from typing import Any, NamedTuple

from tidelog.shell.supervisor import process_identity

NAME = "up.json"
HERE = "tidelog-data"
"""The folder that commands mean that are told none."""
VERSION = 1

STARTING, UP, DEAD, STOPPED = "starting", "up", "dead", "stopped"
"""The states of a broker in the file. Dead ones were not told to stop."""


class BrokerEntry(NamedTuple):
    """One broker as the file has it. In one process all have the same pid."""

    id: int
    pid: int
    started: str
    host: str
    port: int
    internal_port: int
    log: str
    state: str
    metrics: str | None = None
    """Its page for Prometheus, as a URL."""

    def is_running(self) -> bool:
        """Whether its process lives."""
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
        """What is written, and what `--format json` shows."""
        brokers = [entry._asdict() for entry in self.brokers]
        return {"version": VERSION, **self._asdict(), "brokers": brokers}


def option(data: str) -> str:
    """What to type behind `tidelog down` and the like so that they mean this folder."""
    if data == os.path.abspath(HERE):
        return ""
    from shlex import quote

    return f" --data {quote(data)}"


def path(data: str) -> str:
    """Where the file of this data folder is."""
    return os.path.join(data, NAME)


def read(data: str) -> UpFile | None:
    """The file of this data folder; None if there is none that can be read."""
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
    """The cluster of this folder is down."""
    try:
        os.unlink(path(data))
    except FileNotFoundError:
        return
