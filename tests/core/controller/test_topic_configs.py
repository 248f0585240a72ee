"""Settings that a topic may have: what one broker could not read would stop all of them."""

from dataclasses import fields

import pytest

from tidelog.core.controller.topics.topic_configs import config_problem
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
        ("unheard.of", "x"),
    ],
)
def test_sound(name: str, value: str) -> None:
    assert config_problem({name: value}) is None


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("retention.ms", "-2"),
        ("segment.bytes", "0"),
        ("segment.bytes", "2147483648"),
        ("flush.messages", "9" * 30),
        ("max.message.bytes", ""),
        ("max.message.bytes", "-"),
        ("message.timestamp.after.max.ms", "1.5"),
        ("message.timestamp.before.max.ms", "1_0"),
        ("cleanup.policy", ""),
        ("message.timestamp.type", "now"),
        ("preallocate", "yes"),
    ],
)
def test_refused(name: str, value: str) -> None:
    assert config_problem({"segment.ms": "1", name: value}) == f"{name}={value!r}"


@pytest.mark.parametrize("name", NUMBERS)
def test_every_number_that_a_log_reads_is_checked(name: str) -> None:
    assert config_problem({name: "soon"}) == f"{name}='soon'"
