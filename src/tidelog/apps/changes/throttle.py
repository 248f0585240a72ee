"""Set and remove the throttles of a reassignment, as kafka-reassign-partitions does.

Rates are set for every broker of the plan, lists of replicas for every topic of it: as leaders the
replicas before the move, as followers those that are added.
"""

from tidelog.apps.changes.outcome import Change, rejected
from tidelog.apps.changes.reassignment_plan import Plan
from tidelog.core.types import BrokerId
from tidelog.shell.client.admin import BROKER_RESOURCE, TOPIC_RESOURCE
from tidelog.shell.client.administration.configs import (
    DELETE,
    SET,
    ConfigChange,
    Resource,
    alter_configs,
    describe_configs,
)
from tidelog.shell.client.client_errors import ClientError
from tidelog.shell.client.cluster import Cluster

RATES = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
LISTS = ("leader.replication.throttled.replicas", "follower.replication.throttled.replicas")


def set_throttle(cluster: Cluster, before: Plan, plan: Plan, rate: int) -> list[Change]:
    """Limit the copying of a plan to `rate` bytes a second; return only what was rejected."""
    leaders: dict[str, list[str]] = {}
    followers: dict[str, list[str]] = {}
    brokers: set[BrokerId] = set()
    for key, wanted in sorted(plan.items()):
        added = [broker for broker in wanted if broker not in before[key]]
        brokers.update(before[key], wanted)
        leaders.setdefault(key.topic, []).extend(f"{key.partition}:{b}" for b in before[key])
        followers.setdefault(key.topic, []).extend(f"{key.partition}:{b}" for b in added)
    changes: dict[Resource, list[ConfigChange]] = {}
    for topic in leaders:
        lists = (",".join(leaders[topic]), ",".join(followers[topic]))
        changes[Resource(TOPIC_RESOURCE, topic)] = [
            ConfigChange(SET, name, text) for name, text in zip(LISTS, lists, strict=True)
        ]
    for broker in sorted(brokers & cluster.metadata.brokers.keys()):
        changes[Resource(BROKER_RESOURCE, str(broker))] = [
            ConfigChange(SET, name, str(rate)) for name in RATES
        ]
    return _alter(cluster, changes)


def clear_throttle(cluster: Cluster, plan: Plan) -> list[Change]:
    """Remove the throttles of all live brokers and of the plan's topics, as Kafka's tool does, if
    one of these topics has any; return only what was rejected."""
    topics = [Resource(TOPIC_RESOURCE, topic) for topic in sorted({key.topic for key in plan})]
    found = describe_configs(cluster, topics, LISTS)
    if not any(entry.value for entries in found.values() for entry in entries):
        return []
    return _clear(cluster, topics)


def clear_throttle_of(cluster: Cluster, broker: BrokerId) -> list[Change]:
    """Remove the throttles of all live brokers, and of the topics with one for this broker."""
    topics = [Resource(TOPIC_RESOURCE, topic) for topic in sorted(cluster.metadata.topics)]
    found = describe_configs(cluster, topics, LISTS[:1]) if topics else {}
    throttled = [
        whose
        for whose, entries in found.items()
        if any(_names(entry.value, broker) for entry in entries)
    ]
    return _clear(cluster, throttled) if throttled else []


def _names(text: str | None, broker: BrokerId) -> bool:
    """Whether a list of throttled replicas has one of this broker."""
    return any(each.strip().endswith(f":{broker}") for each in (text or "").split(","))


def _clear(cluster: Cluster, topics: list[Resource]) -> list[Change]:
    changes = {whose: [ConfigChange(DELETE, name) for name in LISTS] for whose in topics}
    for broker in sorted(cluster.metadata.brokers):
        changes[Resource(BROKER_RESOURCE, str(broker))] = [
            ConfigChange(DELETE, name) for name in RATES
        ]
    return _alter(cluster, changes)


def _alter(cluster: Cluster, changes: dict[Resource, list[ConfigChange]]) -> list[Change]:
    failed = []
    for whose, listed in changes.items():
        try:
            outcome = alter_configs(cluster, whose, listed)
        except ClientError as error:
            failed.append(Change(str(whose), "", "UNREACHABLE", f"throttle of {whose}: {error}"))
            continue
        if not outcome.holds:
            failed.append(rejected(f"changing the throttle of {whose}", outcome))
    return failed
