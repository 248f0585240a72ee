"""The one throwaway cluster of a console's lessons.

It runs from `start` until `stop`, until another lesson starts its own cluster, until no page has
requested it for a while, or until the console ends.
"""

import threading
import time
from typing import Any

from tidelog.apps.console.actions import NOT_ALLOWED, Actions
from tidelog.apps.console.cluster_pool import ClusterPool
from tidelog.apps.console.collector import Collector, Pace
from tidelog.apps.console.failure import FORBIDDEN, NOT_FOUND, UNAVAILABLE, Failure
from tidelog.apps.console.fetched import Fetched
from tidelog.apps.console.lesson.brokers import LessonBrokers
from tidelog.apps.console.live import Live
from tidelog.apps.console.pages import Pages
from tidelog.apps.console.recorder import NoRecorder
from tidelog.apps.console.serving import Serving

IDLE_S = 180.0
"""How long the brokers run without a page. A browser may delay a hidden page by a minute."""
LOOK_S = 1.0


class _Running:
    """The brokers of a lesson, and what serves their pages."""

    def __init__(self, lesson: int, pace: Pace | None) -> None:
        self.lesson = lesson
        self._brokers = LessonBrokers()
        self._pool = ClusterPool(self._brokers)
        self._collector = Collector(self._brokers, NoRecorder(), self._brokers, pace)
        pages = Pages(self._collector, Fetched(self._pool), NoRecorder())
        live = Live(pages, self._collector)
        actions = Actions(self._pool, self._brokers, self._collector.hurry, allowed=True)
        self.serving = Serving(pages, live, actions)
        self._collector.start()
        live.start()

    def close(self) -> None:
        self.serving.live.close()
        self._brokers.close()
        self._collector.stop()
        self._pool.close()


class LessonCluster:
    """Starts and stops the cluster; all methods may be called by several threads."""

    def __init__(self, *, allowed: bool, pace: Pace | None = None, idle_s: float = IDLE_S) -> None:
        self._allowed = allowed
        self._pace = pace
        self._idle_s = idle_s
        self._lock = threading.Lock()
        """Held while brokers start or stop."""
        self._running: _Running | None = None
        self._starting: int | None = None
        self._asked_at = time.monotonic()
        self._closed = threading.Event()
        self._watching = False

    def state(self) -> dict[str, Any]:
        """Return which lesson's brokers run. Each request of a page keeps them running."""
        self._asked_at = time.monotonic()
        running, starting = self._running, self._starting
        lesson = starting if starting is not None else None if running is None else running.lesson
        condition = "starting" if starting is not None else "none" if running is None else "running"
        return {"allowed": self._allowed, "state": condition, "lesson": lesson}

    def serving(self) -> Serving:
        """Return what serves the pages of the brokers. Raises Failure if none run."""
        self._asked_at = time.monotonic()
        running = self._running
        if running is None:
            raise Failure(NOT_FOUND, "no brokers run for a lesson", "start them in the lesson")
        return running.serving

    def start(self, lesson: int) -> dict[str, Any]:
        """Start new brokers for a lesson, in place of those that run. Raises Failure."""
        if not self._allowed:
            raise Failure(FORBIDDEN, *NOT_ALLOWED)
        with self._lock:
            self._stop()
            if self._closed.is_set():
                raise Failure(UNAVAILABLE, "the console stops", "")
            self._starting = lesson
            try:
                self._running = _Running(lesson, self._pace)
            finally:
                self._starting = None
            if not self._watching:
                self._watching = True
                threading.Thread(target=self._watch, name="lesson-idle", daemon=True).start()
        return self.state()

    def stop(self, lesson: int | None = None) -> dict[str, Any]:
        """Stop the brokers. If a lesson is given, stop them only if they belong to this lesson."""
        with self._lock:
            if lesson is None or (self._running is not None and self._running.lesson == lesson):
                self._stop()
        return self.state()

    def close_streams(self) -> None:
        """End the streams of open pages."""
        running = self._running
        if running is not None:
            running.serving.live.close()

    def close(self) -> None:
        """Stop the brokers for good."""
        self._closed.set()
        self.stop()

    def _stop(self) -> None:
        running, self._running = self._running, None
        if running is not None:
            running.close()

    def _watch(self) -> None:
        """Stop the brokers when no page has requested them for a while."""
        while not self._closed.wait(min(LOOK_S, self._idle_s / 4)):
            with self._lock:
                if self._running is not None and self._running.serving.live.page_count:
                    self._asked_at = time.monotonic()
                elif time.monotonic() - self._asked_at > self._idle_s:
                    self._stop()
