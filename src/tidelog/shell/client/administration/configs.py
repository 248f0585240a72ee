"""Settings of topics and brokers: each with its source, what stands behind it, and its text.

Always true: one broker's settings are asked of that broker, which alone knows its file; those
of topics and of all brokers may be asked of any.
"""

from collections.abc import Sequence
from typing import NamedTuple

from tidelog.core.api_table import ALTER_CONFIGS, DESCRIBE_CONFIGS, INCREMENTAL_ALTER_CONFIGS
from tidelog.core.errors import ErrorCode
from tidelog.core.wire.codec import Struct
from tidelog.shell.client.admin import BROKER_RESOURCE, TOPIC_RESOURCE
from tidelog.shell.client.administration.topics import Outcome
from tidelog.shell.client.client_errors import BrokerError, ClientError, NoSuchTopic, NotOffered
from tidelog.shell.client.cluster import Cluster

SET, DELETE, APPEND, SUBTRACT = range(4)
DEFAULT_SOURCE = 5
SOURCES = {
    1: "DYNAMIC_TOPIC_CONFIG",
    2: "DYNAMIC_BROKER_CONFIG",
    3: "DYNAMIC_DEFAULT_BROKER_CONFIG",
    4: "STATIC_BROKER_CONFIG",
    DEFAULT_SOURCE: "DEFAULT_CONFIG",
    6: "DYNAMIC_BROKER_LOGGER_CONFIG",
    7: "DYNAMIC_CLIENT_METRICS_CONFIG",
    8: "DYNAMIC_GROUP_CONFIG",
}
"""Kafka's names, as its tools print them."""
TYPES = {
    1: "boolean",
    2: "string",
    3: "int",
    4: "short",
    5: "long",
    6: "double",
    7: "list",
    8: "class",
    9: "password",
}


class Resource(NamedTuple):
    """Whose settings; a broker without a name stands for all brokers."""

    kind: int
    name: str

    def __str__(self) -> str:
        if self.kind == TOPIC_RESOURCE:
            return f"topic {self.name}"
        return f"broker {self.name}" if self.name else "all brokers"

    @property
    def of_one_broker(self) -> bool:
        return self.kind == BROKER_RESOURCE and bool(self.name)

    @property
    def own_source(self) -> str:
        """The source of what was set for it alone, while brokers ran."""
        if self.kind == TOPIC_RESOURCE:
            return SOURCES[1]
        return SOURCES[2] if self.name else SOURCES[3]


class Synonym(NamedTuple):
    """One place that gives a setting a value; the first that does is the one that holds."""

    name: str
    value: str | None
    source: str


class ConfigEntry(NamedTuple):
    """One setting of one resource."""

    name: str
    value: str | None
    source: str
    read_only: bool
    sensitive: bool
    type: str | None
    """None: the broker is too old to tell."""
    documentation: str | None
    synonyms: list[Synonym]

    @property
    def is_default(self) -> bool:
        return self.source == SOURCES[DEFAULT_SOURCE]


class ConfigChange(NamedTuple):
    """One setting to be changed; DELETE takes no value."""

    operation: int
    name: str
    value: str | None = None


def describe_configs(
    cluster: Cluster,
    resources: Sequence[Resource],
    keys: Sequence[str] | None = None,
    *,
    documentation: bool = False,
) -> dict[Resource, list[ConfigEntry]]:
    """Settings by resource, with synonyms. Raises NoSuchTopic, BrokerError."""
    found: dict[Resource, list[ConfigEntry]] = {}
    for asked in _by_broker(resources):
        request = {
            "resources": [
                {
                    "resource_type": each.kind,
                    "resource_name": each.name,
                    "configuration_keys": None if keys is None else list(keys),
                }
                for each in asked
            ],
            "include_synonyms": True,
            "include_documentation": documentation,
        }
        answer = _ask(cluster, asked[0], DESCRIBE_CONFIGS, request)
        for result in answer["results"]:
            whose = _checked(result)
            found[whose] = [_entry(config) for config in result["configs"]]
    return found


