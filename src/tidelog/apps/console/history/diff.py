"""What changed between two moments: brokers, topics, leaders, ISRs, offsets, events."""

from collections import Counter
from collections.abc import Mapping
from typing import Any

from tidelog.apps.console.history.derive import Standing, standing
from tidelog.apps.console.recorder import Recorder
from tidelog.apps.views.broker import State
from tidelog.core.types import BrokerId, TopicPartition
from tidelog.shell.client.cluster_metadata import NO_LEADER, ClusterMetadata, PartitionMetadata

PARTITIONS_MAX = 500
EVENTS_MAX = 10_000
Json = dict[str, Any]
Moment = tuple[Mapping[BrokerId, State], ClusterMetadata]


class _Partitions:
    """The partitions of one moment: their standing, and their leaders' offsets."""

    def __init__(self, moment: Moment) -> None:
        states, metadata = moment
        self.reported: dict[TopicPartition, dict[BrokerId, State]] = {}
        for broker, state in states.items():
            for each in state["partitions"]:
                key = TopicPartition(each["topic"], each["partition"])
                self.reported.setdefault(key, {})[broker] = each
        self.listed: dict[TopicPartition, PartitionMetadata] = {
            TopicPartition(topic.name, number): each
            for topic in metadata.topics.values()
            for number, each in topic.partitions.items()
        }

    def row(self, key: TopicPartition) -> Json | None:
        """Return what is compared; None if there is no such partition."""
        found: Standing | None = standing(self.listed.get(key), self.reported.get(key, {}))
        if found is None:
            return None
        listed = self.listed.get(key)
        damaged = [b for b, each in self.reported.get(key, {}).items() if each.get("damage")]
        return {
            "leader": found.leader,
            "leader_epoch": found.leader_epoch,
            "isr": list(found.isr),
            "elr": list(found.elr),
            "replicas": [] if listed is None else list(listed.replicas),
            "damaged": sorted(damaged),
        }

    def offsets(self, key: TopicPartition) -> tuple[int, int] | None:
        """Return the leader's log end offset and HW."""
        leading = [each for each in self.reported.get(key, {}).values() if each["role"] == "leader"]
        leader = max(leading, key=lambda each: int(each["leader_epoch"]), default=None)
        if leader is None or leader["log_end_offset"] is None or leader["high_watermark"] is None:
            return None
        return leader["log_end_offset"], leader["high_watermark"]


def diff(recorder: Recorder, from_ms: int, to_ms: int) -> Json | None:
    """Return what changed; None if the history does not reach back to `from_ms`."""
    before, after = recorder.state_at(from_ms), recorder.state_at(to_ms)
    if before is None or after is None:
        return None
    old, new = _Partitions(before), _Partitions(after)
    changed: list[Json] = []
    written: Counter[str] = Counter()
    committed: Counter[str] = Counter()
    for key in sorted(old.listed.keys() & new.listed.keys()):
        was, now = old.row(key), new.row(key)
        changes = [
            {"what": what, "before": was[what], "after": now[what]}
            for what in (was if was is not None and now is not None else ())
            if was is not None and now is not None and was[what] != now[what]
        ]
        first, last = old.offsets(key), new.offsets(key)
        if first is not None and last is not None:
            written[key.topic] += last[0] - first[0]
            committed[key.topic] += last[1] - first[1]
        if changes:
            changed.append({**key._asdict(), "changes": changes})
    events = recorder.events(from_ms, to_ms, None, None, EVENTS_MAX)
    return {
        "from_ms": from_ms,
        "to_ms": to_ms,
        "brokers": _brokers(before, after),
        "controller": _change(_controller(before[1]), _controller(after[1])),
        "topics": {
            "created": sorted(after[1].topics.keys() - before[1].topics.keys()),
            "deleted": sorted(before[1].topics.keys() - after[1].topics.keys()),
            "written": [
                {"topic": topic, "written": written[topic], "committed": committed[topic]}
                for topic in sorted(written)
                if written[topic] or committed[topic]
            ],
        },
        "partitions": changed[:PARTITIONS_MAX],
        "partitions_changed": len(changed),
        "events": dict(Counter(each["event"] for each in events)),
        "losses": [each for each in events if each["event"] == "records_lost"],
    }


def _brokers(before: Moment, after: Moment) -> list[Json]:
    found = []
    for broker in sorted({*before[1].brokers, *after[1].brokers, *before[0], *after[0]}):
        was, now = _condition(before, broker), _condition(after, broker)
        restarted = _epoch(before, broker) != _epoch(after, broker) and was == now == "up"
        if was != now or restarted:
            found.append({"broker": broker, "before": was, "after": now, "restarted": restarted})
    return found


def _condition(moment: Moment, broker: BrokerId) -> str:
    """Return `up`, `silent` (in the cluster, did not respond) or `away`."""
    states, metadata = moment
    if broker not in metadata.brokers:
        return "away"
    return "up" if broker in states or not states else "silent"


def _epoch(moment: Moment, broker: BrokerId) -> int | None:
    state = moment[0].get(broker)
    return None if state is None else state.get("broker_epoch")


def _controller(metadata: ClusterMetadata) -> BrokerId | None:
    return None if metadata.controller_id == NO_LEADER else metadata.controller_id


def _change(before: object, after: object) -> Json | None:
    return None if before == after else {"before": before, "after": after}
