"""Settings as DescribeConfigs returns them: value, source, and the synonyms behind it.

A topic's value comes from the topic, else from a dynamic setting of this broker, else from a
dynamic setting of all brokers, else from the broker's file, else from the table. Synonyms are
listed in that order; the first one is in effect.
"""

from collections.abc import Collection, Iterator, Mapping
from typing import NamedTuple

from tidelog.core.settings.broker_keys import BROKER
from tidelog.core.settings.broker_settings import DEFAULT, BrokerSettings
from tidelog.core.settings.setting import READ_ONLY, TYPE_CODES, Setting, spell
from tidelog.core.settings.topic_keys import SYNONYMS, TOPIC

TOPIC_SOURCE = 1
DYNAMIC_BROKER = 2
DYNAMIC_DEFAULT_BROKER = 3
STATIC_BROKER = 4
DEFAULT_SOURCE = 5


_COARSER = {
    name: names[place + 1 :] for names in SYNONYMS.values() for place, name in enumerate(names[:-1])
}
"""Settings of the same value in larger units, in effect if the finer one is not set."""


class Synonym(NamedTuple):
    """One source that gives the setting a value."""

    name: str
    value: str | None
    source: int


class Described(NamedTuple):
    """One setting of one resource; numbers are Kafka's codes."""

    name: str
    value: str | None
    type: int
    source: int
    read_only: bool
    sensitive: bool
    synonyms: tuple[Synonym, ...]
    documentation: str

    @property
    def is_default(self) -> bool:
        return self.source == DEFAULT_SOURCE


def describe_topic(
    own: Mapping[str, str],
    cluster: Mapping[str, str],
    settings: BrokerSettings,
    names: Collection[str] | None = None,
    broker: Mapping[str, str] | None = None,
) -> list[Described]:
    """Describe a topic's settings. `own`, `cluster` and `broker` are the dynamic settings in the
    store: of the topic, of all brokers and of this broker."""
    described = []
    for name in _wanted(TOPIC, names):
        behind = [Synonym(name, own[name], TOPIC_SOURCE)] if name in own else []
        behind += _of_family(SYNONYMS.get(name, ()), settings, broker or {}, cluster)
        if behind and behind[0].source <= DYNAMIC_DEFAULT_BROKER:
            value = behind[0].value
        else:
            value = spell(settings.topic_default(name))
        described.append(_described(TOPIC[name], value, behind))
    return described


def describe_broker(
    settings: BrokerSettings,
    own: Mapping[str, str],
    cluster: Mapping[str, str],
    names: Collection[str] | None = None,
) -> list[Described]:
    """Describe a broker's settings. `own` and `cluster` are its dynamic settings and those of all
    brokers, from the store."""
    described = []
    table = _all_settings()
    for name in _wanted(table, names):
        behind = list(_behind(table[name], settings, own, cluster))
        value = behind[0].value if behind else None
        for coarser in _COARSER.get(name, ()) if behind else ():
            behind += _behind(table[coarser], settings, own, cluster)
        described.append(_described(table[name], value, behind))
    return described


def describe_cluster(
    cluster: Mapping[str, str], names: Collection[str] | None = None
) -> list[Described]:
    """Describe the dynamic settings of all brokers, and nothing else."""
    table = _all_settings()
    return [
        _described(
            table[name], cluster[name], [Synonym(name, cluster[name], DYNAMIC_DEFAULT_BROKER)]
        )
        for name in _wanted(table, names)
        if name in cluster
    ]


def _all_settings() -> Mapping[str, Setting]:
    """All settings of a broker, including Kafka's settings without effect."""
    from tidelog.core.settings.ignored_keys import IGNORED

    return {**BROKER, **IGNORED}


def _wanted(table: Mapping[str, Setting], names: Collection[str] | None) -> Iterator[str]:
    return (name for name in table if names is None or name in names)


def _of_family(
    names: tuple[str, ...],
    settings: BrokerSettings,
    own: Mapping[str, str],
    cluster: Mapping[str, str],
) -> list[Synonym]:
    """The values of a topic's setting under all broker names of it. As in Kafka, the default of a
    coarser name is shown only behind a value that was set."""
    found = [s for name in names for s in _behind(BROKER[name], settings, own, cluster)]
    is_set = any(s.name == names[0] or s.source != DEFAULT_SOURCE for s in found)
    return found if is_set else []


def _behind(
    setting: Setting, settings: BrokerSettings, own: Mapping[str, str], cluster: Mapping[str, str]
) -> Iterator[Synonym]:
    """All sources of a broker's setting; the one in effect is first."""
    name = setting.name
    if name in own:
        yield Synonym(name, own[name], DYNAMIC_BROKER)
    if name in cluster:
        yield Synonym(name, cluster[name], DYNAMIC_DEFAULT_BROKER)
    if settings.source(name) != DEFAULT and settings.get(name) is not None:
        yield Synonym(name, spell(settings.get(name)), STATIC_BROKER)
    if setting.default is not None:
        yield Synonym(name, spell(setting.default), DEFAULT_SOURCE)


def _described(setting: Setting, value: str | None, behind: list[Synonym]) -> Described:
    sensitive = setting.type == "password"
    if sensitive:
        value, behind = None, [synonym._replace(value=None) for synonym in behind]
    return Described(
        setting.name,
        value,
        TYPE_CODES[setting.type],
        behind[0].source if behind else DEFAULT_SOURCE,
        setting.dynamic == READ_ONLY,
        sensitive,
        tuple(behind),
        _documentation(setting),
    )


def _documentation(setting: Setting) -> str:
    kept = "" if setting.has_effect else "Stored, but without effect so far."
    return " ".join(filter(None, (setting.doc, setting.note, kept)))
