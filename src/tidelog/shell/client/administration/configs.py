"""Describe and change configs of topics and brokers, with their sources and documentation.

Invariant: the configs of one broker are requested from that broker, because only it has read its
file. Those of topics and of all brokers can be requested from any broker.
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
"""Kafka's names of config sources, as its tools print them."""
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
    """The topic or broker that configs belong to; a broker without a name means all brokers."""

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
        """The source of dynamic configs that were set for this resource alone."""
        if self.kind == TOPIC_RESOURCE:
            return SOURCES[1]
        return SOURCES[2] if self.name else SOURCES[3]


class Synonym(NamedTuple):
    """One source of a config's value; the first one in the list takes precedence."""

    name: str
    value: str | None
    source: str


class ConfigEntry(NamedTuple):
    """One config of one resource."""

    name: str
    value: str | None
    source: str
    read_only: bool
    sensitive: bool
    type: str | None
    """None if the broker is too old to return it."""
    documentation: str | None
    synonyms: list[Synonym]

    @property
    def is_default(self) -> bool:
        return self.source == SOURCES[DEFAULT_SOURCE]


class ConfigChange(NamedTuple):
    """A change of one config; DELETE has no value."""

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
    """Return configs by resource, with synonyms. Raises NoSuchTopic, BrokerError."""
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
    """Group resources that can be described in one request."""
    apart = [[each] for each in resources if each.of_one_broker]
    together = [each for each in resources if not each.of_one_broker]
    return [*apart, together] if together else apart


def _ask(cluster: Cluster, whose: Resource, api_key: int, request: Struct) -> Struct:
    if whose.of_one_broker:
        return cluster.broker(int(whose.name)).call(api_key, request)
    return cluster.ask_any(lambda broker: broker.call(api_key, request))


def _checked(result: Struct) -> Resource:
    """Return the resource of a result. Raises NoSuchTopic or BrokerError for its error code."""
    whose = Resource(result["resource_type"], result["resource_name"])
    code = result["error_code"]
    if code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and whose.kind == TOPIC_RESOURCE:
        raise NoSuchTopic(f"topic {whose.name!r}", whose.name)
    if code:
        raise BrokerError(f"request for the configs of {whose}", code, result.get("error_message"))
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
    """Apply all changes or none; with `validate_only`, only check them. Raises NoSuchTopic.

    The request can be repeated safely: APPEND adds only items that a list does not have.
    """
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
    """Read all configs of the resource, change them and write them back, for Kafka before 2.3.

    Changes that another client makes in between are lost. Raises ClientError if a config has a
    hidden value, because that would be lost too.
    """
    found = {entry.name: entry for entry in describe_configs(cluster, [whose])[whose]}
    own = {name for name, entry in found.items() if entry.source == whose.own_source}
    values = {name: found[name].value for name in own}
    hidden = [name for name in values if found[name].sensitive]
    if hidden:
        raise ClientError(
            f"can't change configs of {whose}: this broker replaces all of them at once and would"
            f" lose the hidden value of {hidden[0]}; use Kafka 2.3 or newer"
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
    """Return a comma-separated list with the items of `text` added (`keep`) or removed."""
    items = [item.strip() for item in before.split(",") if item.strip()]
    wanted = [item.strip() for item in text.split(",") if item.strip()]
    rest = [item for item in items if item not in wanted]
    return ",".join([*items, *(w for w in wanted if w not in items)] if keep else rest)
