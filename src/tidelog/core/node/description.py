"""Describe a broker and its replicas as plain values, for tables and JSON.

No decision depends on it. The leader knows a follower only by its fetches, so the reason why a
follower is not in the ISR is the leader's view. Times are in milliseconds of the host's monotonic
clock; None for an event that never happened.
"""

from collections.abc import Iterable
from typing import Any

from tidelog.core.node.hosting.hosted_replica import HostedReplica
from tidelog.core.node.node import Node
from tidelog.core.node.upkeep.scrubber import NO_TIME_MS
from tidelog.core.replication.isr import Isr, PendingExpand, PendingShrink
from tidelog.core.replication.log_end_offset import NEVER_MS, FollowerProgress
from tidelog.core.storage.layout import format_topic_id
from tidelog.core.types import BrokerId, TopicPartition

Json = dict[str, Any]


def describe(node: Node, topic: str | None = None, partition: int | None = None) -> Json:
    """Describe the broker, with all its replicas, those of one topic, or one replica."""
    names = hosted_names(node, topic, partition)
    return {
        **describe_broker(node, topic, partition),
        "partitions": describe_replicas(node, names),
    }


def describe_broker(node: Node, topic: str | None = None, partition: int | None = None) -> Json:
    """Describe the broker without its replicas."""
    image = node.image
    claim = image.controller
    return {
        "broker_id": node.config.broker_id,
        "broker_epoch": node.broker_epoch,
        "acting": node.acting,
        "detached": node.detached,
        "controller": None if claim is None else claim.broker,
        "is_controller": node.controller.is_active,
        "controller_epoch": image.controller_epoch,
        "revision": image.revision,
        "now_ms": node.now_ms,
        "scrub": _scrub(node),
        "losses": {"count": node.losses.count, "recent": _losses(node, topic, partition)},
        "unclean_elections": _unclean_elections(node, topic, partition),
    }


def hosted_names(node: Node, topic: str | None, partition: int | None) -> list[TopicPartition]:
    """Return the partitions with a replica here: all, those of a topic, or one."""
    if topic is not None and partition is not None:
        one = TopicPartition(topic, partition)
        return [one] if one in node.replicas else []
    return [name for name in sorted(node.replicas) if _fits(name, topic, partition)]


def describe_replicas(node: Node, names: Iterable[TopicPartition]) -> list[Json]:
    """Describe the replicas of these partitions; those that are no longer here are left out."""
    found = (node.replicas.get(name) for name in names)
    return [_replica(node, each, node.now_ms) for each in found if each is not None]


def _scrub(node: Node) -> Json:
    """The progress of the scrubber since the broker started."""
    scrubber = node.scrubber
    last_ms = scrubber.last_pass_ms
    return {
        "verified_bytes": scrubber.verified_bytes,
        "passes": scrubber.passes,
        "last_pass_ms": None if last_ms == NO_TIME_MS else last_ms,
    }


def _fits(name: TopicPartition | None, topic: str | None, partition: int | None) -> bool:
    if name is None:
        return topic is None
    return topic in (None, name.topic) and partition in (None, name.partition)


def _replica(node: Node, replica: HostedReplica, now_ms: int) -> Json:
    name, partition, log = replica.topic_partition, replica.partition, replica.log
    known = node.image.partition(*name)
    damage = node.directory.damaged.get(name)
    refused = node.refused.get(name)
    state: Json = {
        "topic": name.topic,
        "partition": name.partition,
        "topic_id": format_topic_id(replica.topic_id),
        "role": _role(replica),
        "leader": partition.leader,
        "leader_epoch": partition.leader_epoch,
        "partition_epoch": partition.partition_epoch,
        "log_start_offset": partition.log_start_offset,
        "log_end_offset": partition.log_end_offset,
        "high_watermark": partition.high_watermark,
        "last_stable_offset": partition.last_stable_offset,
        "recovery_point": log.recovery_point,
        "epochs": [list(entry) for entry in partition.epochs.entries],
        "damage": None if damage is None else {"offset": damage.offset, "reason": damage.reason},
        "refused": None if refused is None else _slots(refused),
        "size": log.size,
        "segments": len(log.segments),
        "replicas": list(partition.replicas),
        "isr": [] if known is None else list(known.isr),
        "maximal_isr": sorted(partition.isr.maximal) if partition.is_leader else None,
        "pending_isr": _pending(partition.isr),
        "elr": [] if known is None else list(known.elr),
        "lost": [] if known is None else [*known.lost, *known.behind],
        "min_isr": partition.min_isr,
        "adding": [] if known is None else list(known.adding),
        "removing": [] if known is None else list(known.removing),
        "unclean_election": None,
        "unstable": _unstable(replica),
        "followers": [],
    }
    if known is not None and known.unclean_election is not None:
        state["unclean_election"] = _slots(known.unclean_election)
    if partition.is_leader:
        state["followers"] = [
            _follower(node, replica, broker, now_ms) for broker in sorted(partition.followers)
        ]
    return state


