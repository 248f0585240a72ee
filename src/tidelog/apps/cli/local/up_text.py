"""Output of `tidelog up`: how to connect to the cluster, and a status line.

Plain text without rich: the supervisor process prints it, and must start fast and stay small.
Invariant: the announcement is printed once on stdout; the status line only on a terminal.
"""

import os
import sys
import time
from typing import TYPE_CHECKING

from tidelog.shell.supervisor import metadata_probe, throwaway_tls, up_file
from tidelog.shell.supervisor.cluster_plan import HOST, ClusterPlan
from tidelog.shell.supervisor.metadata_probe import MetadataView, ProbeFailed
from tidelog.shell.supervisor.up_file import UpFile

if TYPE_CHECKING:
    from tidelog.shell.supervisor.supervisor import Supervisor

REFRESH_S = 1.0
QUIET_S = 3600.0
"""The refresh interval without a terminal: only events wake the supervisor."""
SHARE = 100
"""The status line may use one hundredth of the time, for any number of partitions."""
PROBE_TIMEOUT_S = 0.3
DEFAULT_ADDRESS = f"{HOST}:9092"
"""The first address that commands use without --bootstrap."""
CLEAR = "\r\x1b[K"
DEFAULT_COLUMNS = 80
"""The width of a terminal that reports 0 columns."""


def counted(number: int, what: str) -> str:
    """Return `1 broker` or `2 brokers`."""
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def announcement(
    up: UpFile, took_s: float, *, detached: bool = False, console: str | None = None
) -> str:
    """Return how to use the cluster, as text; `console` is the URL of the web console."""
    first = up.bootstrap.partition(",")[0]
    where = up_file.option(up.data)
    bootstrap = "" if first == DEFAULT_ADDRESS else f" -b {up.bootstrap}"
    kept = "deleted at the end" if up.ephemeral else "kept; delete the folder to start empty"
    lines = kcat = python = ""
    if throwaway_tls.is_made(up.data):
        authority = throwaway_tls.path(up.data, throwaway_tls.AUTHORITY)
        config = f"--command-config {throwaway_tls.path(up.data, throwaway_tls.CLIENT)}"
        if bootstrap or where:
            bootstrap += f" {config}"
        kcat = f" -X security.protocol=ssl -X ssl.ca.location={authority}"
        python = f', "security.protocol": "SSL", "ssl.ca.location": "{authority}"'
        lines = f"  TLS        clients trust {authority}\n             {config}\n"
    return f"""Tidelog is up: {counted(len(up.brokers), "broker")}, ready after {took_s:.2f} s

  bootstrap  {up.bootstrap}
  data       {up.data} ({kept})
  stop       {"" if detached else "Ctrl-C, or: "}tidelog down{where}
  status     tidelog status{where}
  metrics    {_metrics(up)}
{f"  console    {console}" + chr(10) if console else ""}{lines}
Write and read a record:

  echo hello | tidelog produce greetings --create{bootstrap}
  tidelog consume greetings -e{bootstrap}

The same with kcat:

  echo hello | kcat -b {up.bootstrap}{kcat} -t greetings -P
  kcat -b {up.bootstrap}{kcat} -t greetings -C -e

The same in Python (pip install confluent-kafka):

  from confluent_kafka import Producer
  producer = Producer({{"bootstrap.servers": "{up.bootstrap}"{python}}})
  producer.produce("greetings", "hello")
  producer.flush()
"""


def _metrics(up: UpFile) -> str:
    """Return the addresses of the Prometheus pages in one line."""
    first, *more = [broker.metrics for broker in up.brokers if broker.metrics] or ["off"]
    ports = ", ".join(page.rpartition(":")[2].partition("/")[0] for page in more)
    return f"{first}, and on {ports}" if ports else first


def show(
    up: UpFile, took_s: float, form: str, *, detached: bool = False, console: str | None = None
) -> None:
    """Print the announcement, or the same as JSON."""
    if form == "json":
        import json

        data = {"holds": True, **up.as_data(), "ready_after_s": round(took_s, 3)}
        if console is not None:
            data["console"] = console
        sys.stdout.write(json.dumps(data, indent=2) + "\n")
    else:
        sys.stdout.write(announcement(up, took_s, detached=detached, console=console))
    sys.stdout.flush()


def note(text: str) -> None:
    """Print a progress message on stderr, if it is a terminal."""
    if sys.stderr.isatty():
        warn(text)


def warn(text: str) -> None:
    """Print one line on stderr."""
    sys.stderr.write(f"tidelog: {text}\n")
    sys.stderr.flush()


class StatusLine:
    """The last line of a terminal: a summary of the cluster, about once a second."""

    def __init__(self, supervisor: "Supervisor") -> None:
        self._supervisor = supervisor
        self._shown = sys.stdout.isatty() and sys.stderr.isatty()
        self._next = 0.0
        self.pause_s = 0.0 if self._shown else QUIET_S

    def refresh(self) -> None:
        """Redraw the line if it is due."""
        now = time.monotonic()
        if not self._shown or now < self._next:
            return
        text = status(self._supervisor.plan, fetch_metadata(self._supervisor))
        cost = time.monotonic() - now
        self.pause_s = max(REFRESH_S, cost * SHARE)
        self._next = now + self.pause_s
        columns = os.get_terminal_size(sys.stdout.fileno()).columns or DEFAULT_COLUMNS
        sys.stdout.write(CLEAR + text[: columns - 1])
        sys.stdout.flush()

    def say(self, text: str) -> None:
        """Print an event on a line of its own."""
        self.clear()
        warn(text)
        self._next = 0.0

    def clear(self) -> None:
        """Clear the line, before other output."""
        if self._shown:
            sys.stdout.write(CLEAR)
            sys.stdout.flush()


def fetch_metadata(supervisor: "Supervisor") -> MetadataView | None:
    """Return the metadata of the first broker that responds."""
    for where in supervisor.listening().values():
        try:
            return metadata_probe.ask_metadata(
                supervisor.plan.host, where.port, PROBE_TIMEOUT_S, tls=supervisor.tls
            )
        except ProbeFailed:
            continue
    return None


def status(plan: ClusterPlan, view: MetadataView | None) -> str:
    """Return one line about the whole cluster."""
    brokers = len(plan.brokers)
    if view is None:
        return f"{counted(brokers, 'broker')}, no response"
    here = len(view.brokers.keys() & set(plan.brokers))
    others = f" here, {len(view.brokers)} in the cluster" if plan.machine else ""
    partitions = [p for topic in view.topics.values() for p in topic.values()]
    short = sum(1 for p in partitions if len(p.isr) < len(p.replicas))
    offline = sum(1 for p in partitions if p.leader < 0)
    controller = view.controller_id if view.controller_id >= 0 else "none"
    return (
        f"{here} of {brokers} brokers up{others} · controller {controller}"
        f" · {counted(len(view.topics), 'topic')}, {counted(len(partitions), 'partition')}"
        f" · {short} under-replicated" + (f", {offline} offline" if offline else "")
    )
