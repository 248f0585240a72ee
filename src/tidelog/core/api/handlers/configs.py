"""DescribeConfigs 1-4, IncrementalAlterConfigs 0-1, AlterConfigs 0-2, ListConfigResources 0-1:
settings of topics and brokers.

A broker does not know the files of other brokers, so it describes only itself; clients send the
request to the broker that it is about.

Invariants:
- A resource is described once, however often the request names it. A broker has hundreds of
  settings and one thread: a request of a few kilobytes must not occupy it for seconds.
- The controller gets valid values only, in the one spelling of the store. It appends to lists and
  subtracts from them itself, so that no concurrent change is lost.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from typing import NamedTuple

from tidelog.core.api.context import BrokerContext, Handling, Struct
from tidelog.core.api.handlers.brokers import alive_brokers
from tidelog.core.api.handlers.refusals import Refused, error_text, name_problem
from tidelog.core.controller.effects import TopicAnswer
from tidelog.core.controller.events import AlterConfigReceived
from tidelog.core.controller.metadata import keys
from tidelog.core.errors import ErrorCode
from tidelog.core.settings import topic_keys
from tidelog.core.settings.broker_keys import broker_setting
from tidelog.core.settings.described import (
    Described,
    describe_broker,
    describe_cluster,
    describe_topic,
)
from tidelog.core.settings.setting import Setting
from tidelog.core.settings.topic_values import NOT_FOR_ONE, broker_problem, normal, topic_problem
from tidelog.core.types import BrokerId

TOPIC = 2
BROKER = 4
_OTHER = {8: "loggers", 16: "client metrics", 32: "groups"}
"""Resource types of Kafka that have no settings here."""


class _Subject(NamedTuple):
    """The identity of a description. Most topics have no settings of their own and are described
    alike, so that thousands in one request cost little more than one."""

    kind: int
    own: tuple[tuple[str, str], ...] | None
    """Settings of this resource; None for the cluster-wide broker settings."""
    names: frozenset[str] | None


def describe_configs(broker: BrokerContext, request: Struct) -> Struct:
    """Describe all settings of each resource, or the named ones."""
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
                "error_message": error_text(message) or "",
                "resource_type": kind,
                "resource_name": name,
                "configs": found,
            }
        )
    return {"throttle_time_ms": 0, "results": results}


def _each_once(resources: list[Struct]) -> dict[tuple[int, str], frozenset[str] | None]:
    """Resources with the requested names; None means all. An empty list of names means all too,
    as in Kafka."""
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
            raise Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Topic {name} does not exist.")
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
    """The error for a resource that is neither a topic nor a broker."""
    what = _OTHER.get(kind, "an unknown kind")
    message = f"Only topics (2) and brokers (4) have settings here, not {what} ({kind})."
    return Refused(ErrorCode.INVALID_REQUEST, message)


def check_own_id(broker: BrokerContext, name: str) -> None:
    """Refuse a request that is about another broker."""
    me = broker.node.config.broker_id
    if name != str(me):
        raise Refused(
            ErrorCode.INVALID_REQUEST,
            f"This is broker {me}; send the request to broker {name},"
            " or use an empty name for all.",
        )


def topic_configs(broker: BrokerContext, topic: str) -> Mapping[str, str]:
    """Settings of the topic itself."""
    return broker.node.image.configs.get(keys.topic_config(topic), {})


def cluster_configs(broker: BrokerContext) -> Mapping[str, str]:
    """Dynamic settings of all brokers."""
    return broker.node.image.configs.get(keys.broker_config(None), {})


def own_configs(broker: BrokerContext) -> Mapping[str, str]:
    """Dynamic settings of this broker."""
    return broker.node.image.configs.get(keys.broker_config(broker.node.config.broker_id), {})


def effective_topic_configs(broker: BrokerContext, own: Mapping[str, str]) -> list[Struct]:
    """A new topic's settings, for the response to CreateTopics."""
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


# -- changes ----------------------------------------------------------------------------------

_SET, _DELETE, _APPEND, _SUBTRACT = range(4)


def incremental_alter_configs(broker: BrokerContext, request: Struct) -> Handling:
    """Set, delete, append and subtract. Each resource changes as a whole or not at all."""
    return _alter(broker, request, whole=False)


def alter_configs(broker: BrokerContext, request: Struct) -> Handling:
    """Replace all settings of each resource by those of the request (the older API)."""
    return _alter(broker, request, whole=True)


def _alter(broker: BrokerContext, request: Struct, *, whole: bool) -> Handling:
    resources = request["resources"]
    times = Counter(_identity(resource) for resource in resources)
    results: dict[tuple[int, str], TopicAnswer] = {}
    events: dict[tuple[int, str], AlterConfigReceived] = {}
    for resource in resources:
        identity = _identity(resource)
        try:
            if times[identity] > 1:
                message = f"{identity[1]!r} is named more than once in the request."
                raise Refused(ErrorCode.INVALID_REQUEST, message)
            change = _change(broker, resource, whole)
            change.validate_only = request["validate_only"]
            results[identity] = TopicAnswer(ErrorCode.NONE)
            events[identity] = change
        except Refused as refused:
            results[identity] = TopicAnswer(refused.error, refused.message)
    answers = yield list(events.values())
    results.update(zip(events, answers, strict=True))
    return {
        "throttle_time_ms": 0,
        "responses": [
            {
                "error_code": answer.error,
                "error_message": error_text(answer.message),
                "resource_type": kind,
                "resource_name": name,
            }
            for (kind, name), answer in results.items()
        ],
    }


