"""The history of a run of `tidelog verify`, as events that `tidelog console --history` shows.

One thread for each broker samples its replicas of the run's topic a few times a second. At the end
the faults, the anomalies and the brokers' own events are added. Samples of brokers that are paused
or dead are missing, and the event `replica_unreachable` says so.
"""

import json
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress

from tidelog.apps.verify.checker.findings import MEANINGS, Findings
from tidelog.apps.verify.journals import TICKS_A_SECOND
from tidelog.apps.verify.nemesis.failover import Injected
from tidelog.core.history import HistoryEvent
from tidelog.core.types import BrokerId
from tidelog.lab.broker_history import ReplicaSamples
from tidelog.shell.client import admin
from tidelog.shell.client.client_errors import ClientError
from tidelog.shell.client.cluster import Cluster
from tidelog.shell.client.security import ClientSecurity

EVERY_S = 0.25
TIMEOUT_S = 1.0
STARTED, BEGAN, ENDED, ANOMALY = "verify_started", "fault_began", "fault_ended", "anomaly"
UNREACHABLE = "replica_unreachable"
_FAULT = ("number", "kind", "brokers", "role", "note")
EVENTS = {
    STARTED: (("topic",), "the run starts"),
    BEGAN: (_FAULT, "a fault began; `role` is that of the broker when it was chosen"),
    ENDED: (_FAULT, "the fault is over: links are restored, processes run again"),
    UNREACHABLE: (("topic",), "a broker did not respond to the run's sampler"),
    ANOMALY: (
        ("topic", "kind", "count"),
        "the checks at the end of the run found an anomaly; the text has an example",
    ),
}
"""Events that only this module writes, with their fields and meaning."""


class RunHistory:
    """Collects the events of one run."""

    def __init__(self, topic: str, ticks: Callable[[], int]) -> None:
        """`ticks` returns the time of the run's journals."""
        self._topic = topic
        self._zero_ms = _now_ms() - ticks() * 1000 // TICKS_A_SECOND
        self._lock = threading.Lock()
        self._events: list[HistoryEvent] = []
        self._stopping = threading.Event()
        self._threads: list[threading.Thread] = []
        self._end_ms: int | None = None
        self._add(_now_ms(), None, STARTED, {"topic": topic}, "verify: the run starts")

    def start(
        self,
        bootstrap: str,
        brokers: Iterable[BrokerId],
        security: ClientSecurity | None = None,
    ) -> None:
        """Start sampling these brokers."""
        for broker in brokers:
            thread = threading.Thread(
                target=self._sample,
                args=(bootstrap, broker, security),
                name=f"verify-sampler-{broker}",
            )
            thread.daemon = True
            self._threads.append(thread)
            thread.start()

    def stop(self) -> None:
        """Stop sampling. Events that brokers log from now on belong to the end of the run, and are
        left out."""
        if self._end_ms is None:
            self._end_ms = _now_ms()
        self._stopping.set()
        for thread in self._threads:
            thread.join(4 * TIMEOUT_S)

    def _sample(self, bootstrap: str, broker: BrokerId, security: ClientSecurity | None) -> None:
        samples, responds = ReplicaSamples(), True
        with Cluster(bootstrap, "verify-sampler", TIMEOUT_S, security) as cluster:
            while not self._stopping.wait(EVERY_S):
                try:
                    if broker not in cluster.metadata.brokers:
                        cluster.refresh()
                    state = admin.describe_state(cluster, broker, self._topic)
                except (ClientError, OSError):
                    if responds:
                        text = f"verify: broker {broker} did not respond"
                        self._add(_now_ms(), broker, UNREACHABLE, {"topic": self._topic}, text)
                    responds = False
                    with suppress(ClientError, OSError):
                        cluster.refresh()
                    continue
                if state is None:
                    return  # a Kafka broker reports no state
                if not responds:
                    samples, responds = ReplicaSamples(), True  # all replicas again
                found = list(samples.changed(broker, _now_ms(), state["partitions"]))
                with self._lock:
                    self._events += found

    def add_faults(self, faults: Sequence[Injected]) -> None:
        """Add the start and the end of each fault."""
        for number, fault in enumerate(faults, 1):
            who = " and ".join(map(str, fault.brokers))
            fields = {
                "number": number,
                "kind": fault.kind,
                "brokers": list(fault.brokers),
                "role": fault.role,
                "note": fault.note,
            }
            text = f"verify: fault {number}, {fault.kind} of broker {who} ({fault.role})"
            self._add(self._at_ms(fault.begin), None, BEGAN, fields, f"{text}, began", "WARN")
            self._add(self._at_ms(fault.end), None, ENDED, fields, f"{text}, ended")

    def add_findings(self, findings: Findings) -> None:
        """Add the anomalies, at the end of the history."""
        for kind, count in findings.counts.items():
            example = "; ".join(findings.examples.get(kind, ())[:1])
            text = f"verify: {kind} ({MEANINGS[kind]}): {count}; {example}"
            fields = {"topic": self._topic, "kind": kind, "count": count}
            self._add(_now_ms(), None, ANOMALY, fields, text, "ERROR")

    def add_log(self, path: str) -> None:
        """Add the events of a broker's JSON log up to `stop`; skip lines that are not events, and
        events of other topics."""
        end_ms = _now_ms() if self._end_ms is None else self._end_ms
        with open(path, encoding="utf-8", errors="replace") as log:
            for line in log:
                with suppress(ValueError, KeyError, AttributeError, TypeError):
                    event = HistoryEvent.from_data(json.loads(line))
                    if event.at_ms <= end_ms and event.fields.get("topic") in (None, self._topic):
                        self._events.append(event)

    def write(self, path: str) -> None:
        """Write the file, in the order of time. Raises OSError."""
        with open(path, "w", encoding="utf-8") as file:
            for event in sorted(self._events, key=lambda each: each.at_ms):
                file.write(json.dumps(event.as_data(), default=str) + "\n")

    def _at_ms(self, ticks: int) -> int:
        return self._zero_ms + ticks * 1000 // TICKS_A_SECOND

    def _add(
        self,
        at_ms: int,
        broker: BrokerId | None,
        event: str,
        fields: dict[str, object],
        text: str,
        level: str = "INFO",
    ) -> None:
        with self._lock:
            self._events.append(HistoryEvent(at_ms, broker, event, fields, level, text))


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