def _by_broker(resources: Sequence[Resource]) -> list[list[Resource]]:
    """What may be asked together."""
    apart = [[each] for each in resources if each.of_one_broker]
    together = [each for each in resources if not each.of_one_broker]
    return [*apart, together] if together else apart


def _ask(cluster: Cluster, whose: Resource, api_key: int, request: Struct) -> Struct:
    if whose.of_one_broker:
        return cluster.broker(int(whose.name)).call(api_key, request)
    return cluster.ask_any(lambda broker: broker.call(api_key, request))


def _checked(result: Struct) -> Resource:
    """Whom an answer is about. Raises what it tells."""
    whose = Resource(result["resource_type"], result["resource_name"])
    code = result["error_code"]
    if code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and whose.kind == TOPIC_RESOURCE:
        raise NoSuchTopic(f"topic {whose.name!r}", whose.name)
    if code:
        raise BrokerError(f"settings of {whose}", code, result.get("error_message"))
    return whose


def _entry(config: Struct) -> ConfigEntry:
    kind = config.get("config_type", 0)
    return ConfigEntry(
        config["name"],
        config["value"],
        _source(config["config_source"]),
        config["read_only"],
        config["is_sensitive"],
        TYPES.get(kind),
        config.get("documentation") or None,
        [
            Synonym(each["name"], each["value"], _source(each["source"]))
            for each in config["synonyms"]
        ],
    )


def _source(code: int) -> str:
    return SOURCES.get(code, f"source {code}")


def alter_configs(
    cluster: Cluster,
    whose: Resource,
    changes: Sequence[ConfigChange],
    *,
    validate_only: bool = False,
) -> Outcome:
    """Change them, all or none; or only ask whether that could be. Raises NoSuchTopic. Asked
    twice it does the same: lists are lengthened by what is not in them."""
    request = {
        "resources": [
            {
                "resource_type": whose.kind,
                "resource_name": whose.name,
                "configs": [
                    {"name": each.name, "config_operation": each.operation, "value": each.value}
                    for each in changes
                ],
            }
        ],
        "validate_only": validate_only,
    }
    try:
        answer = _ask(cluster, whose, INCREMENTAL_ALTER_CONFIGS, request)
    except NotOffered:
        answer = _replace_all(cluster, whose, changes, validate_only)
    [result] = answer["responses"]
    try:
        _checked(result)
    except BrokerError as error:
        return Outcome(str(whose), error.code, result.get("error_message"))
    return Outcome(str(whose))


def _replace_all(
    cluster: Cluster, whose: Resource, changes: Sequence[ConfigChange], validate_only: bool
) -> Struct:
    """For Kafka before 2.3: all that is set is read, changed and written back. What somebody
    else changes in between is lost. Raises ClientError rather than lose a hidden value."""
    found = {entry.name: entry for entry in describe_configs(cluster, [whose])[whose]}
    own = {name for name, entry in found.items() if entry.source == whose.own_source}
    values = {name: found[name].value for name in own}
    hidden = [name for name in values if found[name].sensitive]
    if hidden:
        raise ClientError(
            f"{whose} has the hidden setting {hidden[0]}, which this broker can't keep while"
            " another is changed; use a Kafka from 2.3 on"
        )
    for operation, name, value in changes:
        if operation == DELETE:
            values.pop(name, None)
        elif operation == SET:
            values[name] = value
        else:
            before = found[name].value if name in found else None
            values[name] = _edited(before or "", value or "", keep=operation == APPEND)
    resource = {
        "resource_type": whose.kind,
        "resource_name": whose.name,
        "configs": [{"name": name, "value": value} for name, value in values.items()],
    }
    request = {"resources": [resource], "validate_only": validate_only}
    return _ask(cluster, whose, ALTER_CONFIGS, request)


def _edited(before: str, text: str, *, keep: bool) -> str:
    """A list with the items of another one added or taken out."""
    items = [item.strip() for item in before.split(",") if item.strip()]
    wanted = [item.strip() for item in text.split(",") if item.strip()]
    rest = [item for item in items if item not in wanted]
    return ",".join([*items, *(w for w in wanted if w not in items)] if keep else rest)
