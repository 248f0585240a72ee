"""A worker process of a run: its task, its later messages, and its entry point.

The run and a worker exchange lines of JSON. The first line that a worker reads is its task; a later
line requests it to stop. When its input closes, the run has ended and the worker exits at once, so
no worker outlives `verify`. A worker is started as a new process and not forked: librdkafka has
threads, and a fork would copy their locks.
"""

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any, NamedTuple, Protocol

from tidelog.apps.verify.journals import TICKS_A_SECOND
from tidelog.apps.verify.transactions.names import PROCESSOR, READERS, WRITER
from tidelog.shell.client.cluster import Cluster
from tidelog.shell.client.security import read_security

ORPHANED = 3
REPORT_EVERY_S = 0.2
CATCH_UP_S = 60.0
"""How long a reader may take to reach the log ends."""


class Task(NamedTuple):
    """The task of one worker process."""

    role: str
    bootstrap: str
    topic: str
    partitions: int
    tag: str
    """The tag of the run, in hex."""
    folder: str
    """Where the journals are written."""
    began_ns: int
    """When the run began, on the clock that all processes of a machine share."""
    names: Sequence[int]
    """The numbers of the producers, or that of the reader."""
    rate: float = 0.0
    """Records a second, for all producers of the worker together."""
    acks: str = "all"
    idempotence: bool = True
    seed: int = 0
    life: int = 0
    """How often the worker was restarted after it had killed itself."""
    security: Mapping[str, str] = {}
    """The security settings of clients, under Kafka's names. They may contain passwords."""

    def cluster(self, client_id: str, timeout_s: float) -> Cluster:
        """Create a client of the cluster; the caller closes it."""
        return Cluster(self.bootstrap, client_id, timeout_s, read_security(self.security))

    def ticks(self) -> int:
        """The time since the run began."""
        return (time.monotonic_ns() - self.began_ns) // (1_000_000_000 // TICKS_A_SECOND)


class RunLink:
    """A worker's connection to its run: the task, and the later request to stop."""

    def __init__(self) -> None:
        self.task = Task(**json.loads(sys.stdin.readline()))
        self.ends: list[int] = []
        """Set before `stopping`: where a reader may stop, by partition."""
        self._stopping = threading.Event()
        threading.Thread(target=self._listen, daemon=True).start()

    @property
    def stopping(self) -> bool:
        return self._stopping.is_set()

    def _listen(self) -> None:
        for line in sys.stdin:
            self.ends = json.loads(line)["ends"]
            self._stopping.set()
        os._exit(ORPHANED)


def send_report(**report: Any) -> None:
    """Send one line to the run."""
    sys.stdout.write(json.dumps(report) + "\n")
    sys.stdout.flush()


class Reader(Protocol):
    """A consumer of the workload, which journals what it reads."""

    positions: list[int]
    """The next offset to read, by partition."""
    count: int
    """The number of records read."""
    fatal: str
    """The error that stopped the consumer; empty while it works."""

    def poll(self) -> None: ...

    def close(self) -> None: ...


def read_to_the_end(link: RunLink, reader: Reader, counted_as: str) -> None:
    """Read until the run stops, then up to the log ends that it names."""
    reported, deadline = 0.0, float("inf")
    while not reader.fatal and time.monotonic() < deadline:
        reader.poll()
        if link.stopping:
            deadline = min(deadline, time.monotonic() + CATCH_UP_S)
            if all(at >= end for at, end in zip(reader.positions, link.ends, strict=True)):
                break
        if time.monotonic() - reported >= REPORT_EVERY_S:
            reported = time.monotonic()
            send_report(tally={counted_as: reader.count})
    reader.close()
    fatal = [f"consumer: {reader.fatal}"] if reader.fatal else []
    send_report(tally={counted_as: reader.count}, fatal=fatal, done=True)


ROLES = {
    "librdkafka producers": "tidelog.apps.verify.workload.librdkafka_clients:run_producers",
    "own producers": "tidelog.apps.verify.workload.own_producers:run",
    "librdkafka consumer": "tidelog.apps.verify.workload.librdkafka_clients:run_consumer",
    "own reader": "tidelog.apps.verify.workload.raw_reader:run",
    WRITER: "tidelog.apps.verify.transactions.writer:run",
    PROCESSOR: "tidelog.apps.verify.transactions.processor:run",
    READERS: "tidelog.apps.verify.transactions.readers:run",
}
"""The function of each role. Only that module is imported: librdkafka may be missing."""


def main() -> None:
    """Do the task that stdin names. Ignores Ctrl-C: the run handles it and stops its workers."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    link = RunLink()
    module, _, name = ROLES[link.task.role].partition(":")
    getattr(import_module(module), name)(link)
