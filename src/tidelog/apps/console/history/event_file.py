"""A file of history events as the console's history: a simulator's seed, a story, a demo's run.

Events with samples of replicas (`replica_sampled`) give each replica's log end, HW and epochs; the
other events give leaders, ISR changes, truncations, and which brokers run. Everything else is
unknown: `missing` lists it. Invariant: a moment depends only on the events up to it.
"""

import json
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tidelog.apps.console.history.marks import MARKS_MAX, as_row, marks_of
from tidelog.apps.console.recorder import HistorySpan
from tidelog.apps.console.sample import Seen
from tidelog.apps.views.broker import State
from tidelog.apps.views.group_sample import GroupSample
from tidelog.core.history import HistoryEvent
from tidelog.core.storage.layout import format_topic_id
from tidelog.core.types import BrokerId, TopicPartition
from tidelog.shell.client.cluster_metadata import (
    NO_LEADER,
    NO_TOPIC_ID,
    BrokerAddress,
    ClusterMetadata,
    PartitionMetadata,
    TopicMetadata,
)

SAMPLED = "replica_sampled"
_DOWN = ("stopped", "crashed", "failed", "broker_killed")
_SILENT = "replica_unreachable"
KEYFRAME = 500
"""The number of events between two keyframes. A moment is computed from the last keyframe before
it."""
_REPLICA: dict[str, Any] = {
    "role": "follower",
    "leader": None,
    "leader_epoch": -1,
    "partition_epoch": None,
    "log_start_offset": None,
    "log_end_offset": None,
    "high_watermark": None,
    "last_stable_offset": None,
    "recovery_point": None,
    "epochs": [],
    "damage": None,
    "refused": None,
    "size": None,
    "segments": None,
    "isr": [],
    "maximal_isr": None,
    "pending_isr": None,
    "elr": [],
    "lost": [],
    "min_isr": None,
    "adding": [],
    "removing": [],
    "unclean_election": None,
    "unstable": None,
    "followers": [],
}
_FOLLOWER = {
    "log_start_offset": None,
    "last_caught_up_ms": None,
    "lag_ms": None,
    "last_fetch_ms": None,
    "out_since_ms": None,
    "why": None,
}


class CannotRead(Exception):
    """The file is not a history. Its text is one line."""


