"""Which settings the controller refuses to write into the store.

The tables of `core/settings` say what is sound. Values must come in their one spelling:
brokers read them as they are.
"""

from collections.abc import Callable

from tidelog.core.settings.topic_values import broker_problem, normal, topic_problem


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
