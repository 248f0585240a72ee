"""Samples all groups for the history: a few requests to each broker, in a thread of its own.

Groups change less often than offsets of partitions, and reading them costs a coordinator time. So
the pause is ten seconds, or two while a page is open, and a multiple of the time that the last
sample took. If the cluster has no topic for offsets, no request for groups is sent.
"""

import threading
import time
import traceback
from typing import NamedTuple

from tidelog.apps.console.cluster_pool import ClusterPool
from tidelog.apps.console.collector import Collector
from tidelog.apps.console.failure import Failure
from tidelog.apps.console.recorder import Recorder
from tidelog.apps.views.group_sample import sample_groups
from tidelog.core.coordinator.lookup import OFFSETS_TOPIC
from tidelog.shell.client.client_errors import ClientError


class GroupPace(NamedTuple):
    """How often groups are sampled, in seconds."""

    open_s: float = 2.0
    idle_s: float = 10.0
    share_open: float = 0.1
    """The part of the time that samples may take while pages are open."""
    share_idle: float = 0.01
    longest_s: float = 120.0

    def pause(self, *, pages: bool, cost_s: float) -> float:
        """Return the time from one sample to the next."""
        least, share = (self.open_s, self.share_open) if pages else (self.idle_s, self.share_idle)
        return min(max(least, cost_s / share), self.longest_s)


class GroupSampler:
    """The thread that samples groups, from the start to the end of the console."""

    def __init__(
        self,
        pool: ClusterPool,
        collector: Collector,
        recorder: Recorder,
        pace: GroupPace | None = None,
    ) -> None:
        self._pool = pool
        self._collector = collector
        self._recorder = recorder
        self._pace = pace or GroupPace()
        self._stopping = threading.Event()
        self._reported = False
        self._cost_s = 0.0
        self._thread = threading.Thread(target=self._run, name="console-groups", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread after the request that is in flight."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(self._pace.open_s)

    def _run(self) -> None:
        sampled_s = float("-inf")
        # Whether a page is open is checked more often than groups are sampled: a new page must not
        # wait.
        while not self._stopping.wait(min(self._pace.open_s, self._pace.idle_s)):
            pages = self._collector.has_pages
            pause_s = self._pace.pause(pages=pages, cost_s=self._cost_s)
            if time.monotonic() - sampled_s < pause_s:
                continue
            sampled_s = time.monotonic()
            try:
                self._sample()
            except (ClientError, Failure):
                continue  # the collector reports it
            except Exception:  # noqa: BLE001 - a defect here must not end the console
                if not self._reported:
                    traceback.print_exc()
                self._reported = True

    def _sample(self) -> None:
        update = self._collector.latest()
        if update is None or update.sample is None or self._recorder.span() is None:
            return
        at_ms = time.time_ns() // 1_000_000
        if OFFSETS_TOPIC not in update.sample.metadata.topics:
            self._recorder.record_groups(at_ms, [], complete=True)
            return
        began = time.monotonic()
        with self._pool.borrow() as cluster:
            found, failed = sample_groups(cluster, with_log_ends=not update.sample.is_tidelog)
        self._cost_s = time.monotonic() - began
        self._recorder.record_groups(at_ms, found, complete=not failed)
