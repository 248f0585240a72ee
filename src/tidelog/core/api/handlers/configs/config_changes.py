"""IncrementalAlterConfigs 0-1: set, unset and lengthen settings of topics and brokers.

A list is lengthened or shortened from what this broker's image has. Always true: the
controller gets values that are sound by themselves, in the one spelling of the store.
"""

from collections import Counter
from collections.abc import Mapping

from tidelog.core.api.context import BrokerContext, Handling, Struct
from tidelog.core.api.handlers.configs.described_configs import (
    BROKER,
    TOPIC,
    check_own_id,
    cluster_configs,
    own_configs,
    topic_configs,
)
from tidelog.core.api.handlers.refusals import Refused, name_problem, told
from tidelog.core.controller.effects import TopicAnswer
from tidelog.core.controller.events import AlterConfigReceived
from tidelog.core.errors import ErrorCode
from tidelog.core.settings import topic_keys
from tidelog.core.settings.broker_keys import BROKER as BROKER_SETTINGS
from tidelog.core.settings.setting import Setting, spell
from tidelog.core.settings.topic_values import broker_problem, normal, topic_problem

_SET, _DELETE, _APPEND, _SUBTRACT = range(4)


def incremental_alter_configs(broker: BrokerContext, request: Struct) -> Handling:
    """Each resource changes as a whole or not at all."""
    resources = request["resources"]
    times = Counter(_identity(resource) for resource in resources)
    results: dict[tuple[int, str], TopicAnswer] = {}
    events: dict[tuple[int, str], AlterConfigReceived] = {}
    for resource in resources:
        identity = _identity(resource)
        try:
            if times[identity] > 1:
                message = f"{identity[1]!r} is in the request more than once."
                raise Refused(ErrorCode.INVALID_REQUEST, message)
            results[identity] = TopicAnswer(ErrorCode.NONE)
            change = _change(broker, resource)
            change.validate_only = request["validate_only"]
            if change.changes:
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
                "error_message": told(answer.message),
                "resource_type": kind,
                "resource_name": name,
            }
            for (kind, name), answer in results.items()
        ],
    }


def _identity(resource: Struct) -> tuple[int, str]:
    return resource["resource_type"], resource["resource_name"]


def _change(broker: BrokerContext, resource: Struct) -> AlterConfigReceived:
    kind, name = _identity(resource)
    if kind == TOPIC:
        if (problem := name_problem(name)) is not None:
            raise Refused(ErrorCode.INVALID_TOPIC_EXCEPTION, problem)
        changes = _changes(resource["configs"], topic_configs(broker, name), topic_keys.TOPIC)
        for key, text in changes.items():
            if text is not None and (problem := topic_problem(key, text)) is not None:
                raise Refused(ErrorCode.INVALID_CONFIG, problem)
        return AlterConfigReceived(0, name, _spelled(changes))
    if kind != BROKER:
        raise Refused(ErrorCode.INVALID_REQUEST, f"Resource type {kind} can't be changed here.")
    one = None
    if name:
        check_own_id(broker, name)
        one = broker.node.config.broker_id
    current = cluster_configs(broker) if one is None else own_configs(broker)
    changes = _changes(resource["configs"], current, BROKER_SETTINGS)
    # What does not exist is as good as unset: Kafka's tools clear more than we have.
    changes = {k: v for k, v in changes.items() if v is not None or k in BROKER_SETTINGS}
    for key, text in changes.items():
        if (problem := broker_problem(key, text, one)) is not None:
            raise Refused(ErrorCode.INVALID_REQUEST, problem)
    return AlterConfigReceived(0, None, _spelled(changes), one)


def _changes(
    configs: list[Struct],
    current: Mapping[str, str],
    settings: Mapping[str, Setting],
) -> dict[str, str | None]:
    """What each setting is to become; None takes it back to its default."""
    changes: dict[str, str | None] = {}
    for config in configs:
        name, operation, text = config["name"], config["config_operation"], config["value"]
        if name in changes:
            raise Refused(ErrorCode.INVALID_REQUEST, f"{name} is changed twice.")
        if operation == _DELETE:
            changes[name] = None
            continue
        if text is None:
            raise Refused(ErrorCode.INVALID_REQUEST, f"{name} has no value.")
        if operation == _SET:
            changes[name] = text
        elif operation in (_APPEND, _SUBTRACT):
            setting = settings.get(name)
            if setting is None or setting.type != "list":
                raise Refused(ErrorCode.INVALID_CONFIG, f"{name} is no list; set it instead.")
            before = current.get(name, spell(setting.default)) or ""
            changes[name] = _edited(before, text, keep=operation == _APPEND)
        else:
            message = f"{name}: there is no operation {operation}."
            raise Refused(ErrorCode.INVALID_REQUEST, message)
    return changes


def _edited(before: str, text: str, keep: bool) -> str:
    """A list with the items of another one added or taken out."""
    items = [item for item in before.split(",") if item]
    wanted = [item.strip() for item in text.split(",")]
    if keep:
        items += [item for item in dict.fromkeys(wanted) if item and item not in items]
    else:
        items = [item for item in items if item not in wanted]
    return ",".join(items)


def _spelled(changes: Mapping[str, str | None]) -> dict[str, str | None]:
    return {name: None if text is None else normal(name, text) for name, text in changes.items()}
