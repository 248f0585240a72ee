"""The collector: one thread that fetches the state of all brokers, once for all pages.

How often (see docs/adr/0048-console.md): twice a second while a page is open, else every 5 s, or
every 10 s in a cluster with more than 1,000 partitions. A state of thousands of partitions costs a
broker tens of milliseconds, so the pause is also a multiple of the time that the broker took; then
a page of one partition is kept live by requests for that partition alone.
Invariant: metadata is never older than the states, except for a Kafka cluster: it is requested
again after the revision of any broker's metadata changed.
"""

import threading
import time
import traceback
from collections import Counter, deque
from collections.abc import Callable
from typing import NamedTuple

from tidelog.apps.console.broker_poller import BrokerPollers
from tidelog.apps.console.failure import DEFECT, UNAVAILABLE, Failure, of_client
from tidelog.apps.console.local_control import BrokerControl
from tidelog.apps.console.recorder import Recorder
from tidelog.apps.console.sample import RATE_SPAN_MS, Sample, Seen, Totals
from tidelog.apps.console.target import Target
from tidelog.apps.views.broker import NOT_IN_CLUSTER, BrokerStates, broker_ids
from tidelog.core.types import BrokerId, TopicPartition
from tidelog.shell.client.admin import RegisteredBroker, registered_brokers
from tidelog.shell.client.client_errors import ClientError
from tidelog.shell.client.cluster import Cluster
from tidelog.shell.client.cluster_metadata import ClusterMetadata

TIMEOUT_S = 2.0
FRESH_S = 1.0
"""The age up to which a sample answers a single request."""
WAIT_S = 6.0
"""How long a request waits for a sample."""
METADATA_OPEN_S, METADATA_IDLE_S = 10.0, 60.0
MIN_GAP_S = 0.1
"""The shortest time between two full samples, also when a request waits for one."""


class Pace(NamedTuple):
    """How often the collector fetches, in seconds."""

    open_s: float = 0.5
    idle_s: float = 5.0
    idle_large_s: float = 10.0
    large: int = 1000
    """From this number of partitions on, a cluster counts as large."""
    share_open: float = 0.1
    """The part of a broker's time that a full state may take while pages are open."""
    share_idle: float = 0.005
    longest_open_s: float = 5.0
    longest_idle_s: float = 30.0
    """Bounds the pause on a busy machine, where the broker's response time is long."""

    def pause(self, *, pages: bool, partitions: int, cost_s: float) -> float:
        """Return the time from one full sample to the next."""
        if pages:
            return min(max(self.open_s, cost_s / self.share_open), self.longest_open_s)
        idle_s = self.idle_large_s if partitions > self.large else self.idle_s
        return min(max(idle_s, cost_s / self.share_idle), self.longest_idle_s)


class Update(NamedTuple):
    """What the collector found: a sample or a failure."""

    sample: Sample | None
    failure: Failure | None
    only: frozenset[TopicPartition] | None = None
    """The partitions whose states are new; None: all."""


