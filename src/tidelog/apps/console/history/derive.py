"""History events from two successive samples: what changed between them.

Names and fields are those of the brokers' log events where the same thing happened; `broker` is
None, because a console saw it, and not a broker. A change that was undone before the next sample is
missed. Truncations are not missed, because brokers report the last ones with their times.
"""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from tidelog.apps.views.broker import State
from tidelog.apps.views.group_sample import GroupSample
from tidelog.core.history import HistoryEvent
from tidelog.core.node.measuring.journal import EVENTS as JOURNAL
from tidelog.core.types import BrokerId, LeaderEpoch, TopicPartition
from tidelog.shell.client.cluster_metadata import NO_LEADER, ClusterMetadata, PartitionMetadata

_PARTITION = ("topic", "partition")


class ConsoleEvent(NamedTuple):
    """One kind of event that only the console writes, for docs/reference/log-events.md."""

    level: str
    fields: tuple[str, ...]
    text: str


EVENTS = {
    "leader_lost": ConsoleEvent(
        "WARN",
        (*_PARTITION, "leader_epoch", "old_leader", "isr", "elr"),
        "{topic}-{partition} has no leader; before, broker {old_leader} led in epoch"
        " {leader_epoch}; ISR {isr}, ELR {elr}",
    ),
    "elr_changed": ConsoleEvent(
        "INFO",
        (*_PARTITION, "isr", "elr"),
        "eligible leader replicas of {topic}-{partition}: {elr}; ISR {isr}",
    ),
    "broker_silent": ConsoleEvent(
        "WARN", ("other",), "broker {other} is in the cluster and did not respond"
    ),
    "broker_responds": ConsoleEvent("INFO", ("other",), "broker {other} responds again"),
    "broker_restarted": ConsoleEvent(
        "INFO", ("other", "broker_epoch"), "broker {other} registered, broker epoch {broker_epoch}"
    ),
    "topic_created": ConsoleEvent(
        "INFO", ("topic", "partitions"), "topic {topic} was created with {partitions} partitions"
    ),
    "topic_deleted": ConsoleEvent("INFO", ("topic",), "topic {topic} was deleted"),
    "group_created": ConsoleEvent(
        "INFO", ("group", "state"), "group {group} was created, state {state}"
    ),
    "group_deleted": ConsoleEvent("INFO", ("group",), "group {group} was deleted, or expired"),
    "group_state_changed": ConsoleEvent(
        "INFO",
        ("group", "state", "old_state", "members"),
        "group {group}: state {old_state} -> {state}, {members} members",
    ),
    "group_members_changed": ConsoleEvent(
        "INFO",
        ("group", "joined", "left", "members"),
        "group {group}: joined {joined}, left {left}; {members} members",
    ),
    "group_coordinator_changed": ConsoleEvent(
        "INFO",
        ("group", "coordinator", "old_coordinator"),
        "group {group}: coordinator {old_coordinator} -> {coordinator}",
    ),
    "group_offsets_moved_back": ConsoleEvent(
        "INFO",
        ("group", "topic", "partition", "offset", "old_offset"),
        "group {group}: committed offset of {topic}-{partition} {old_offset} -> {offset}",
    ),
    "history_gap": ConsoleEvent(
        "INFO", ("from_ms", "to_ms"), "no samples for {seconds} s: no console ran"
    ),
}
_LIVENESS = {
    "broker_alive": ("INFO", "broker {other} is live"),
    "broker_gone": ("WARN", "broker {other} is no longer live"),
    "controller_changed": ("INFO", "broker {controller} is the controller"),
}
"""Events of a broker's host (shell/broker/host.py), which have no entry in the journal."""


class Standing(NamedTuple):
    """Who leads a partition and who is in sync, by the newest report."""

    leader: BrokerId | None
    leader_epoch: LeaderEpoch
    isr: tuple[BrokerId, ...]
    elr: tuple[BrokerId, ...]
    log_end_offset: int | None = None
    unclean_election: Mapping[str, Any] | None = None


