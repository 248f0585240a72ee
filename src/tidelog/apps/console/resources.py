"""The pages' data: one function for each resource, from a sample of now or of an earlier moment.

Nothing here sends a request; what is not in a sample (configs, groups, a Kafka cluster's offsets)
is in `fetched.py`. The shapes are those of docs/reference/console-api.md.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from tidelog.apps.console.failure import NOT_FOUND, Failure
from tidelog.apps.console.sample import Sample
from tidelog.apps.views.broker import BrokerView, State, brokers_from_states
from tidelog.apps.views.cluster import HealthView, PartitionProblem, health_from_states
from tidelog.apps.views.partition import PartitionView, partition_from_states
from tidelog.core.storage.layout import format_topic_id
from tidelog.core.types import BrokerId, TopicPartition
from tidelog.shell.client.cluster_metadata import (
    NO_LEADER,
    NO_TOPIC_ID,
    PartitionMetadata,
    TopicMetadata,
)

Json = dict[str, Any]
PROBLEMS_MAX = 200
OFFLINE, UNDER_MIN_ISR, DAMAGED, UNDER_REPLICATED = (
    "offline",
    "under_min_isr",
    "damaged",
    "under_replicated",
)


class Resource(NamedTuple):
    """What a page shows: a kind, and the name of a topic, partition, broker, group or
    transactional id."""

    kind: str
    name: str = ""
    number: int = 0

    @property
    def key(self) -> TopicPartition | None:
        """The partition of a partition page; None for other pages."""
        return TopicPartition(self.name, self.number) if self.kind == PARTITION else None


OVERVIEW, TOPIC, PARTITION, BROKER = "overview", "topics", "partitions", "brokers"
GROUPS, GROUP, TRANSACTIONS, TRANSACTION = "groups", "group", "transactions", "transaction"


# -- overview --------------------------------------------------------------------------------


def overview(sample: Sample) -> Json:
    """Return the cluster's health, brokers, topics and rates."""
    metadata = sample.metadata
    health = health_from_states(metadata, sample.min_isrs, sample.answers)
    controller = metadata.controller_id
    topics = [_topic_row(sample, topic) for _, topic in sorted(metadata.topics.items())]
    for name in (OFFLINE, UNDER_MIN_ISR):
        counts = Counter(each.topic for each in getattr(health, name))
        for row in topics:
            row[name] = counts[row["topic"]]
    return {
        "at_ms": sample.at_ms,
        "kind": "tidelog" if sample.is_tidelog else "kafka",
        "cluster_id": metadata.cluster_id,
        "controller": None if controller == NO_LEADER else controller,
        "brokers": [_broker_row(sample, each) for each in _broker_views(sample)],
        "topics": topics,
        "counts": {
            "topics": len(topics),
            "partitions": health.partitions,
            "replicas": sum(
                len(each.replicas)
                for topic in metadata.topics.values()
                for each in topic.partitions.values()
            ),
            "offline": len(health.offline),
            "under_replicated": len(health.under_replicated),
            "under_min_isr": len(health.under_min_isr),
            "damaged": len(health.damaged),
        },
        "problems": _problems(health)[:PROBLEMS_MAX],
        "rates": _rates(sample),
    }


def _broker_views(sample: Sample) -> list[BrokerView]:
    return brokers_from_states(sample.metadata, sample.registered, sample.answers)


def _broker_row(sample: Sample, view: BrokerView) -> Json:
    return {
        **view._asdict(),
        "process": sample.processes.get(view.id),
        "isolated": sample.isolated.get(view.id),
    }


def _topic_row(sample: Sample, topic: TopicMetadata) -> Json:
    partitions = topic.partitions.values()
    written = sample.totals.written.get(topic.name)
    return {
        "topic": topic.name,
        "partitions": len(partitions),
        "replication_factor": max((len(each.replicas) for each in partitions), default=0),
        "under_replicated": sum(len(each.isr) < len(each.replicas) for each in partitions),
        "internal": topic.internal,
        "log_end_offset_sum": written,
        "produced_per_s": _topic_rate(sample, topic.name, written),
    }


def _topic_rate(sample: Sample, topic: str, written: int | None) -> float | None:
    before = sample.before
    if before is None or written is None or topic not in before.written:
        return None
    return _per_second(written - before.written[topic], sample.at_ms - before.at_ms)


