"""The table itself: each row is documented and consistent."""

from sys import float_info

import pytest

from tidelog.core.settings.broker_keys import BROKER, SECTIONS
from tidelog.core.settings.ignored_keys import IGNORED, is_kafkas, nearest
from tidelog.core.settings.setting import (
    CLUSTER_WIDE,
    READ_ONLY,
    TYPE_CODES,
    Setting,
    WrongValue,
    parse,
    spell,
)
from tidelog.core.settings.topic_keys import BROKER_NAME, SYNONYMS, TOPIC
from tidelog.core.settings.topic_values import THROTTLED_REPLICAS

ROWS = [*BROKER.values(), *TOPIC.values()]
UNITS = {"ms": "ms", "bytes": "bytes", "hours": "hours", "minutes": "minutes"}
PYTHON_TYPES = {
    "short": int,
    "boolean": bool,
    "string": str,
    "int": int,
    "long": int,
    "double": float,
    "list": tuple,
}


def name(setting: Setting) -> str:
    return setting.name


def test_no_name_is_in_two_sections() -> None:
    assert len(BROKER) == sum(len(rows) for rows in SECTIONS.values()) >= 60


@pytest.mark.parametrize("setting", ROWS, ids=name)
def test_every_row_is_documented(setting: Setting) -> None:
    assert setting.doc.endswith(".")
    assert setting.doc[0].isupper()
    assert len(setting.doc) < 220, "one or two sentences"
    assert setting.importance in ("high", "medium", "low")
    assert setting.dynamic in (READ_ONLY, CLUSTER_WIDE)


@pytest.mark.parametrize("setting", ROWS, ids=name)
def test_type_unit_and_default_agree(setting: Setting) -> None:
    assert setting.type in TYPE_CODES
    assert setting.default is None or type(setting.default) is PYTHON_TYPES[setting.type]
    last = setting.name.rpartition(".")[2]
    if last in UNITS and setting.type != "boolean":
        assert setting.unit == UNITS[last]
    if setting.unit:
        assert setting.type in ("short", "int", "long", "double")
    if setting.type in ("short", "int", "long"):
        assert setting.least is not None, "a number has a lower end"


@pytest.mark.parametrize("setting", ROWS, ids=name)
def test_the_default_is_a_value_that_can_be_set(setting: Setting) -> None:
    text = spell(setting.default)
    assert parse(setting, text or "") == setting.default


FREE_TEXTS = [s.name for s in ROWS if s.type in ("string", "password") and not s.choices]
"""What these must look like is checked where settings are resolved."""


@pytest.mark.parametrize("setting", [s for s in ROWS if s.name not in FREE_TEXTS], ids=name)
def test_a_wrong_value_is_refused_with_its_reason(setting: Setting) -> None:
    wrong = {
        "boolean": "perhaps",
        "short": "few",
        "int": "many",
        "long": "1e3",
        "double": "half",
        "list": "a,,b",
    }
    with pytest.raises(WrongValue, match=r"must|empty item"):
        parse(setting, wrong.get(setting.type, "neither"))


@pytest.mark.parametrize(
    "setting", [s for s in ROWS if s.type in ("int", "long", "double")], ids=name
)
def test_both_ends_of_a_range_are_allowed_and_nothing_beyond(setting: Setting) -> None:
    least, most = setting.range
    assert least is not None
    assert parse(setting, str(least)) == least
    with pytest.raises(WrongValue, match=f"at least {least}"):
        parse(setting, str(least - 1))
    if most is None:
        assert setting.default == float_info.max
        return
    assert parse(setting, str(most)) == most
    with pytest.raises(WrongValue, match=f"at most {most}"):
        parse(setting, str(most + 1))


def test_values_are_parsed_as_in_kafka() -> None:
    assert parse(BROKER["num.partitions"], " +7 ") == 7
    assert parse(BROKER["delete.topic.enable"], "False") is False
    assert parse(BROKER["log.cleanup.policy"], " compact , delete") == ("compact", "delete")
    assert parse(BROKER["broker.rack"], "") is None
    assert parse(TOPIC["min.cleanable.dirty.ratio"], "1e-2") == 0.01
    with pytest.raises(WrongValue):
        parse(TOPIC["min.cleanable.dirty.ratio"], "nan")
    with pytest.raises(WrongValue, match="duplicate"):
        parse(BROKER["log.cleanup.policy"], "delete,delete")
    with pytest.raises(WrongValue, match="at most"):
        parse(BROKER["num.partitions"], "9" * 10_000)


def test_a_topic_setting_and_the_brokers_behind_it_agree() -> None:
    for topic, names in SYNONYMS.items():
        for broker in names:
            assert BROKER[broker].doc == TOPIC[topic].doc
            assert BROKER[broker].choices == TOPIC[topic].choices
        if len(names) == 1 and topic != "flush.ms":
            assert BROKER[names[0]].default == TOPIC[topic].default
        assert BROKER[BROKER_NAME[topic]].dynamic == CLUSTER_WIDE
        assert all(BROKER[other].dynamic == READ_ONLY for other in names[1:])
    assert BROKER["log.retention.hours"].default == 168
    assert BROKER["log.roll.hours"].default == 168
    assert BROKER["log.retention.ms"].default is None


def test_supported_topic_setting_has_a_broker_setting() -> None:
    kept = {"local.retention.bytes", "local.retention.ms"}
    throttles = set(THROTTLED_REPLICAS)  # lists of replicas have no default, as in Kafka
    supported = {row.name for row in TOPIC.values() if row.has_effect} - throttles
    assert supported == set(SYNONYMS) - kept
    assert BROKER["log.flush.interval.ms"].default is None, "as Kafka shows it"


def test_kafkas_names_are_distinguished_from_misspellings() -> None:
    assert not set(IGNORED) & set(BROKER)
    assert is_kafkas("num.io.threads")
    assert is_kafkas("listener.name.external.ssl.keystore.location")
    assert not is_kafkas("log.retension.ms")
    assert nearest("log.retension.ms") == "log.retention.ms"
    assert nearest("num.io.thread") == "num.io.threads"
    assert nearest("colour") is None