def standing(
    metadata: PartitionMetadata | None, replicas: Mapping[BrokerId, State]
) -> Standing | None:
    """Return the standing of a partition; None if nothing is known."""
    leading = [each for each in replicas.values() if each.get("role") == "leader"]
    best = max(leading, key=lambda each: int(each["leader_epoch"]), default=None)
    stale = (
        best is not None and metadata is not None and metadata.leader_epoch > best["leader_epoch"]
    )
    if best is not None and not stale:
        return Standing(
            best["leader"],
            best["leader_epoch"],
            tuple(sorted(best.get("isr") or ())),
            tuple(sorted(best.get("elr") or ())),
            best.get("log_end_offset"),
            best.get("unclean_election"),
        )
    if metadata is None:
        return None
    newest = max(replicas.values(), key=lambda each: int(each["leader_epoch"]), default=None)
    known = newest if newest is not None and metadata.elr is None else {}
    return Standing(
        None if metadata.leader == NO_LEADER else metadata.leader,
        metadata.leader_epoch,
        tuple(sorted(metadata.isr)),
        tuple(sorted(metadata.elr or known.get("elr") or ())),
        None,
        None if newest is None else newest.get("unclean_election"),
    )


def partition_events(
    at_ms: int, key: TopicPartition, before: Standing, after: Standing
) -> Iterator[HistoryEvent]:
    """Yield what changed about a partition."""
    if after.leader_epoch < before.leader_epoch:
        return  # a report that is older than the last one
    about: dict[str, Any] = dict(key._asdict())
    isr, elr = list(after.isr), list(after.elr)
    epoch = after.leader_epoch
    if after.leader is None and before.leader is not None:
        more = {"leader_epoch": epoch, "old_leader": before.leader, "isr": isr, "elr": elr}
        yield event(at_ms, "leader_lost", {**about, **more})
    elif after.leader is not None and (
        epoch > before.leader_epoch or after.leader != before.leader
    ):
        unclean = after.unclean_election
        if unclean is not None and unclean["leader_epoch"] > before.leader_epoch:
            kept = ("leader", "leader_epoch", "old_leader", "old_isr", "old_elr")
            yield event(
                at_ms, "unclean_election", {**about, **{name: unclean[name] for name in kept}}
            )
        more = {"leader": after.leader, "leader_epoch": epoch, "old_leader": before.leader}
        yield event(at_ms, "leader_elected", {**about, **more, "isr": isr})
    left = sorted(set(before.isr) - set(after.isr))
    joined = sorted(set(after.isr) - set(before.isr))
    if left:
        more = {"leader_epoch": epoch, "isr": isr, "left": left}
        yield event(at_ms, "isr_shrunk", {**about, **more})
    if joined:
        more = {"leader_epoch": epoch, "isr": isr, "joined": joined}
        yield event(at_ms, "isr_expanded", {**about, **more})
    if after.elr != before.elr:
        yield event(at_ms, "elr_changed", {**about, "isr": isr, "elr": elr})


def damage_event(
    at_ms: int, key: TopicPartition, broker: BrokerId, damage: Mapping[str, Any]
) -> HistoryEvent:
    """Return the event of damage that a broker reported first in this sample."""
    fields = {**key._asdict(), "offset": damage["offset"], "reason": damage["reason"]}
    return event(at_ms, "log_damaged", fields, broker)


def loss_events(
    at_ms: int, broker: BrokerId, before: State | None, after: State
) -> Iterator[HistoryEvent]:
    """Yield the truncations that a broker reported first in this sample, at their own time."""
    seen = [] if before is None else _losses(before)
    for loss in _losses(after):
        if loss in seen:
            continue
        age_ms = max(0, after["now_ms"] - loss["now_ms"])
        lost = loss["committed"]
        fields = {name: loss[name] for name in (*_PARTITION, "leader_epoch", "start", "end")}
        if lost:
            yield event(at_ms - age_ms, "records_lost", {**fields, "lost": lost}, broker)
        else:
            yield event(at_ms - age_ms, "truncated", fields, broker)


def _losses(state: State) -> list[dict[str, Any]]:
    return list((state.get("losses") or {}).get("recent") or ())


