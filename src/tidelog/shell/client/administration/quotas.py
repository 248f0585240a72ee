"""List, set and remove client quotas."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from tidelog.core.api_table import ALTER_CLIENT_QUOTAS, DESCRIBE_CLIENT_QUOTAS
from tidelog.core.errors import ErrorCode
from tidelog.core.quotas.entity import Entity
from tidelog.shell.client.administration.topics import Outcome
from tidelog.shell.client.client_errors import BrokerError
from tidelog.shell.client.cluster import Cluster
from tidelog.shell.client.connection import KafkaConnection

_EXACT, _DEFAULT = 0, 1


class EntityQuotas(NamedTuple):
    """An entity and its quotas."""

    entity: Entity
    quotas: dict[str, float]


def describe_quotas(cluster: Cluster, parts: Mapping[str, str | None]) -> list[EntityQuotas]:
    """Return the quotas of entities with these parts, by type; None is the default."""
    components = [
        {"entity_type": kind, "match_type": _DEFAULT if name is None else _EXACT, "match": name}
        for kind, name in parts.items()
    ]
    request = {"components": components, "strict": False}
    answer = cluster.ask_any(lambda broker: broker.call(DESCRIBE_CLIENT_QUOTAS, request))
    if answer["error_code"] != ErrorCode.NONE:
        raise BrokerError("describing quotas", answer["error_code"], answer["error_message"])
    found = [
        EntityQuotas(
            tuple(sorted((part["entity_type"], part["entity_name"]) for part in entry["entity"])),
            {value["key"]: value["value"] for value in entry["values"]},
        )
        for entry in answer["entries"]
    ]
    return sorted(found, key=lambda each: [(kind, name or "") for kind, name in each.entity])


def alter_quotas(
    cluster: Cluster, parts: Mapping[str, str | None], changes: Mapping[str, float | None]
) -> Outcome:
    """Set these quotas of one entity; None removes a quota."""
    entity = [{"entity_type": kind, "entity_name": name} for kind, name in parts.items()]
    ops = [
        {"key": key, "value": value or 0.0, "remove": value is None}
        for key, value in changes.items()
    ]
    request: dict[str, Any] = {
        "entries": [{"entity": entity, "ops": ops}],
        "validate_only": False,
    }
    name = spelled(tuple(parts.items()))

    def ask(controller: KafkaConnection) -> Outcome:
        [result] = controller.call(ALTER_CLIENT_QUOTAS, request)["entries"]
        if result["error_code"] == ErrorCode.NOT_CONTROLLER:
            raise BrokerError(f"changing the quotas of {name}", ErrorCode.NOT_CONTROLLER)
        return Outcome(name, result["error_code"], result["error_message"])

    return cluster.ask_controller(ask)


def spelled(entity: Entity) -> str:
    """Return an entity as text."""
    return ", ".join(
        f"{kind} {'<default>' if name is None else name}"
        for kind, name in sorted(entity, key=lambda part: part[0], reverse=True)
    )