def _unstable(replica: HostedReplica) -> Json | None:
    """Describe the transaction that ends what read-committed consumers may read."""
    producers, watermark = replica.partition.producers, replica.partition.high_watermark
    if producers is None or not (producers.open_transactions or producers.ended):
        return None
    offset = producers.first_unstable_offset(watermark)
    if offset is None or offset >= watermark:
        return None
    found: Json = {
        "offset": offset,
        "producer_id": None,
        "producer_epoch": None,
        "last_write_ms": None,
        "open_transactions": len(producers.open_transactions),
    }
    for producer_id, first in producers.open_transactions.items():
        if first == offset:  # else it has ended, and its marker is not committed yet
            entry = producers.producers[producer_id]
            found["producer_id"], found["producer_epoch"] = producer_id, entry.epoch
            found["last_write_ms"] = entry.last_timestamp
    return found


def _pending(isr: Isr) -> Json | None:
    """The change of the ISR that the leader proposed and the controller has not decided on."""
    if isinstance(isr, PendingExpand):
        return {"kind": "expand", "brokers": [isr.joining]}
    if isinstance(isr, PendingShrink):
        return {"kind": "shrink", "brokers": sorted(isr.leaving)}
    return None


def _role(replica: HostedReplica) -> str:
    if replica.partition.offline:
        return "offline"
    return "leader" if replica.partition.is_leader else "follower"


def _follower(node: Node, replica: HostedReplica, broker: BrokerId, now_ms: int) -> Json:
    partition = replica.partition
    progress = partition.followers[broker]
    fetched, caught_up = last_times(replica, broker, progress)
    in_isr = broker in partition.isr.members
    end = progress.log_end_offset
    return {
        "broker": broker,
        "log_end_offset": end,
        "log_start_offset": progress.log_start_offset,
        "lag": None if end is None else partition.log_end_offset - end,
        "last_caught_up_ms": caught_up,
        "lag_ms": None if caught_up is None else max(0, now_ms - caught_up),
        "last_fetch_ms": fetched,
        "waits_from": node.waiting_fetch(replica, broker),
        "in_isr": in_isr,
        "out_since_ms": None if in_isr else replica.out_since_ms.get(broker),
        "why": None if in_isr else _why_out(node, replica, broker, now_ms),
    }


def last_times(
    replica: HostedReplica, broker: BrokerId, progress: FollowerProgress
) -> tuple[int | None, int | None]:
    """Return the time of the last fetch, and when the follower was last caught up. The fetches of a
    follower that rests are not passed to the partition; such a follower is caught up."""
    fetched, caught_up = progress.last_fetch_ms, progress.last_caught_up_ms
    for session in replica.resting.values():
        if session.request.replica == broker:
            fetched = max(fetched, session.used_ms)
            caught_up = max(caught_up, session.used_ms)
    return _time(fetched), _time(caught_up)


def _time(at_ms: int) -> int | None:
    return None if at_ms == NEVER_MS else at_ms


def _why_out(node: Node, replica: HostedReplica, broker: BrokerId, now_ms: int) -> str:
    """Return the first reason why the follower is not in the ISR."""
    registered = node.image.brokers.get(broker)
    if registered is None:
        return "not registered"
    if not registered.online:
        return "offline"
    if registered.fenced:
        return "fenced"
    if registered.shutting_down:
        return "shutting down"
    partition = replica.partition
    if isinstance(partition.isr, PendingExpand) and partition.isr.joining == broker:
        return "joining: the controller was asked"
    progress = partition.followers[broker]
    if progress.log_end_offset is None:
        return f"no fetch since leader epoch {partition.leader_epoch} began"
    silent_ms = now_ms - progress.last_fetch_ms
    if silent_ms > partition.config.replica_lag_time_max_ms:
        return f"no fetch for {silent_ms} ms"
    if progress.last_caught_up_ms == NEVER_MS:
        return "never caught up"
    return f"fetch lag: last caught up {now_ms - progress.last_caught_up_ms} ms ago"


def _losses(node: Node, topic: str | None, partition: int | None) -> list[Json]:
    return [
        {
            "topic": loss.topic_partition.topic,
            "partition": loss.topic_partition.partition,
            "leader_epoch": loss.leader_epoch,
            "start": loss.start,
            "end": loss.end,
            "high_watermark": loss.high_watermark,
            "committed": loss.committed,
            "restarted_at": loss.restarted_at,
            "now_ms": loss.now_ms,
        }
        for loss in node.losses.recent
        if _fits(loss.topic_partition, topic, partition)
    ]


def _unclean_elections(node: Node, topic: str | None, partition: int | None) -> list[Json]:
    """The unclean elections made by this broker's controller."""
    found = []
    for elected in node.unclean_elections:
        name = node.image.name_of(elected.key)
        if _fits(name, topic, partition):
            where = {"topic": name and name.topic, "partition": elected.key.partition}
            found.append({**where, **_slots(elected.election)})
    return found


def _slots(value: Any) -> Json:
    """The fields of a slotted value; tuples become lists."""
    fields = {name: getattr(value, name) for name in type(value).__annotations__}
    return {name: list(v) if isinstance(v, tuple) else v for name, v in fields.items()}