def cluster_events(
    at_ms: int, before: ClusterMetadata, after: ClusterMetadata
) -> Iterator[HistoryEvent]:
    """Yield which brokers and topics came and went, and who became the controller."""
    for broker in sorted(before.brokers.keys() - after.brokers.keys()):
        yield event(at_ms, "broker_gone", {"other": broker, "alive": sorted(after.brokers)})
    for broker in sorted(after.brokers.keys() - before.brokers.keys()):
        yield event(at_ms, "broker_alive", {"other": broker, "alive": sorted(after.brokers)})
    if after.controller_id not in (before.controller_id, NO_LEADER):
        yield event(at_ms, "controller_changed", {"controller": after.controller_id})
    for topic in sorted(after.topics.keys() - before.topics.keys()):
        count = len(after.topics[topic].partitions)
        yield event(at_ms, "topic_created", {"topic": topic, "partitions": count})
    for topic in sorted(before.topics.keys() - after.topics.keys()):
        yield event(at_ms, "topic_deleted", {"topic": topic})


def broker_events(
    at_ms: int, broker: BrokerId, before: State | None, after: State | None, *, known: bool
) -> Iterator[HistoryEvent]:
    """Yield events if a broker began or stopped to respond, and the events that it reported.
    `known`: the cluster lists the broker in both samples, so a missing response is an event.
    """
    if known and before is not None and after is None:
        yield event(at_ms, "broker_silent", {"other": broker})
    if known and before is None and after is not None:
        yield event(at_ms, "broker_responds", {"other": broker})
    if before is not None and after is not None:
        epoch = after.get("broker_epoch")
        if epoch is not None and epoch != before.get("broker_epoch"):
            yield event(at_ms, "broker_restarted", {"other": broker, "broker_epoch": epoch})


def group_created(at_ms: int, group: str, sample: GroupSample) -> HistoryEvent:
    """Return the event of a group that the last sample did not have."""
    return event(at_ms, "group_created", {"group": group, "state": sample.listed.state})


def group_deleted(at_ms: int, group: str) -> HistoryEvent:
    """Return the event of a group that is no longer listed."""
    return event(at_ms, "group_deleted", {"group": group})


def group_events(
    at_ms: int, group: str, before: GroupSample, after: GroupSample
) -> Iterator[HistoryEvent]:
    """Yield what changed about a group."""
    about: dict[str, Any] = {"group": group}
    if before.listed.coordinator != after.listed.coordinator:
        moved = {
            "coordinator": after.listed.coordinator,
            "old_coordinator": before.listed.coordinator,
        }
        yield event(at_ms, "group_coordinator_changed", {**about, **moved})
    if before.view is None or after.view is None:
        return
    was, now = before.view.group, after.view.group
    count = len(now.members)
    if was.state != now.state:
        states = {"state": now.state, "old_state": was.state, "members": count}
        yield event(at_ms, "group_state_changed", {**about, **states})
    old, new = ({each.member_id for each in one.members} for one in (was, now))
    if old != new:
        ids = {"joined": sorted(new - old), "left": sorted(old - new), "members": count}
        yield event(at_ms, "group_members_changed", {**about, **ids})
    earlier = {row.key: row.current_offset for row in before.view.rows}
    for row in after.view.rows:
        last = earlier.get(row.key)
        if last is not None and row.current_offset is not None and row.current_offset < last:
            offsets = {"offset": row.current_offset, "old_offset": last}
            yield event(
                at_ms, "group_offsets_moved_back", {**about, **row.key._asdict(), **offsets}
            )


def gap_event(from_ms: int, to_ms: int) -> HistoryEvent:
    """Return the event of a time without samples."""
    fields = {"from_ms": from_ms, "to_ms": to_ms}
    text = EVENTS["history_gap"].text.format(seconds=(to_ms - from_ms) // 1000)
    return HistoryEvent(to_ms, None, "history_gap", fields, "INFO", text)


def event(
    at_ms: int, name: str, fields: Mapping[str, Any], broker: BrokerId | None = None
) -> HistoryEvent:
    """Return an event with the level and the text of its kind."""
    if name in EVENTS:
        level, text = EVENTS[name].level, EVENTS[name].text
    elif name in _LIVENESS:
        level, text = _LIVENESS[name]
    else:
        level, text = JOURNAL[name].level, JOURNAL[name].text
    text = text.format(**{key: _shown(value) for key, value in fields.items()})
    return HistoryEvent(
        at_ms, broker, name, fields, level, text if broker is None else f"broker {broker}: {text}"
    )


def _shown(value: object) -> object:
    if value is None:
        return "none"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(str, value))}]" if value else "empty"
    return value