def _identity(resource: Struct) -> tuple[int, str]:
    return resource["resource_type"], resource["resource_name"]


def _change(broker: BrokerContext, resource: Struct, whole: bool) -> AlterConfigReceived:
    kind, name = _identity(resource)
    if kind == TOPIC:
        if not name:
            message = "Topics have no cluster-wide settings; change the default of the brokers."
            raise Refused(ErrorCode.INVALID_REQUEST, message)
        if (problem := name_problem(name)) is not None:
            raise Refused(ErrorCode.INVALID_TOPIC_EXCEPTION, problem)
        return _of_topic(resource, name, whole)
    if kind != BROKER:
        raise no_settings_of(kind)
    if not name:
        return _of_brokers(resource, None, whole)
    check_own_id(broker, name)
    return _of_brokers(resource, broker.node.config.broker_id, whole)


def _of_topic(resource: Struct, name: str, whole: bool) -> AlterConfigReceived:
    change = AlterConfigReceived(0, name, {}, whole=whole)
    _gather(resource["configs"], change, topic_keys.TOPIC.get)
    _check(change.changes, topic_problem, ErrorCode.INVALID_CONFIG)
    return change


def _of_brokers(resource: Struct, one: BrokerId | None, whole: bool) -> AlterConfigReceived:
    change = AlterConfigReceived(0, None, {}, one, whole=whole)
    _gather(resource["configs"], change, broker_setting)
    # Ignore deletions of settings that can't be set: Kafka's tools delete more than we have.
    for key in [key for key, text in change.changes.items() if text is None]:
        if broker_problem(key, None, one) is not None:
            del change.changes[key]
    error = ErrorCode.INVALID_REQUEST
    if one is not None and any(change.changes.get(key) for key in NOT_FOR_ONE):
        error = ErrorCode.INVALID_CONFIG
    _check(change.changes, lambda key, text: broker_problem(key, text, one), error)
    for key in (*change.appended, *change.subtracted):
        if (problem := broker_problem(key, None, one)) is not None:
            raise Refused(error, problem)
    return change


def _check(
    changes: dict[str, str | None], problem_of: Callable[[str, str], str | None], error: ErrorCode
) -> None:
    """Refuse invalid values; convert the others to the store's spelling."""
    for key, text in changes.items():
        if text is None:
            continue
        if (problem := problem_of(key, text)) is not None:
            raise Refused(error, problem)
        changes[key] = normal(key, text)


def _gather(
    configs: list[Struct],
    change: AlterConfigReceived,
    setting_of: Callable[[str], Setting | None],
) -> None:
    """Collect the new value of each setting; None resets it to its default."""
    seen: set[str] = set()
    for config in configs:
        name, text = config["name"], config["value"]
        operation = config.get("config_operation", _SET)
        if name in seen:
            raise Refused(ErrorCode.INVALID_REQUEST, f"{name} is named more than once.")
        seen.add(name)
        if operation == _DELETE:
            change.changes[name] = None
            continue
        if text is None:
            raise Refused(ErrorCode.INVALID_REQUEST, f"{name} has no value.")
        if operation == _SET:
            change.changes[name] = text
        elif operation in (_APPEND, _SUBTRACT):
            setting = setting_of(name)
            if setting is None or setting.type != "list":
                raise Refused(ErrorCode.INVALID_CONFIG, f"{name} is not a list; set it instead.")
            edits = change.appended if operation == _APPEND else change.subtracted
            edits[name] = ",".join(item.strip() for item in text.split(","))
        else:
            message = f"{name}: operation {operation} is unknown."
            raise Refused(ErrorCode.INVALID_REQUEST, message)


# -- resources --------------------------------------------------------------------------------

BROKER_LOGGER = 8
CLIENT_METRICS = 16
GROUP = 32

_KINDS = (TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP)
"""The resource types of Kafka. The last three have no settings here."""


def list_config_resources(broker: BrokerContext, request: Struct) -> Struct:
    """List resources of the requested types, or of all; version 0 means client metrics only."""
    asked = [CLIENT_METRICS] if broker.version == 0 else request["resource_types"] or _KINDS
    if not set(asked) <= set(_KINDS):
        error = ErrorCode.UNSUPPORTED_VERSION
        return {"throttle_time_ms": 0, "error_code": error, "config_resources": []}
    image = broker.node.image
    names = {
        BROKER: [str(known) for known in sorted(alive_brokers(image, broker.listener))],
        TOPIC: sorted(image.topics),
    }
    return {
        "throttle_time_ms": 0,
        "error_code": ErrorCode.NONE,
        "config_resources": [
            {"resource_name": name, "resource_type": kind}
            for kind in names
            if kind in asked
            for name in names[kind]
        ],
    }
