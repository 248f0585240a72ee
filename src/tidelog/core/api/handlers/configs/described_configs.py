"""DescribeConfigs 1-4: the settings of topics and brokers, and where each comes from.

A broker knows the files of no other, so it describes only itself; clients send the question
to the broker it is about.

Always true: however often a resource is named, it is described once. A broker has hundreds of
settings, and one thread: a question of a few kilobytes must not fill it for seconds.
"""

from collections.abc import Mapping
from typing import NamedTuple

from tidelog.core.api.context import BrokerContext, Struct
from tidelog.core.api.handlers.refusals import Refused, name_problem, told
from tidelog.core.controller.metadata import keys
from tidelog.core.errors import ErrorCode
from tidelog.core.settings.described import (
    Described,
    describe_broker,
    describe_cluster,
    describe_topic,
)

TOPIC = 2
BROKER = 4
_OTHER = {8: "loggers", 16: "client metrics", 32: "groups"}
"""What Kafka's later releases keep settings of, too."""


class _Subject(NamedTuple):
    """What is described. Most topics say nothing of their own and are described alike, so that
    thousands in one request cost little more than one."""

    kind: int
    own: tuple[tuple[str, str], ...] | None
    """What was set for it; None for what was set for all brokers."""
    names: frozenset[str] | None


def describe_configs(broker: BrokerContext, request: Struct) -> Struct:
    """All settings of each resource, or those named."""
    synonyms = request["include_synonyms"]
    documented = request.get("include_documentation", False)
    results = []
    shown: dict[_Subject, list[Struct]] = {}
    for (kind, name), names in _each_once(request["resources"]).items():
        error, message, found = ErrorCode.NONE, "", []
        try:
            subject = _subject(broker, kind, name, names)
            if subject not in shown:
                settings = _describe(broker, subject)
                shown[subject] = [_config(each, synonyms, documented) for each in settings]
            found = shown[subject]
        except Refused as refused:
            error, message = refused.error, refused.message
        results.append(
            {
                "error_code": error,
                "error_message": told(message) or "",
                "resource_type": kind,
                "resource_name": name,
                "configs": found,
            }
        )
    return {"throttle_time_ms": 0, "results": results}


def _each_once(resources: list[Struct]) -> dict[tuple[int, str], frozenset[str] | None]:
    """With the names that were asked for; None are all. No names at all mean every name, as in
    Kafka."""
    named: dict[tuple[int, str], list[str]] = {}
    whole = set()
    for resource in resources:
        identity = resource["resource_type"], resource["resource_name"]
        names = resource["configuration_keys"] or ()
        named.setdefault(identity, []).extend(names)
        if not names:
            whole.add(identity)
    return {
        identity: None if identity in whole else frozenset(names)
        for identity, names in named.items()
    }


def _subject(broker: BrokerContext, kind: int, name: str, names: frozenset[str] | None) -> _Subject:
    if kind == TOPIC:
        if (problem := name_problem(name)) is not None:
            raise Refused(ErrorCode.INVALID_TOPIC_EXCEPTION, problem)
        if name not in broker.node.image.topics:
            raise Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"There is no topic {name}.")
        return _Subject(kind, tuple(sorted(topic_configs(broker, name).items())), names)
    if kind != BROKER:
        raise no_settings_of(kind)
    if not name:
        return _Subject(kind, None, names)
    check_own_id(broker, name)
    return _Subject(kind, tuple(sorted(own_configs(broker).items())), names)


def _describe(broker: BrokerContext, subject: _Subject) -> list[Described]:
    cluster, names = cluster_configs(broker), subject.names
    if subject.own is None:
        return describe_cluster(cluster, names)
    own = dict(subject.own)
    if subject.kind == BROKER:
        return describe_broker(broker.settings, own, cluster, names)
    return describe_topic(own, cluster, broker.settings, names, own_configs(broker))


def no_settings_of(kind: int) -> Refused:
    """Neither a topic nor a broker."""
    what = _OTHER.get(kind, "an unknown kind")
    message = f"Only topics (2) and brokers (4) have settings here, not {what} ({kind})."
    return Refused(ErrorCode.INVALID_REQUEST, message)


def check_own_id(broker: BrokerContext, name: str) -> None:
    """A broker speaks only for itself."""
    me = broker.node.config.broker_id
    if name != str(me):
        raise Refused(
            ErrorCode.INVALID_REQUEST,
            f"This is broker {me}; ask broker {name} about itself, or use an empty name for all.",
        )


def topic_configs(broker: BrokerContext, topic: str) -> Mapping[str, str]:
    """What was set for the topic."""
    return broker.node.image.configs.get(keys.topic_config(topic), {})


def cluster_configs(broker: BrokerContext) -> Mapping[str, str]:
    """What was set for all brokers while they ran."""
    return broker.node.image.configs.get(keys.broker_config(None), {})


def own_configs(broker: BrokerContext) -> Mapping[str, str]:
    """What was set for this broker while it ran."""
    return broker.node.image.configs.get(keys.broker_config(broker.node.config.broker_id), {})


def effective_topic_configs(broker: BrokerContext, own: Mapping[str, str]) -> list[Struct]:
    """A new topic's settings, as CreateTopics answers them."""
    cluster = cluster_configs(broker)
    found = describe_topic(own, cluster, broker.settings, None, own_configs(broker))
    return [_config(each, synonyms=False, documented=False) for each in found]


def _config(each: Described, synonyms: bool, documented: bool) -> Struct:
    return {
        "name": each.name,
        "value": each.value,
        "read_only": each.read_only,
        "config_source": each.source,
        "is_sensitive": each.sensitive,
        "synonyms": [synonym._asdict() for synonym in each.synonyms] if synonyms else [],
        "config_type": each.type,
        "documentation": each.documentation if documented else None,
    }