class _Cluster:
    """The state of the cluster after some events; values are replaced, never changed."""

    def __init__(self) -> None:
        self.running: dict[BrokerId, bool] = {}
        self.silent: frozenset[BrokerId] = frozenset()
        self.replicas: dict[tuple[BrokerId, str, int], dict[str, Any]] = {}
        self.elected: dict[TopicPartition, dict[str, Any]] = {}
        """Leader, epoch and ISR by the events of the controller and of leaders."""
        self.losses: dict[BrokerId, list[dict[str, Any]]] = {}
        self.controller: BrokerId = NO_LEADER

    def copy(self) -> "_Cluster":
        found = _Cluster()
        found.running, found.silent = dict(self.running), self.silent
        found.replicas, found.elected = dict(self.replicas), dict(self.elected)
        found.losses, found.controller = dict(self.losses), self.controller
        return found

    def apply(self, event: HistoryEvent) -> None:
        """Apply one event. An event of an unknown kind changes nothing."""
        broker, fields, key = event.broker, event.fields, event.partition
        if broker is not None:
            self.running[broker] = event.event not in _DOWN
            if event.event == _SILENT:
                self.silent |= {broker}
            else:
                self.silent -= {broker}
        if event.event == "broker_gone":
            self.running[int(fields["other"])] = False
        elif event.event in ("broker_alive", "broker_responds"):
            self.running[int(fields["other"])] = True
        elif event.event == "controller_changed":
            self.controller = int(fields["controller"])
        elif event.event == "controller_gained" and broker is not None:
            self.controller = broker
        if key is not None:
            self._apply_to_partition(event, key)

    def _apply_to_partition(self, event: HistoryEvent, key: TopicPartition) -> None:
        broker, fields = event.broker, event.fields
        if event.event == SAMPLED and broker is not None:
            self._set(broker, key, **_from_sample(fields))
            if fields["leader"] is not None:
                seen = {name: fields[name] for name in ("leader", "leader_epoch", "isr")}
                self._elect(key, seen)
        elif event.event == "leadership_gained" and broker is not None:
            epoch, isr = fields["leader_epoch"], list(fields["isr"])
            self._set(broker, key, role="leader", leader=broker, leader_epoch=epoch, isr=isr)
            self._elect(key, {"leader": broker, "leader_epoch": epoch, "isr": isr})
        elif event.event == "leadership_lost" and broker is not None:
            more = {name: fields[name] for name in ("leader", "leader_epoch")}
            self._set(broker, key, role="follower", followers=[], maximal_isr=None, **more)
        elif event.event in ("leader_elected", "unclean_election"):
            isr = list(fields.get("isr", [fields["leader"]]))
            found = {name: fields[name] for name in ("leader", "leader_epoch")}
            self._elect(key, {**found, "isr": isr})
        elif event.event == "leader_lost":
            epoch = int(fields["leader_epoch"])
            self._elect(key, {"leader": None, "leader_epoch": epoch, "isr": list(fields["isr"])})
        elif event.event in ("isr_shrunk", "isr_expanded"):
            isr = list(fields["isr"])
            if broker is not None:
                self._set(broker, key, isr=isr)
            known = self.elected.get(key)
            if known is not None and known["leader_epoch"] == fields["leader_epoch"]:
                self.elected[key] = {**known, "isr": isr}
        elif event.event in ("truncated", "records_lost") and broker is not None:
            self._truncated(broker, key, event)
        elif event.event == "log_damaged" and broker is not None:
            damage = {"offset": fields["offset"], "reason": fields["reason"]}
            self._set(broker, key, damage=damage)

    def _truncated(self, broker: BrokerId, key: TopicPartition, event: HistoryEvent) -> None:
        fields = event.fields
        last = self.replicas.get((broker, *key), _REPLICA)
        self._set(broker, key, log_end_offset=fields["start"])
        loss = {
            **key._asdict(),
            "leader_epoch": fields["leader_epoch"],
            "start": fields["start"],
            "end": fields["end"],
            "high_watermark": last["high_watermark"],
            "committed": fields.get("lost", 0),
            "restarted_at": None,
            "now_ms": event.at_ms,
        }
        self.losses[broker] = [*self.losses.get(broker, ()), loss][-1000:]

    def _set(self, broker: BrokerId, key: TopicPartition, **values: Any) -> None:
        name = (broker, *key)
        self.replicas[name] = {**self.replicas.get(name, _REPLICA), **values}

    def _elect(self, key: TopicPartition, found: dict[str, Any]) -> None:
        known = self.elected.get(key)
        if known is None or found["leader_epoch"] >= known["leader_epoch"]:
            self.elected[key] = found

    # -- as the console's pages need it --------------------------------------------------------

    def states(self, at_ms: int) -> dict[BrokerId, dict[str, Any]]:
        found: dict[BrokerId, dict[str, Any]] = {}
        for broker, runs in sorted(self.running.items()):
            if runs and broker not in self.silent:
                losses = self.losses.get(broker, [])
                found[broker] = {
                    "broker_id": broker,
                    "broker_epoch": None,
                    "acting": None,
                    "controller": None if self.controller == NO_LEADER else self.controller,
                    "is_controller": broker == self.controller,
                    "now_ms": at_ms,
                    "losses": {"count": len(losses), "recent": losses},
                    "partitions": [],
                }
        for (broker, topic, number), replica in sorted(self.replicas.items()):
            if broker in found:
                state = {
                    "topic": topic,
                    "partition": number,
                    "topic_id": format_topic_id(NO_TOPIC_ID),
                    **replica,
                }
                found[broker]["partitions"].append(state)
        return found

    def metadata(self, name: str) -> ClusterMetadata:
        hosts: dict[TopicPartition, list[BrokerId]] = {}
        named: dict[TopicPartition, list[BrokerId]] = {}
        for (broker, topic, number), replica in sorted(self.replicas.items()):
            key = TopicPartition(topic, number)
            hosts.setdefault(key, []).append(broker)
            if replica.get("replicas"):
                named[key] = list(replica["replicas"])
        topics: dict[str, TopicMetadata] = {}
        for key in sorted(hosts.keys() | self.elected.keys()):
            known: dict[str, Any] = self.elected.get(key) or {
                "leader": None,
                "leader_epoch": -1,
                "isr": [],
            }
            hosting = hosts.get(key, [])
            replicas = named.get(key) or sorted({*hosting, *known["isr"]})
            away = [broker for broker in replicas if not self.running.get(broker, False)]
            leader = NO_LEADER if known["leader"] in (None, *away) else known["leader"]
            found = topics.setdefault(
                key.topic, TopicMetadata(key.topic, 0, NO_TOPIC_ID, False, {})
            )
            found.partitions[key.partition] = PartitionMetadata(
                key.partition, 0, leader, known["leader_epoch"], replicas, known["isr"], away
            )
        brokers = {
            broker: BrokerAddress(broker, f"broker-{broker}", 0, None)
            for broker, runs in sorted(self.running.items())
            if runs
        }
        return ClusterMetadata(name, self.controller, brokers, topics)


