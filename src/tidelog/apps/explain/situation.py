"""The known state of one partition at one moment, and helpers to write sentences about it."""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from tidelog.apps.views.broker import State
from tidelog.apps.views.partition import PartitionView, ReplicaView
from tidelog.core.types import BrokerId, Offset

OK, INFO, WARN, BAD = "ok", "info", "warn", "bad"
MILLIS_MAX = 2_000
"""Up to this, a time is printed in milliseconds."""
SECONDS_MAX = 120_000
MINUTES_MAX = 7_200_000


class Explanation(NamedTuple):
    """One statement about a partition."""

    topic: str
    """`high-watermark`, `isr`, `leader`, `reassignment`, `lso`, `election`, `loss` or `damage`."""
    severity: str
    """`ok`, `info`, `warn` or `bad`."""
    text: str
    """One or two sentences."""
    detail: str = ""
    """Numbers, or what to do; may be empty."""

    def as_data(self) -> dict[str, Any]:
        return self._asdict()


class PendingIsr(NamedTuple):
    """An ISR change that the leader has proposed and the controller has not decided."""

    kind: str
    """`expand` or `shrink`."""
    brokers: list[BrokerId]

    def as_data(self) -> dict[str, Any]:
        """Convert; `broker` is the first of `brokers`, for pages that show one."""
        return {"kind": self.kind, "broker": self.brokers[0], "brokers": self.brokers}


class Situation(NamedTuple):
    """A view of a partition, and the other data that explanations need."""

    view: PartitionView
    alive: frozenset[BrokerId]
    """Brokers that the cluster lists: registered and not fenced."""
    leader: State | None = None
    """The leader's replica, as its broker described it (core/node/description.py)."""
    now_ms: Mapping[BrokerId, int] = {}
    """The monotonic clock of each broker that responded."""
    kafka: bool = False
    """The brokers report only what Kafka's protocol has."""

    @property
    def followers(self) -> list[State]:
        """The leader's state of each follower.

        A history without it gives the followers' own log ends instead, which are the newest that
        the leader may know.
        """
        known = list((self.leader or {}).get("followers") or ())
        if known or self.leader is None:
            return known
        return [
            {"broker": row.broker, "log_end_offset": row.log_end_offset}
            for row in self.view.replicas
            if row.broker != self.view.leader and row.log_end_offset is not None
        ]

    @property
    def maximal_isr(self) -> list[BrokerId]:
        """The replicas that the HW waits for: the ISR and a replica that is about to join."""
        return list((self.leader or {}).get("maximal_isr") or self.view.isr)

    @property
    def pending(self) -> PendingIsr | None:
        """The leader's pending change of the ISR."""
        leader = self.leader or {}
        if found := leader.get("pending_isr"):
            return PendingIsr(found["kind"], list(found["brokers"]))
        joining = sorted(set(leader.get("maximal_isr") or ()) - set(self.view.isr))
        return PendingIsr("expand", joining) if joining else None

    @property
    def under_min_isr(self) -> bool:
        """Whether too few replicas are in sync to commit records."""
        return self.view.min_isr is not None and len(self.view.isr) < self.view.min_isr

    def replica(self, broker: BrokerId | None) -> ReplicaView | None:
        return next((each for each in self.view.replicas if each.broker == broker), None)

    def ms_ago(self, at_ms: int | None, broker: BrokerId | None = None) -> int | None:
        """Return how long ago a time of a broker's clock is; by default of the leader's."""
        now_ms = self.now_ms.get(self.view.leader if broker is None else broker)  # type: ignore[arg-type]
        return None if at_ms is None or now_ms is None else max(0, now_ms - at_ms)


def duration(ms: int) -> str:
    """Format a duration: `340 ms`, `12.5 s`, `5 min`, `3 h`."""
    if ms < MILLIS_MAX:
        return f"{ms} ms"
    if ms < SECONDS_MAX:
        return f"{ms / 1000:.1f} s"
    if ms < MINUTES_MAX:
        return f"{ms // 60_000} min"
    return f"{ms // 3_600_000} h"


def count(number: int, what: str) -> str:
    """Format `1 record` or `2 records`."""
    return f"{number:,} {what}" if number == 1 else f"{number:,} {what}s"


def named(brokers: Iterable[BrokerId]) -> str:
    """Format `broker 1`, `brokers 1 and 2`, `brokers 1, 2 and 3`, or `no broker`."""
    ids = [str(broker) for broker in brokers]
    if not ids:
        return "no broker"
    if len(ids) == 1:
        return f"broker {ids[0]}"
    return f"brokers {', '.join(ids[:-1])} and {ids[-1]}"


def offsets(start: Offset, end: Offset) -> str:
    """Format the offsets from `start` up to and without `end`."""
    return f"offset {start}" if end == start + 1 else f"offsets {start} to {end - 1}"
