"""Valid topic settings: a value that a broker can't read would stop all brokers."""

from dataclasses import fields

import pytest

from tidelog.core.controller.plans import broker_config_problem, config_problem
from tidelog.core.storage.log_config import LogConfig

NUMBERS = [f.name.replace("_", ".") for f in fields(LogConfig) if f.type is int]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("retention.ms", "-1"),
        ("retention.bytes", "0"),
        ("segment.bytes", "2147483647"),
        ("flush.messages", "9223372036854775807"),
        ("cleanup.policy", "compact,delete"),
        ("message.timestamp.type", "LogAppendTime"),
        ("preallocate", "true"),
        ("min.cleanable.dirty.ratio", "0.01"),
        ("leader.replication.throttled.replicas", ""),
    ],
)
def test_valid_topic_settings(name: str, value: str) -> None:
    assert config_problem({name: value}) is None


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("retention.ms", "-2", "must be at least -1 (ms)"),
        ("segment.bytes", "0", "must be at least 14 (bytes)"),
        ("segment.bytes", "2147483648", "must be at most 2147483647 (bytes)"),
        ("flush.messages", "9" * 30, "must be at most 9223372036854775807 (records)"),
        ("max.message.bytes", "", "must be a whole number (bytes)"),
        ("max.message.bytes", "-", "must be a whole number (bytes)"),
        ("message.timestamp.after.max.ms", "1.5", "must be a whole number (ms)"),
        ("message.timestamp.before.max.ms", "1_0", "must be a whole number (ms)"),
        ("cleanup.policy", "shred", "may contain only delete and compact, not 'shred'"),
        ("message.timestamp.type", "now", "must be one of CreateTime, LogAppendTime"),
        ("preallocate", "yes", "must be true or false"),
    ],
)
def test_invalid_topic_settings_are_refused(name: str, value: str, reason: str) -> None:
    assert config_problem({"segment.ms": "1", name: value}) == f"{name}={value!r} {reason}"


def test_an_unknown_name_is_refused() -> None:
    assert config_problem({"unheard.of": "x"}) == "unknown topic setting unheard.of"


@pytest.mark.parametrize(
    ("name", "value", "spelled"),
    [
        ("preallocate", "TRUE", "true"),
        ("cleanup.policy", "compact, delete", "compact,delete"),
        ("retention.ms", " +07", "7"),
    ],
)
def test_values_are_stored_in_one_spelling(name: str, value: str, spelled: str) -> None:
    assert config_problem({name: value}) == f"{name}={value!r} must be spelled {spelled!r}"


@pytest.mark.parametrize("name", NUMBERS)
def test_every_number_that_a_log_reads_is_checked(name: str) -> None:
    assert str(config_problem({name: "soon"})).startswith(f"{name}='soon' must be a whole number")


def test_broker_settings_have_their_own_names() -> None:
    assert broker_config_problem({"log.retention.ms": "7"}) is None
    assert broker_config_problem({"retention.ms": "7"}) == "unknown broker setting retention.ms"
    assert "restart" in str(broker_config_problem({"num.partitions": "7"}))
    assert "at least" in str(broker_config_problem({"log.retention.ms": "-7"}))