def _rates(sample: Sample) -> Json | None:
    before, now = sample.before, sample.totals
    if before is None or now.at_ms <= before.at_ms or not now.written:
        return None
    span_ms = now.at_ms - before.at_ms
    written = sum(max(0, end - before.written.get(topic, 0)) for topic, end in now.written.items())
    return {
        "produced_per_s": _per_second(written, span_ms),
        "committed_per_s": _per_second(now.committed - before.committed, span_ms),
    }


def _per_second(count: int, span_ms: int) -> float | None:
    return round(max(0, count) * 1000 / span_ms, 1) if span_ms > 0 else None


def _problems(health: HealthView) -> list[Json]:
    """Return the problems, the worst first; a partition has one of each kind at most."""
    found = [_problem(each, OFFLINE, _offline_text(each)) for each in health.offline]
    leaderless = {(each.topic, each.partition) for each in health.offline}
    for each in health.under_min_isr:
        if (each.topic, each.partition) not in leaderless:
            text = f"{len(each.isr)} of {each.min_isr} replicas in sync: acks=all is rejected"
            found.append(_problem(each, UNDER_MIN_ISR, text))
    for replica in health.damaged:
        text = f"broker {replica.broker}: damaged from offset {replica.offset}: {replica.reason}"
        found.append(
            {
                "topic": replica.topic,
                "partition": replica.partition,
                "kind": DAMAGED,
                "text": text,
            }
        )
    for each in health.under_replicated:
        if (each.topic, each.partition) not in leaderless:
            missing = [broker for broker in each.replicas if broker not in each.isr]
            found.append(_problem(each, UNDER_REPLICATED, f"{_brokers(missing)} not in sync"))
    return found


def _offline_text(each: PartitionProblem) -> str:
    return f"no leader; the last in-sync replicas: {_brokers(each.isr)}"


def _problem(each: PartitionProblem, kind: str, text: str) -> Json:
    return {"topic": each.topic, "partition": each.partition, "kind": kind, "text": text}


def _brokers(ids: Sequence[BrokerId]) -> str:
    if not ids:
        return "none"
    return f"{'broker' if len(ids) == 1 else 'brokers'} {', '.join(map(str, ids))}"


# -- topics ----------------------------------------------------------------------------------


def topic(sample: Sample, name: str, configs: list[Json]) -> Json:
    """Return a topic's configs and partitions."""
    found = find_topic(sample, name)
    return {
        "at_ms": sample.at_ms,
        "topic": name,
        "topic_id": None if found.id == NO_TOPIC_ID else format_topic_id(found.id),
        "internal": found.internal,
        "configs": configs,
        "partitions": [
            _partition_row(_partition_view(sample, found, each))
            for each in found.partitions.values()
        ],
    }


def _partition_row(view: PartitionView) -> Json:
    leader = next((each for each in view.replicas if each.broker == view.leader), None)
    return {
        "partition": view.partition,
        "leader": view.leader,
        "leader_epoch": view.leader_epoch,
        "replicas": [each.broker for each in view.replicas],
        "isr": view.isr,
        "elr": view.elr,
        "min_isr": view.min_isr,
        "log_start_offset": leader and leader.log_start_offset,
        "log_end_offset": leader and leader.log_end_offset,
        "high_watermark": leader and leader.high_watermark,
        "problem": _problem_of(view),
    }


def _problem_of(view: PartitionView) -> str | None:
    """Return the worst problem of a partition."""
    if view.leader is None:
        return OFFLINE
    if view.min_isr is not None and len(view.isr) < min(view.min_isr, len(view.replicas)):
        return UNDER_MIN_ISR
    if view.damaged:
        return DAMAGED
    return UNDER_REPLICATED if len(view.isr) < len(view.replicas) else None


def find_topic(sample: Sample, name: str) -> TopicMetadata:
    """Return a topic's metadata. Raises Failure."""
    found = sample.metadata.topics.get(name)
    if found is None:
        raise Failure(NOT_FOUND, f"there is no topic {name!r}", "the overview lists all topics")
    return found


def _partition_view(
    sample: Sample, found: TopicMetadata, partition: PartitionMetadata
) -> PartitionView:
    return partition_from_states(sample.fetched, found.name, found.id, partition)


# -- partitions ------------------------------------------------------------------------------


