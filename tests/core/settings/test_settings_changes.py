"""Changes while brokers run: for a topic, for one broker, for all."""

import pytest

from tidelog.core.settings.topic_values import broker_problem, normal, topic_problem


def test_a_topics_settings() -> None:
    assert topic_problem("retention.ms", " 7 ") is None
    assert topic_problem("retention.ms", "x") == "retention.ms='x' must be a whole number (ms)"
    assert topic_problem("log.retention.ms", "7") == "unknown topic setting log.retention.ms"


@pytest.mark.parametrize("broker", [None, 3])
def test_a_brokers_defaults_for_topics(broker: int | None) -> None:
    assert broker_problem("log.retention.ms", "7", broker) is None
    assert broker_problem("log.retention.ms", None, broker) is None
    assert "at least -1" in str(broker_problem("log.retention.ms", "-7", broker))
    assert "unknown broker setting" in str(broker_problem("retention.ms", "7", broker))


def test_errors_for_read_only_settings_say_what_to_do() -> None:
    assert broker_problem("log.retention.hours", "7", 3) == (
        "log.retention.hours cannot be changed at run time; change broker 3's file and restart"
    )
    assert "the brokers' file" in str(broker_problem("num.partitions", "7"))


@pytest.mark.parametrize("name", ["min.insync.replicas", "unclean.leader.election.enable"])
def test_settings_that_may_not_differ_between_brokers(name: str) -> None:
    text = "true" if name.startswith("unclean") else "2"
    assert broker_problem(name, text) is None
    assert "not for one broker" in str(broker_problem(name, text, 3))
    assert broker_problem(name, None, 3) is None


@pytest.mark.parametrize(
    ("name", "text", "spelled"),
    [
        ("preallocate", "TRUE ", "true"),
        ("cleanup.policy", "compact, delete", "compact,delete"),
        ("log.retention.ms", "+007", "7"),
        ("min.cleanable.dirty.ratio", "1e-2", "0.01"),
        ("leader.replication.throttled.replicas", "", ""),
        ("retention.ms", "soon", "soon"),
        ("unheard.of", " x", " x"),
    ],
)
def test_values_have_one_spelling(name: str, text: str, spelled: str) -> None:
    assert normal(name, text) == spelled
    assert normal(name, spelled) == spelled