def _from_sample(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a replica's state; the demo's samples have fewer."""
    found = {name: fields[name] for name in (*_REPLICA, "replicas") if name in fields}
    if "role" not in found:
        found["role"] = "leader" if fields.get("is_leader") else "follower"
    found.setdefault("last_stable_offset", fields.get("high_watermark"))
    leader_end = fields.get("log_end_offset")
    found["followers"] = [
        {**_FOLLOWER, **each, "lag": _lag(leader_end, each.get("log_end_offset"))}
        for each in fields.get("followers") or ()
    ]
    return found


def _lag(leader_end: int | None, end: int | None) -> int | None:
    return None if leader_end is None or end is None else max(0, leader_end - end)


class EventFile:
    """A `Recorder` (apps/console/recorder.py) that reads one file and records nothing."""

    def __init__(self, path: str) -> None:
        """Read the file. Raises CannotRead, OSError."""
        self.path = path
        self._events = _read(path)
        self._times = [each.at_ms for each in self._events]
        self._frames: list[_Cluster] = []
        cluster = _Cluster()
        for number, event in enumerate(self._events):
            if number % KEYFRAME == 0:
                self._frames.append(cluster.copy())
            try:
                cluster.apply(event)
            except (KeyError, TypeError, ValueError) as error:
                raise CannotRead(
                    f"event {number + 1} of {path} ({event.event}) has invalid fields: {error!r}"
                ) from error
        self.missing = _missing(self._events)
        """A sentence that lists what the file does not know; empty if nothing."""

    @classmethod
    def open(cls, path: str) -> "EventFile":
        """Read the file. Raises CannotRead, also if there is no such file."""
        try:
            return cls(path)
        except OSError as error:
            raise CannotRead(f"can't read {path}: {error.strerror}") from error

    def record(
        self, at_ms: int, states: Mapping[BrokerId, State], metadata: ClusterMetadata
    ) -> None:
        """Do nothing: the file is not changed."""

    def state_at(
        self,
        at_ms: int,
        topic: str | None = None,  # noqa: ARG002
    ) -> tuple[Mapping[BrokerId, State], ClusterMetadata] | None:
        """Return the state after the events up to this time; None before the first one."""
        count = bisect_right(self._times, at_ms)
        if count == 0:
            return None
        frame = (count - 1) // KEYFRAME
        cluster = self._frames[frame].copy()
        for event in self._events[frame * KEYFRAME : count]:
            cluster.apply(event)
        return cluster.states(at_ms), cluster.metadata(self.path)

    def sampled_at(self, at_ms: int) -> int | None:
        """Return the time of the last event up to this time."""
        count = bisect_right(self._times, at_ms)
        return self._times[count - 1] if count else None

    def last_seen(self, at_ms: int, topic: str, partition: int) -> Mapping[BrokerId, Seen]:  # noqa: ARG002
        """Return nothing: which states a file has depends on what wrote it."""
        return {}

    def record_groups(self, at_ms: int, groups: Sequence[GroupSample], *, complete: bool) -> None:
        """Do nothing: the file is not changed."""

    def groups_at(self, at_ms: int) -> tuple[int, Sequence[GroupSample]] | None:  # noqa: ARG002
        """Return None: no file has groups."""
        return None

    def group_events(self, group: str, to_ms: int | None, limit: int) -> list[dict[str, Any]]:  # noqa: ARG002
        return []

    def span(self) -> HistorySpan | None:
        """Return the times of the first and last event."""
        from tidelog.apps.console.history.schema import file_bytes

        size = file_bytes(self.path)
        return HistorySpan(self._times[0], self._times[-1], size, size)

    def events(
        self,
        from_ms: int | None,
        to_ms: int | None,
        topic: str | None,
        partition: int | None,
        limit: int,
    ) -> list[dict[str, Any]]:
        """Return events, newest first, without the samples of replicas."""
        found = self._chosen(from_ms, to_ms, topic, partition, brokers=False)
        return [as_row(each) for each in reversed(found[-limit:])]

    def timeline(self, topic: str | None, partition: int | None) -> dict[str, Any]:
        """Return {from_ms, to_ms, marks}; marks of a partition include those of brokers."""
        marks = marks_of(self._chosen(None, None, topic, partition, brokers=True))
        return {"from_ms": self._times[0], "to_ms": self._times[-1], "marks": marks[-MARKS_MAX:]}

    def close(self) -> None:
        """Do nothing: the file is closed after it was read."""

    def _chosen(
        self,
        from_ms: int | None,
        to_ms: int | None,
        topic: str | None,
        partition: int | None,
        *,
        brokers: bool,
    ) -> list[HistoryEvent]:
        start = 0 if from_ms is None else bisect_right(self._times, from_ms - 1)
        end = len(self._times) if to_ms is None else bisect_right(self._times, to_ms)
        return [
            each
            for each in self._events[start:end]
            if each.event not in (SAMPLED, _SILENT) and _fits(each, topic, partition, brokers)
        ]


def _fits(event: HistoryEvent, topic: str | None, partition: int | None, brokers: bool) -> bool:
    if topic is None:
        return True
    key = event.partition
    if key is None:
        return brokers
    return key.topic == topic and partition in (None, key.partition)


def _read(path: str) -> list[HistoryEvent]:
    found = []
    with open(path, encoding="utf-8", errors="replace") as file:
        for number, line in enumerate(file, 1):
            if not line.strip():
                continue
            try:
                found.append(HistoryEvent.from_data(json.loads(line)))
            except (ValueError, KeyError, AttributeError, TypeError) as error:
                raise CannotRead(
                    f"line {number} of {path} is not a history event; name a file of"
                    " `tidelog demo`, or of --history of `sim replay`, `story play`, `model"
                    " check` or `verify`, or the JSON log of a broker"
                ) from error
    if not found:
        raise CannotRead(f"{path} has no events")
    return sorted(found, key=lambda each: each.at_ms)


def _missing(events: Iterable[HistoryEvent]) -> str:
    """Say what cannot be known from these events."""
    samples = [each for each in events if each.event == SAMPLED]
    parts = ["sizes of logs", "times of fetches", "consumer groups", "records"]
    if not samples:
        parts = ["log end offsets and high watermarks", "leader epochs' start offsets", *parts]
    elif "followers" not in samples[0].fields:
        parts = ["how far the leader knows its followers' logs", "eligible leaders (ELR)", *parts]
    return f"this file does not have: {', '.join(parts)}"
