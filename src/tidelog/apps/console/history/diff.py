"""What changed between two moments: brokers, topics, leaders, ISRs, offsets, groups, events."""

from collections import Counter
from collections.abc import Mapping
from typing import Any

from tidelog.apps.console.history.derive import Standing, standing
from tidelog.apps.console.recorder import Recorder
from tidelog.apps.views.broker import State
from tidelog.apps.views.group_sample import GroupSample
from tidelog.apps.views.partition import reassignment
from tidelog.core.types import BrokerId, TopicPartition
from tidelog.shell.client.cluster_metadata import NO_LEADER, ClusterMetadata, PartitionMetadata

PARTITIONS_MAX = 500
EVENTS_MAX = 10_000
GROUPS_MAX, OFFSETS_MAX = 200, 200
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
        leader = self._leader(key)
        reported: Json = {}
        if leader is not None:
            moving = reassignment(leader.get("adding"), leader.get("removing"))
            reported = {name: leader.get(name) for name in ("min_isr", "log_start_offset")}
            reported["reassignment"] = moving
        damaged = [b for b, each in self.reported.get(key, {}).items() if each.get("damage")]
        return {
            "leader": found.leader,
            "leader_epoch": found.leader_epoch,
            "isr": list(found.isr),
            "elr": list(found.elr),
            "replicas": [] if listed is None else list(listed.replicas),
            "damaged": sorted(damaged),
            **reported,
        }

    def _leader(self, key: TopicPartition) -> State | None:
        """Return the newest leader that reported itself."""
        leading = [each for each in self.reported.get(key, {}).values() if each["role"] == "leader"]
        return max(leading, key=lambda each: int(each["leader_epoch"]), default=None)

    def offsets(self, key: TopicPartition) -> tuple[int, int] | None:
        """Return the leader's log end offset and HW."""
        leader = self._leader(key)
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
        changes = [] if was is None or now is None else _changes(was, now)
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
            "changed": _topics(before[1], after[1]),
            "written": [
                {"topic": topic, "written": written[topic], "committed": committed[topic]}
                for topic in sorted(written)
                if written[topic] or committed[topic]
            ],
        },
        "groups": _groups(recorder, from_ms, to_ms),
        "partitions": changed[:PARTITIONS_MAX],
        "partitions_changed": len(changed),
        "events": dict(Counter(each["event"] for each in events)),
        "losses": [each for each in events if each["event"] == "records_lost"],
    }


def _changes(was: Json, now: Json) -> list[Json]:
    """Return the fields that both have and that differ."""
    return [
        {"what": what, "before": was[what], "after": now[what]}
        for what in was
        if what in now and was[what] != now[what]
    ]


def _brokers(before: Moment, after: Moment) -> list[Json]:
    """Return the brokers that changed: whether they respond, and what they host and lead."""
    old, new = _shares(before[1]), _shares(after[1])
    none = dict.fromkeys(_SHARES, 0)
    found = []
    for broker in sorted({*before[1].brokers, *after[1].brokers, *before[0], *after[0]}):
        was, now = _condition(before, broker), _condition(after, broker)
        restarted = _epoch(before, broker) != _epoch(after, broker) and was == now == "up"
        changes = _changes(old.get(broker, none), new.get(broker, none))
        if was != now or restarted or changes:
            row = {"broker": broker, "before": was, "after": now, "restarted": restarted}
            found.append({**row, "changes": changes})
    return found


_SHARES = ("leads", "replicas", "in_sync")


def _shares(metadata: ClusterMetadata) -> dict[BrokerId, dict[str, int]]:
    """Return how many partitions each broker leads and hosts, and in how many it is in sync."""
    found: dict[BrokerId, dict[str, int]] = {}
    for topic in metadata.topics.values():
        for each in topic.partitions.values():
            leader = [] if each.leader == NO_LEADER else [each.leader]
            for name, brokers in zip(_SHARES, (leader, each.replicas, each.isr), strict=True):
                for broker in brokers:
                    found.setdefault(broker, dict.fromkeys(_SHARES, 0))[name] += 1
    return found


def _topics(before: ClusterMetadata, after: ClusterMetadata) -> list[Json]:
    """Return topics that exist in both moments and changed. One with another id was recreated."""
    found = []
    for name in sorted(before.topics.keys() & after.topics.keys()):
        changes = _changes(_topic(before, name), _topic(after, name))
        if changes:
            found.append({"topic": name, "changes": changes})
    return found


def _topic(metadata: ClusterMetadata, name: str) -> Json:
    topic = metadata.topics[name]
    partitions = topic.partitions.values()
    return {
        "topic_id": topic.id.hex(),
        "partitions": len(partitions),
        "replication_factor": max((len(each.replicas) for each in partitions), default=0),
        "offline": sum(each.leader == NO_LEADER for each in partitions),
        "under_replicated": sum(len(each.isr) < len(each.replicas) for each in partitions),
    }


def _groups(recorder: Recorder, from_ms: int, to_ms: int) -> Json | None:
    """Return what changed about groups; None if the history has no groups of the two times."""
    before, after = recorder.groups_at(from_ms), recorder.groups_at(to_ms)
    if before is None or after is None:
        return None
    old = {each.listed.group: each for each in before[1]}
    new = {each.listed.group: each for each in after[1]}
    changed = []
    for name in sorted(old.keys() & new.keys()):
        was, now = _group(old[name]), _group(new[name])
        offsets = _committed(old[name], new[name])
        changes = _changes(was, now)
        if changes or offsets:
            changed.append({"group": name, "changes": changes, "offsets": offsets[:OFFSETS_MAX]})
    return {
        "created": sorted(new.keys() - old.keys()),
        "deleted": sorted(old.keys() - new.keys()),
        "changed": changed[:GROUPS_MAX],
        "groups_changed": len(changed),
    }


def _group(sample: GroupSample) -> Json:
    members = [] if sample.view is None else sample.view.group.members
    return {
        "state": sample.listed.state,
        "coordinator": sample.listed.coordinator,
        "members": sorted(member.member_id for member in members),
    }


def _committed(before: GroupSample, after: GroupSample) -> list[Json]:
    """Return the partitions whose committed offset changed."""
    old, new = (
        {} if one.view is None else {row.key: row.current_offset for row in one.view.rows}
        for one in (before, after)
    )
    return [
        {**key._asdict(), "before": old.get(key), "after": new.get(key)}
        for key in sorted(old.keys() | new.keys())
        if old.get(key) != new.get(key)
    ]


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