class Collector:
    """Owns the connection to the cluster, and calls `publish` in its thread for each update."""

    def __init__(
        self,
        target: Target,
        recorder: Recorder,
        control: BrokerControl | None = None,
        pace: Pace | None = None,
    ) -> None:
        self.publish: Callable[[Update], None] = lambda _: None
        self._target = target
        self._recorder = recorder
        self._control = control
        self._pace = pace or Pace()
        self._cluster: Cluster | None = None
        self._bootstrap = ""
        self._pollers = BrokerPollers()
        self._metadata: ClusterMetadata | None = None
        self._metadata_at = 0.0
        self._registered: dict[BrokerId, RegisteredBroker] = {}
        self._seen: tuple[int, frozenset[BrokerId]] | None = None
        self._totals: deque[Totals] = deque()
        self._last_seen: dict[BrokerId, Seen] = {}
        """The last states of brokers that do not respond now."""
        self._cost_s = 0.0
        self._record_failed = False
        """Whether a failure of the recorder was printed."""
        # Shared with the threads of requests, under the condition.
        self._changed = threading.Condition()
        self._last: Update | None = None
        self._last_at = float("-inf")
        """When the last sample began."""
        self._acted_at = float("-inf")
        self._pages = 0
        self._focus: Counter[TopicPartition] = Counter()
        self._wanted = False
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="console-collector", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread and close all connections."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        self._thread.join(WAIT_S)

    # -- called by other threads ---------------------------------------------------------------

    def page_opened(self, focus: TopicPartition | None = None) -> None:
        """Sample at the pace of open pages, and this partition always at that pace."""
        with self._changed:
            self._pages += 1
            if focus is not None:
                self._focus[focus] += 1
            self._wanted = True
            self._changed.notify_all()

    def page_closed(self, focus: TopicPartition | None = None) -> None:
        """Undo one `page_opened`."""
        with self._changed:
            self._pages -= 1
            if focus is not None:
                self._focus[focus] -= 1
                self._focus += Counter()  # drops counts of zero

    @property
    def has_pages(self) -> bool:
        """Whether a page is open."""
        with self._changed:
            return self._pages > 0

    def hurry(self) -> None:
        """Take the next sample at once, after an action: earlier ones no longer count as fresh."""
        with self._changed:
            self._acted_at = time.monotonic()
            self._wanted = True
            self._changed.notify_all()

    def latest(self) -> Update | None:
        """Return the last update, however old."""
        with self._changed:
            return self._last

    def fresh(self) -> Sample:
        """Return a sample that is at most about a second old. Raises Failure."""
        until = time.monotonic() + WAIT_S
        with self._changed:
            allowed_s = max(FRESH_S, self._cost_s / self._pace.share_open)
            oldest = max(time.monotonic() - allowed_s, self._acted_at)
            while self._last is None or self._last_at < oldest:
                left = until - time.monotonic()
                if left <= 0 or self._stopping:
                    raise Failure(
                        UNAVAILABLE, f"no response from the cluster within {WAIT_S:g} s", ""
                    )
                self._wanted = True
                self._changed.notify_all()
                self._changed.wait(left)
            found = self._last
        if found.sample is None:
            assert found.failure is not None
            raise found.failure
        return found.sample

    # -- the thread ----------------------------------------------------------------------------

    def _run(self) -> None:
        full_at = began = time.monotonic()
        while (due := self._await_turn(began, full_at)) is not None:
            full_at, began = due, time.monotonic()
            with self._changed:
                pages, focus = self._pages > 0, frozenset(self._focus)
                if began >= full_at:
                    self._wanted = False
            try:
                if began >= full_at or not focus:
                    update = self._full_update()
                    full_at = began + self._pause(pages, update)
                else:
                    update = self._focused_update(focus)
                self._set(update, began)
            except Exception as error:  # noqa: BLE001 - a defect must not end all live pages
                traceback.print_exc()
                what = f"defect of the console: {type(error).__name__}"
                self._set(Update(None, Failure(DEFECT, what, "see its standard error")), began)
                full_at = began + self._pace.idle_s
        self._pollers.close()
        if self._cluster is not None:
            self._cluster.close()

    def _await_turn(self, began: float, full_at: float) -> float | None:
        """Wait until a sample is due; return the time of the next full one, or None to stop."""
        with self._changed:
            while not self._stopping:
                if self._wanted:
                    full_at = min(full_at, began + MIN_GAP_S)
                due = full_at
                if self._focus:
                    due = min(due, began + self._pace.open_s)
                left = due - time.monotonic()
                if left <= 0:
                    return full_at
                self._changed.wait(left)
        return None

    def _pause(self, pages: bool, update: Update) -> float:
        if update.sample is None:
            return self._pace.open_s if pages else min(self._pace.idle_s, 2.0)
        partitions = sum(len(each.partitions) for each in update.sample.metadata.topics.values())
        return self._pace.pause(pages=pages, partitions=partitions, cost_s=self._cost_s)

    def _set(self, update: Update, began: float) -> None:
        with self._changed:
            self._last, self._last_at = update, began
            self._changed.notify_all()
        self.publish(update)

    def _full_update(self) -> Update:
        try:
            sample = self._fetch()
        except Failure as failure:
            self._metadata = None
            return Update(None, failure)
        except ClientError as error:
            self._metadata = None
            return Update(None, of_client(error))
        self._record(sample)
        return Update(sample, None)

    def _focused_update(self, focus: frozenset[TopicPartition]) -> Update:
        last = self._last
        if last is None or last.sample is None:
            return self._full_update()
        sample = last.sample
        for key in focus:
            answers, _ = self._pollers.fetch(*key)
            seen = self._revision(answers)
            if self._seen is not None and seen > self._seen[0]:
                return self._full_update()
            sample = sample.with_partitions(_now_ms(), [key], answers)
        self._record(sample)
        return Update(sample, None, focus)

    def _record(self, sample: Sample) -> None:
        """Keep the sample. A full disk must not hide the cluster's state."""
        try:
            self._recorder.record(sample.at_ms, sample.answers.states, sample.metadata)
        except Exception:  # noqa: BLE001 - whatever a store raises
            if not self._record_failed:
                traceback.print_exc()
            self._record_failed = True

    def _fetch(self) -> Sample:
        bootstrap = self._target.bootstrap()
        if self._cluster is None or bootstrap != self._bootstrap:
            if self._cluster is not None:
                self._cluster.close()
            self._cluster, self._bootstrap = (
                Cluster(bootstrap, "tidelog-console", TIMEOUT_S, security=self._target.security()),
                bootstrap,
            )
            self._metadata = None
        if self._metadata is None:
            self._refresh(self._cluster)
        assert self._metadata is not None
        answers, cost_s = self._pollers.fetch()
        at_ms = _now_ms()
        seen = (self._revision(answers), frozenset(answers.unreachable))
        old_s = time.monotonic() - self._metadata_at
        kept_s = METADATA_OPEN_S if self._pages else METADATA_IDLE_S
        if not answers.states or seen != self._seen or old_s > kept_s:
            self._refresh(self._cluster)
            self._seen = seen
        for broker in broker_ids(self._metadata, self._registered):
            if broker not in self._metadata.brokers and broker not in self._registered:
                answers.unreachable.setdefault(broker, NOT_IN_CLUSTER)
        self._cost_s = cost_s
        self._note_seen(answers)
        sample = Sample(
            at_ms,
            self._metadata,
            self._registered,
            answers,
            self._target.processes(),
            self._control.isolated() if self._control is not None else None,
            self._totals[0] if self._totals else None,
            self._last_seen,
            is_tidelog=bool(answers.states) or not self._pollers.found_kafka,
        )
        self._keep(sample.totals)
        return sample

    def _refresh(self, cluster: Cluster) -> None:
        self._metadata = cluster.refresh()
        self._registered = registered_brokers(cluster)
        self._metadata_at = time.monotonic()
        addresses = {each.id: (each.host, each.port) for each in self._registered.values()}
        addresses.update(
            {each.id: (each.host, each.port) for each in self._metadata.brokers.values()}
        )
        self._pollers.set_addresses(addresses, self._target.security())

    def _revision(self, answers: BrokerStates) -> int:
        return max((int(state["revision"]) for state in answers.states.values()), default=-1)

    def _note_seen(self, answers: BrokerStates) -> None:
        """Keep the last state of each broker that no longer responds, and only of these."""
        last = None if self._last is None else self._last.sample
        before = dict(self._last_seen)
        if last is not None:
            before |= last.seen
            before |= {each: Seen(last.at_ms, one) for each, one in last.answers.states.items()}
        self._last_seen = {
            broker: seen for broker, seen in before.items() if broker in answers.unreachable
        }

    def _keep(self, totals: Totals) -> None:
        """Keep the totals of the last seconds, and at least the newest one."""
        self._totals.append(totals)
        while len(self._totals) > 1 and self._totals[1].at_ms <= totals.at_ms - RATE_SPAN_MS:
            self._totals.popleft()


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
