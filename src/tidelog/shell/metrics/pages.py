"""The pages of the metrics endpoint: /metrics, /healthz, and an index at /."""

import os
import resource
import time
from collections.abc import Callable, Iterator

from tidelog.core.metrics.exposition import CONTENT_TYPE, slices
from tidelog.core.metrics.families import FAMILIES
from tidelog.core.metrics.scrape import HostMetrics, Scrape
from tidelog.core.node.measuring.request_times import RequestTimes
from tidelog.core.node.node import Node
from tidelog.shell.metrics.http_connection import Page

_TEXT = "text/plain; charset=utf-8"
OK, UNAVAILABLE = "200 OK", "503 Service Unavailable"


class MetricsPages:
    """The pages of one broker."""

    def __init__(
        self,
        node: Node,
        times: RequestTimes,
        now_ms: Callable[[], int],
        connections: Callable[[], dict[str, int]],
        ended: Callable[[], dict[str, int]],
        info: dict[str, str],
    ) -> None:
        self._node = node
        self._times = times
        self._now_ms = now_ms
        self._connections = connections
        self._ended = ended
        self._info = info

    def __call__(self, path: str) -> Page | None:
        if path == "/metrics":
            return Page(OK, CONTENT_TYPE, self._metrics())
        if path == "/healthz":
            return self._health()
        if path == "/":
            return Page(OK, _TEXT, iter([self._index()]))
        return None

    def _metrics(self) -> Iterator[str]:
        host = HostMetrics(process_facts(), self._connections(), self._ended(), self._info)
        return slices(FAMILIES, Scrape(self._node, self._times, host, self._now_ms()))

    def _health(self) -> Page:
        """200 while the broker is part of the cluster, else 503.

        Also 200 while it serves without the metadata store: a service manager that restarted it
        then would stop its partitions, because it can't register again.
        """
        if self._node.acting:
            return Page(OK, _TEXT, iter(["ok\n"]))
        if self._node.detached:
            return Page(OK, _TEXT, iter(["serving without the metadata store\n"]))
        return Page(UNAVAILABLE, _TEXT, iter(["not part of the cluster\n"]))

    def _index(self) -> str:
        who = f"Tidelog, broker {self._info['broker']}"
        what = "/metrics  for Prometheus\n/healthz  200 while the broker is part of the cluster\n"
        return f"{who} of cluster {self._info['cluster_id']}\n\n{what}"


def process_facts() -> dict[str, float]:
    """Metrics of this process under Prometheus' usual names, without those that are unknown.

    From /proc where it exists, else from `resource`.
    """
    times = os.times()
    facts: dict[str, float] = {"process_cpu_seconds_total": times.user + times.system}
    soft, _hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY:
        facts["process_max_fds"] = soft
    try:
        facts["process_open_fds"] = len(os.listdir("/proc/self/fd"))
        with open("/proc/self/stat", encoding="ascii", errors="replace") as file:
            # The program's name may contain anything, so count the fields after it.
            fields = file.read().rpartition(")")[2].split()
        facts["process_virtual_memory_bytes"] = int(fields[20])
        facts["process_resident_memory_bytes"] = int(fields[21]) * os.sysconf("SC_PAGE_SIZE")
        ticks = int(fields[19]) / os.sysconf("SC_CLK_TCK")
        facts["process_start_time_seconds"] = _boot_time_s() + ticks
    except (OSError, ValueError, IndexError):
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        facts.setdefault("process_resident_memory_bytes", peak)
    return facts


def _boot_time_s() -> float:
    clock = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
    return time.time() - time.clock_gettime(clock)
