"""IncrementalAlterConfigs 0-1 and AlterConfigs 0-2: settings of topics and brokers changed.

The first sets, unsets, lengthens and shortens; the second, older one replaces everything that
was set. Always true: the controller gets values that are sound by themselves, in the one
spelling of the store; lists it lengthens and shortens itself, so that no change is lost.
"""

from collections import Counter
from collections.abc import Callable

from tidelog.core.api.context import BrokerContext, Handling, Struct
from tidelog.core.api.handlers.configs.described_configs import (
    BROKER,
    TOPIC,
    check_own_id,
    no_settings_of,
)
from tidelog.core.api.handlers.refusals import Refused, name_problem, told
from tidelog.core.controller.effects import TopicAnswer
from tidelog.core.controller.events import AlterConfigReceived
from tidelog.core.errors import ErrorCode
from tidelog.core.settings import topic_keys
from tidelog.core.settings.broker_keys import broker_setting
from tidelog.core.settings.setting import Setting
from tidelog.core.settings.topic_values import (
    NOT_FOR_ONE,
    broker_problem,
    normal,
    topic_problem,
)
from tidelog.core.types import BrokerId

_SET, _DELETE, _APPEND, _SUBTRACT = range(4)


def incremental_alter_configs(broker: BrokerContext, request: Struct) -> Handling:
    """Each resource changes as a whole or not at all."""
    return _alter(broker, request, whole=False)


def alter_configs(broker: BrokerContext, request: Struct) -> Handling:
    """Each resource has what it is given, and nothing that was set before."""
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
                message = f"{identity[1]!r} is in the request more than once."
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
                "error_message": told(answer.message),
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
            message = "Topics have no default of their own; change that of the brokers."
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
    # What can't be set is as good as unset: Kafka's tools clear more than we have.
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
    """Refuse what can't be; bring the others into the store's spelling."""
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
    """What each setting is to become; None takes it back to its default."""
    seen: set[str] = set()
    for config in configs:
        name, text = config["name"], config["value"]
        operation = config.get("config_operation", _SET)
        if name in seen:
            raise Refused(ErrorCode.INVALID_REQUEST, f"{name} is changed twice.")
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
                raise Refused(ErrorCode.INVALID_CONFIG, f"{name} is no list; set it instead.")
            edits = change.appended if operation == _APPEND else change.subtracted
            edits[name] = ",".join(item.strip() for item in text.split(","))
        else:
            message = f"{name}: there is no operation {operation}."
            raise Refused(ErrorCode.INVALID_REQUEST, message)
