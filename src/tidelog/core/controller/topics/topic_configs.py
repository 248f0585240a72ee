"""What a change of settings comes to, and what the controller refuses to write into the store.

The tables of `core/settings` say what is sound. Values must come in their one spelling:
brokers read them as they are.
"""

from collections.abc import Callable, Mapping

from tidelog.core.controller.events import AlterConfigReceived
from tidelog.core.settings.broker_keys import broker_setting
from tidelog.core.settings.setting import spell
from tidelog.core.settings.topic_keys import TOPIC
from tidelog.core.settings.topic_values import broker_problem, normal, topic_problem


def resolve_changes(
    current: Mapping[str, str], event: AlterConfigReceived
) -> dict[str, str | None]:
    """What each setting is to become, None for unset; those left out stay as they are."""
    changes = dict.fromkeys(current) if event.whole else {}
    changes.update(event.changes)
    setting_of = broker_setting if event.topic is None else TOPIC.get
    for name in (*event.appended, *event.subtracted):
        setting = setting_of(name)
        before = current.get(name, spell(setting.default) or "" if setting is not None else "")
        items = [item for item in before.split(",") if item]
        if name in event.appended:
            more = [item for item in event.appended[name].split(",") if item]
            items += [item for item in dict.fromkeys(more) if item not in items]
        else:
            fewer = event.subtracted[name].split(",")
            items = [item for item in items if item not in fewer]
        changes[name] = normal(name, ",".join(items))
    return changes


def config_problem(configs: dict[str, str]) -> str | None:
    """What is wrong with the first setting that a topic can't have."""
    return _first(configs, topic_problem)


def broker_config_problem(configs: dict[str, str]) -> str | None:
    """What is wrong with the first setting that running brokers can't take."""
    return _first(configs, broker_problem)


def _first(configs: dict[str, str], problem: Callable[[str, str], str | None]) -> str | None:
    for name, value in configs.items():
        if (found := problem(name, value)) is not None:
            return found
        if normal(name, value) != value:
            return f"{name}={value!r} must be spelled {normal(name, value)!r}"
    return None