def partition_view(sample: Sample, key: TopicPartition) -> PartitionView:
    """Return the replicas of a partition. Raises Failure."""
    found = find_topic(sample, key.topic)
    known = found.partitions.get(key.partition)
    if known is None:
        raise Failure(
            NOT_FOUND,
            f"topic {key.topic!r} has no partition {key.partition}",
            f"its partitions are 0 to {len(found.partitions) - 1}",
        )
    return _partition_view(sample, found, known)


def partition(sample: Sample, view: PartitionView) -> Json:
    """Return the data of a partition; `explain` and `events` are added by the caller."""
    key = TopicPartition(view.topic, view.partition)
    leader = sample.fetched.leader_of(key, view.leader_epoch)
    return {
        "at_ms": sample.at_ms,
        "partition": view.as_data(),
        "missing": None,
        "followers": followers(sample, leader),
        "pending_isr": _pending_isr(leader),
        "last_seen": _last_seen(sample, view),
    }


_LOG = (
    "log_start_offset",
    "log_end_offset",
    "high_watermark",
    "last_stable_offset",
    "epochs",
    "damage",
)


def _last_seen(sample: Sample, view: PartitionView) -> list[Json]:
    """Return the logs of replicas whose broker does not respond, as they were last seen."""
    found = []
    for row in view.replicas:
        seen = sample.seen.get(row.broker)
        if row.unreachable is None or seen is None:
            continue
        for each in seen.state["partitions"]:
            if (each["topic"], each["partition"]) == (view.topic, view.partition):
                log = {name: each.get(name) for name in _LOG}
                found.append({"broker": row.broker, "at_ms": seen.at_ms, **log})
    return found


def followers(sample: Sample, leader: State | None) -> list[Json]:
    """Return the followers as the leader sees them."""
    if leader is None:
        return []
    state = sample.answers.states.get(leader["leader"])
    now_ms = None if state is None else state.get("now_ms")
    return [
        {
            "broker": each["broker"],
            "log_end_offset": each["log_end_offset"],
            "last_fetch_ms_ago": _ago(now_ms, each.get("last_fetch_ms")),
            "waits_from": each.get("waits_from"),
            "in_isr": each["in_isr"],
        }
        for each in leader.get("followers") or ()
    ]


def _ago(now_ms: int | None, at_ms: int | None) -> int | None:
    return None if now_ms is None or at_ms is None else max(0, now_ms - at_ms)


def _pending_isr(leader: State | None) -> Json | None:
    pending = None if leader is None else leader.get("pending_isr")
    if not pending:
        return None
    return {"kind": pending["kind"], "broker": pending["brokers"][0], **pending}


# -- brokers ---------------------------------------------------------------------------------


def broker(sample: Sample, number: BrokerId, configs: list[Json]) -> Json:
    """Return a broker, its replicas, and what it reports about itself."""
    view = next((each for each in _broker_views(sample) if each.id == number), None)
    if view is None:
        raise Failure(NOT_FOUND, f"there is no broker {number}", "the overview lists all brokers")
    state = sample.answers.states.get(number)
    return {
        "at_ms": sample.at_ms,
        "broker": _broker_row(sample, view),
        "state": None if state is None else _own_state(state),
        "replicas": _replica_rows(sample, number),
        "configs": configs,
    }


_OWN = (
    "acting",
    "detached",
    "broker_epoch",
    "is_controller",
    "controller_epoch",
    "revision",
    "scrub",
    "losses",
    "unclean_elections",
)


def _own_state(state: Mapping[str, Any]) -> Json:
    return {name: state.get(name) for name in _OWN}


def _replica_rows(sample: Sample, number: BrokerId) -> list[Json]:
    state = sample.answers.states.get(number)
    own = {} if state is None else {(p["topic"], p["partition"]): p for p in state["partitions"]}
    return [
        _replica_row(name, each, number, own.get((name, each.partition)))
        for name, found in sorted(sample.metadata.topics.items())
        for each in found.partitions.values()
        if number in each.replicas
    ]


def _replica_row(topic: str, known: PartitionMetadata, number: BrokerId, own: State | None) -> Json:
    reported: Mapping[str, Any] = own or {}
    return {
        "topic": topic,
        "partition": known.partition,
        "role": reported.get("role"),
        "leads": known.leader == number,
        "in_isr": number in known.isr,
        "log_start_offset": reported.get("log_start_offset"),
        "log_end_offset": reported.get("log_end_offset"),
        "high_watermark": reported.get("high_watermark"),
        "size": reported.get("size"),
        "damage": reported.get("damage"),
    }
