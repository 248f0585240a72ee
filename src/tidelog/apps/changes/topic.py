"""Create, alter and delete topics."""

from collections.abc import Mapping, Sequence

from tidelog.apps.changes.outcome import Change, done, near_keys, rejected
from tidelog.core.errors import ErrorCode
from tidelog.core.settings.topic_keys import TOPIC
from tidelog.shell.client import admin
from tidelog.shell.client.administration import configs, topics
from tidelog.shell.client.administration.configs import ConfigChange, Resource
from tidelog.shell.client.administration.topics import Created, NewTopic, Outcome
from tidelog.shell.client.client_errors import BrokerError
from tidelog.shell.client.cluster import Cluster


def create_topics(
    cluster: Cluster, wanted: Sequence[NewTopic], *, if_not_exists: bool, validate_only: bool
) -> list[Change]:
    """Create topics, and wait until they have leaders or the time is up."""
    made = topics.create_topics(cluster, wanted, validate_only=validate_only)
    changes = []
    for topic, created in zip(wanted, made, strict=True):
        outcome = created.outcome
        if outcome.holds:
            text = f"{topic.name}: {'can be created' if validate_only else 'created'}"
            text += _size(topic, created)
            if not validate_only and not _has_leaders(cluster, topic.name):
                text += "; it has no leaders yet, see `tidelog topic describe`"
            changes.append(done(topic.name, text))
        elif outcome.error == ErrorCode.TOPIC_ALREADY_EXISTS and if_not_exists:
            changes.append(done(topic.name, f"{topic.name}: exists already, not changed"))
        else:
            hint = near_keys(topic.configs, list(TOPIC))
            changes.append(rejected(f"creating topic {topic.name}", outcome, hint))
    return changes


def _size(topic: NewTopic, created: Created) -> str:
    partitions, factor = created.partitions, created.replication_factor
    if partitions < 0:  # an old broker does not return the counts
        partitions = len(topic.assignment) or topic.partitions
        factor = len(topic.assignment[0]) if topic.assignment else topic.replication_factor
    return f", partitions: {partitions}, replication factor: {factor}"


def _has_leaders(cluster: Cluster, name: str) -> bool:
    try:
        admin.await_leaders(cluster, name)
    except BrokerError:
        return False
    return True


def delete_topics(cluster: Cluster, names: Sequence[str]) -> list[Change]:
    """Delete topics, and wait until they are no longer listed or the time is up."""
    changes = []
    for outcome in topics.delete_topics(cluster, names) if names else []:
        if not outcome.holds:
            changes.append(rejected(f"deleting topic {outcome.name}", outcome))
            continue
        try:
            admin.await_deleted(cluster, outcome.name)
        except BrokerError:
            text = f"{outcome.name}: deletion in progress; it is still listed"
        else:
            text = f"{outcome.name}: deleted"
        changes.append(done(outcome.name, text))
    return changes


def alter_topics(
    cluster: Cluster,
    names: Sequence[str],
    *,
    partitions: int | None,
    assignment: Sequence[Sequence[int]],
    settings: Mapping[str, str],
    unset: Sequence[str],
    validate_only: bool,
) -> list[Change]:
    """Add partitions, change configs, or both.

    Configs are validated before partitions are added: partitions can't be removed again.
    """
    wanted = [ConfigChange(configs.SET, key, value) for key, value in settings.items()]
    wanted += [ConfigChange(configs.DELETE, key) for key in unset]
    changes: list[Change] = []
    for name in names:
        doing = f"changing topic {name}"
        outcome = _alter_configs(cluster, name, wanted, validate_only=True)
        if outcome.holds and partitions is not None:
            [outcome] = topics.create_partitions(
                cluster, {name: partitions}, assignment or None, validate_only=validate_only
            )
        if outcome.holds and not validate_only:
            outcome = _alter_configs(cluster, name, wanted, validate_only=False)
        if outcome.holds:
            text = f"{name}: {'can be changed' if validate_only else 'changed'}"
            changes.append(done(name, text + _summary(partitions, settings, unset)))
        else:
            hint = near_keys((*settings, *unset), _keys(cluster, name) if wanted else [])
            changes.append(rejected(doing, outcome._replace(name=name), hint))
    return changes


def _summary(partitions: int | None, settings: Mapping[str, str], unset: Sequence[str]) -> str:
    parts = [] if partitions is None else [f"partitions: {partitions}"]
    parts += [f"{key}={value}" for key, value in settings.items()]
    parts += [f"{key} reset to its default" for key in unset]
    return ", " + ", ".join(parts)


def _alter_configs(
    cluster: Cluster, name: str, wanted: list[ConfigChange], *, validate_only: bool
) -> Outcome:
    if not wanted:
        return Outcome(name)
    resource = Resource(admin.TOPIC_RESOURCE, name)
    return configs.alter_configs(cluster, resource, wanted, validate_only=validate_only)


def _keys(cluster: Cluster, name: str) -> list[str]:
    """Return the names of the configs that topics of this cluster have."""
    return list(admin.topic_configs(cluster, [name]).get(name, {}))
