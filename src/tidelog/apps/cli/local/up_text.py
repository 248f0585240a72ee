"""What `tidelog up` prints: how to reach the cluster, and a line that follows it.

Plain text and no rich: this is printed by the process that watches over the brokers, which
should start fast and stay small.
Always true: stdout gets the announcement, once; the moving line is only for a terminal.
"""

import os
import sys
import time
from typing import TYPE_CHECKING

from tidelog.shell.supervisor import metadata_probe, up_file
from tidelog.shell.supervisor.cluster_plan import HOST
from tidelog.shell.supervisor.metadata_probe import MetadataView, ProbeFailed
from tidelog.shell.supervisor.up_file import UpFile

if TYPE_CHECKING:
    from tidelog.shell.supervisor.supervisor import Supervisor

REFRESH_S = 1.0
QUIET_S = 3600.0
"""Between looks where nobody watches: only what happens wakes the supervisor."""
SHARE = 100
"""The line may cost one hundredth of the time, however many partitions there are."""
PROBE_TIMEOUT_S = 0.3
FOUND_ANYWHERE = f"{HOST}:9092"
"""The first broker that commands contact if no option names one."""
CLEAR = "\r\x1b[K"
UNTOLD_COLUMNS = 80
"""Of a terminal that does not know its own width, and says 0."""


def counted(number: int, what: str) -> str:
    """1 broker, 2 brokers."""
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def announcement(up: UpFile, took_s: float, *, detached: bool = False) -> str:
    """How to use the cluster, for people."""
    first = up.bootstrap.partition(",")[0]
    where = up_file.option(up.data)
    bootstrap = "" if first == FOUND_ANYWHERE else f" -b {up.bootstrap}"
    kept = "removed at the end" if up.ephemeral else "kept; remove the folder to start afresh"
    return f"""Tidelog is up: {counted(len(up.brokers), "broker")}, ready after {took_s:.2f} s

  bootstrap  {up.bootstrap}
  data       {up.data} ({kept})
  stop       {"" if detached else "Ctrl-C, or: "}tidelog down{where}
  look       tidelog status{where}
  metrics    {_metrics(up)}

A record, there and back:

  echo hello | tidelog produce greetings --create{bootstrap}
  tidelog consume greetings -e{bootstrap}

The same with kcat:

  echo hello | kcat -b {up.bootstrap} -t greetings -P
  kcat -b {up.bootstrap} -t greetings -C -e

The same in Python (pip install confluent-kafka):

  from confluent_kafka import Producer
  producer = Producer({{"bootstrap.servers": "{up.bootstrap}"}})
  producer.produce("greetings", "hello")
  producer.flush()
"""


def _metrics(up: UpFile) -> str:
    """Prometheus' pages, in one line."""
    first, *more = [broker.metrics for broker in up.brokers if broker.metrics] or ["off"]
    ports = ", ".join(page.rpartition(":")[2].partition("/")[0] for page in more)
    return f"{first}, and on {ports}" if ports else first


def show(up: UpFile, took_s: float, form: str, *, detached: bool = False) -> None:
    """The announcement, or the same as a JSON object."""
    if form == "json":
        import json

        data = {"holds": True, **up.as_data(), "ready_after_s": round(took_s, 3)}
        sys.stdout.write(json.dumps(data, indent=2) + "\n")
    else:
        sys.stdout.write(announcement(up, took_s, detached=detached))
    sys.stdout.flush()


def tell(text: str) -> None:
    """A word on what goes on, for those who watch."""
    if sys.stderr.isatty():
        complain(text)


def complain(text: str) -> None:
    """One line on stderr."""
    sys.stderr.write(f"tidelog: {text}\n")
    sys.stderr.flush()


class StatusLine:
    """The last line of a terminal: the cluster, about once a second."""

    def __init__(self, supervisor: "Supervisor") -> None:
        self._supervisor = supervisor
        self._shown = sys.stdout.isatty() and sys.stderr.isatty()
        self._next = 0.0
        self.pause_s = 0.0 if self._shown else QUIET_S

    def refresh(self) -> None:
        """Draw it anew if it is time to."""
        now = time.monotonic()
        if not self._shown or now < self._next:
            return
        text = status(len(self._supervisor.plan.brokers), look(self._supervisor))
        cost = time.monotonic() - now
        self.pause_s = max(REFRESH_S, cost * SHARE)
        self._next = now + self.pause_s
        columns = os.get_terminal_size(sys.stdout.fileno()).columns or UNTOLD_COLUMNS
        sys.stdout.write(CLEAR + text[: columns - 1])
        sys.stdout.flush()

    def say(self, text: str) -> None:
        """Something that happened, on a line of its own."""
        self.clear()
        complain(text)
        self._next = 0.0

    def clear(self) -> None:
        """Before something else is printed."""
        if self._shown:
            sys.stdout.write(CLEAR)
            sys.stdout.flush()


def look(supervisor: "Supervisor") -> MetadataView | None:
    """The cluster as the first broker that answers sees it."""
    for where in supervisor.listening().values():
        try:
            return metadata_probe.ask_metadata(HOST, where.port, PROBE_TIMEOUT_S)
        except ProbeFailed:
            continue
    return None


def status(brokers: int, view: MetadataView | None) -> str:
    """One line on the whole cluster."""
    if view is None:
        return f"{counted(brokers, 'broker')}, none answers"
    partitions = [p for topic in view.topics.values() for p in topic.values()]
    short = sum(1 for p in partitions if len(p.isr) < len(p.replicas))
    offline = sum(1 for p in partitions if p.leader < 0)
    controller = view.controller_id if view.controller_id >= 0 else "none"
    return (
        f"{len(view.brokers)} of {brokers} brokers up · controller {controller}"
        f" · {counted(len(view.topics), 'topic')}, {counted(len(partitions), 'partition')}"
        f" · {short} under-replicated" + (f", {offline} offline" if offline else "")
    )
