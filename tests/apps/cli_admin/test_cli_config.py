"""`tidelog config` against a real cluster: settings shown with their sources, and changed."""

import io
from collections.abc import Callable
from typing import Any, TypeAlias

import pytest
from click.testing import Result
from rich.console import Console

from tidelog.apps.cli.config import show_configs
from tidelog.shell.client import admin
from tidelog.shell.client.administration.configs import ConfigEntry, Resource, describe_configs
from tidelog.shell.client.cluster import Cluster

Run: TypeAlias = Callable[..., Result]
Read: TypeAlias = Callable[..., dict[str, Any]]


@pytest.fixture(autouse=True)
def orders(run: Run) -> None:
    run("topic", "create", "orders", "--if-not-exists")


def values(read: Read, *words: str) -> dict[str, str]:
    return {each["name"]: each["value"] for each in read("config", "describe", *words)["configs"]}


def test_describe_shows_changed_values_and_what_they_override(run: Run) -> None:
    run("config", "alter", "topic", "orders", "--set", "segment.bytes=1048576")
    shown = run("config", "describe", "topic", "orders").stdout
    words = [line.split() for line in shown.splitlines() if line.strip()]
    assert words[0] == ["KEY", "VALUE", "SOURCE", "OVERRIDES"]
    row = next(line for line in words if line[0] == "segment.bytes")
    assert row[1:3] == ["1048576", "DYNAMIC_TOPIC_CONFIG"]
    assert row[3:] == ["log.segment.bytes=1073741824", "(DEFAULT_CONFIG)"]
    assert "retention.bytes" not in shown
    run("config", "alter", "topic", "orders", "--delete", "segment.bytes")
    assert "segment.bytes" not in run("config", "describe", "topic", "orders").stdout


def test_describe_shows_all_settings_one_setting_or_its_documentation(run: Run, read: Read) -> None:
    everything = values(read, "topic", "orders", "--all")
    assert everything["segment.bytes"] == "1073741824"
    assert len(everything) > 20
    assert list(values(read, "topic", "orders", "--key", "segment.ms")) == ["segment.ms"]
    shown = run("config", "describe", "topic", "orders", "--key", "segment.ms", "--doc").stdout
    head, source, *text = shown.splitlines()
    assert (head, source) == ("segment.ms=604800000", "  DEFAULT_CONFIG, long")
    assert len(" ".join(text)) > 20


def test_kafkas_output_format(run: Run) -> None:
    run("config", "alter", "topic", "orders", "--set", "segment.ms=5000")
    lines = run("config", "describe", "topic", "orders", "--format", "kafka").stdout.splitlines()
    assert lines[0] == "Dynamic configs for topic orders are:"
    assert lines[-1].startswith("  segment.ms=5000 sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:")
    run("config", "alter", "topic", "orders", "--delete", "segment.ms")
    everything = run("config", "describe", "topic", "orders", "--all", "--format", "kafka").stdout
    assert everything.startswith("All configs for topic orders are:\n  ")


def test_brokers_have_their_own_and_shared_settings(run: Run, read: Read) -> None:
    assert values(read, "broker", "2")["node.id"] == "2"
    assert values(read, "brokers") == {}
    assert "all configs are at their defaults" in run("config", "describe", "brokers").stdout
    run("config", "alter", "brokers", "--set", "message.max.bytes=2000000", "--dry-run")
    assert values(read, "brokers") == {}
    run("config", "alter", "brokers", "--set", "message.max.bytes=2000000")
    assert values(read, "brokers") == {"message.max.bytes": "2000000"}
    run("config", "alter", "brokers", "--delete", "message.max.bytes")
    assert values(read, "brokers") == {}


def test_list_settings_can_be_appended_to_and_subtracted_from(run: Run, read: Read) -> None:
    run("config", "alter", "topic", "orders", "--append", "cleanup.policy=compact")
    assert values(read, "topic", "orders")["cleanup.policy"] == "delete,compact"
    run("config", "alter", "topic", "orders", "--subtract", "cleanup.policy=delete")
    assert values(read, "topic", "orders")["cleanup.policy"] == "compact"
    run("config", "alter", "topic", "orders", "--delete", "cleanup.policy")
    assert "cleanup.policy" not in values(read, "topic", "orders")


WRONG = {
    "a mistyped key": (["alter", "topic", "orders", "--set", "retention.m=1"], 1, "retention.ms"),
    "a mistyped key of a broker": (
        ["alter", "brokers", "--set", "message.max.byte=1"],
        1,
        "did you mean message.max.bytes",
    ),
    "a mistyped key to show": (
        ["describe", "topic", "orders", "--key", "segment.byte"],
        2,
        "did you mean segment.bytes",
    ),
    "a mistyped topic": (["describe", "topic", "ordrs"], 2, "did you mean orders?"),
    "a value that can't be": (
        ["alter", "topic", "orders", "--set", "retention.ms=x", "--delete", "segment.ms"],
        1,
        "must be a whole number",
    ),
    "what is fixed": (["alter", "broker", "1", "--set", "log.dirs=x"], 1, "cannot be changed"),
    "no such broker": (["describe", "broker", "9"], 2, "broker '9' is not in the cluster"),
    "nobody": (["describe", "topic"], 2, "name the topic"),
    "all and one": (["describe", "brokers", "1"], 2, "for one write: broker 1"),
    "neither": (["describe", "brokr", "1"], 2, "'broker'"),
    "nothing to change": (["alter", "brokers"], 2, "use --set, --delete"),
    "two ways": (["alter", "brokers", "--set", "a=1", "--delete", "a"], 2, "by two options"),
}


@pytest.mark.parametrize(("words", "code", "message"), WRONG.values(), ids=WRONG)
def test_errors_are_one_line(run: Run, words: list[str], code: int, message: str) -> None:
    assert message in run("config", *words, code=code).stderr


@pytest.mark.usefixtures("as_kafka_2_1")
def test_altering_a_kafka_before_2_3_keeps_other_settings(run: Run, cluster: Cluster) -> None:
    whose = Resource(admin.TOPIC_RESOURCE, "orders")
    run("config", "alter", "topic", "orders", "--set", "segment.ms=5000", "--set", "retention.ms=9")
    run(
        *("config", "alter", "topic", "orders", "--append", "cleanup.policy=compact"),
        *("--delete", "retention.ms"),
    )
    found = {each.name: each for each in describe_configs(cluster, [whose])[whose]}
    assert found["segment.ms"].value == "5000"
    assert found["cleanup.policy"].value == "delete,compact"
    assert found["retention.ms"].is_default
    assert found["segment.ms"].type is None
    run(
        *("config", "alter", "topic", "orders", "--delete", "segment.ms"),
        *("--subtract", "cleanup.policy=compact"),
    )


def test_long_values_are_shown_whole_and_hidden_ones_are_marked() -> None:
    def entry(name: str, value: str | None, *, sensitive: bool = False) -> ConfigEntry:
        return ConfigEntry(name, value, "STATIC_BROKER_CONFIG", True, sensitive, None, None, [])

    paper = io.StringIO()
    screen = Console(file=paper, width=110, color_system=None)
    entries = [entry("log.dirs", "/long" * 30), entry("ssl.key.password", None, sensitive=True)]
    show_configs(screen, Resource(admin.BROKER_RESOURCE, "1"), entries, "text", everything=False)
    assert "".join(paper.getvalue().split()).count("/long") >= 29
    assert "…" not in paper.getvalue()
    assert "(hidden)" in paper.getvalue()
