"""Every field of a node's and a log's configuration is reached by a setting."""

from dataclasses import fields

import pytest

from tidelog.core.groups.config import GroupConfig
from tidelog.core.node.config import NodeConfig, node_config
from tidelog.core.settings.broker_keys import BROKER
from tidelog.core.settings.broker_settings import fencing_margin_ms, settings_of
from tidelog.core.settings.setting import Setting
from tidelog.core.settings.tls import TLS_KEYS
from tidelog.core.storage.log_config import LogConfig

NODE = {"node.id": "7"}
TOLD = {"host", "port", "internal_host", "internal_port", "listeners"}
LISTENERS = (
    "tidelog.metadata",
    "tidelog.internal",
    "listener.",
    "controller.listener",
    "inter.broker",
)
"""Known only once the listeners are open."""
NARROW = {
    "log.cleaner.min.cleanable.ratio": "0.25",
    "log.cleaner.threads": "3",
    "broker.session.timeout.ms": "8888",
    **{f"compression.{codec}.level": "5" for codec in ("gzip", "lz4", "zstd")},
    "max.connections.per.ip.overrides": "10.0.0.1:7",
    "queued.max.request.bytes": "-1",
    "tidelog.metrics.listener": "127.0.0.1:9",
}
"""Where another value must have a form, or fit to others."""


def other_text(setting: Setting) -> str:
    """Return a value that is not the default."""
    if setting.name in NARROW:
        return NARROW[setting.name]
    if setting.type == "boolean":
        return "false" if setting.default else "true"
    if setting.choices:
        return setting.choices[-1]
    return "other" if setting.least is None else str(int(setting.least) + 777)


def differences(texts: dict[str, str]) -> set[str]:
    """Return the fields that differ from those of a broker without settings."""
    plain, changed = node_config(settings_of(NODE)), node_config(settings_of({**NODE, **texts}))
    found = {
        f.name for f in fields(NodeConfig) if getattr(plain, f.name) != getattr(changed, f.name)
    }
    if "log" in found:
        found |= {
            f"log.{f.name}"
            for f in fields(LogConfig)
            if getattr(plain.log, f.name) != getattr(changed.log, f.name)
        }
    if "groups" in found:
        pairs = zip(plain.groups, changed.groups, strict=True)
        names = zip(GroupConfig._fields, pairs, strict=True)
        found |= {f"groups.{name}" for name, (before, after) in names if before != after}
    return found - {"log", "groups"}


def reached() -> dict[str, set[str]]:
    found = {}
    for name, setting in BROKER.items():
        if name in ("node.id", "broker.id", "listeners", "advertised.listeners", "log.dirs"):
            continue
        if name.startswith(LISTENERS) or name in (*TLS_KEYS, "security.inter.broker.protocol"):
            continue
        found[name] = differences({name: other_text(setting)})
    return found


def test_no_settings_give_the_defaults() -> None:
    expected = NodeConfig(broker_id=7, host="h", port=1, internal_host="i", internal_port=2)
    assert node_config(settings_of(NODE), "h", 1, "i", 2) == expected


def test_every_field_is_reached() -> None:
    wanted = {f.name for f in fields(NodeConfig)} - TOLD - {"broker_id", "log", "groups"}
    wanted |= {f"groups.{name}" for name in GroupConfig._fields}
    wanted |= {f"log.{f.name}" for f in fields(LogConfig)} - {"log.reserve_steps"}
    hit: set[str] = set().union(*reached().values())
    assert wanted - hit == set()


def test_a_setting_reaches_one_field() -> None:
    assert {name: found for name, found in reached().items() if len(found) > 1} == {
        "log.cleanup.policy": {"log.cleanup_delete", "log.cleanup_compact"}
    }


@pytest.mark.parametrize(
    ("text", "aware"),
    [
        ("", False),
        ("org.apache.kafka.common.replica.LeaderSelector", False),
        ("org.apache.kafka.common.replica.RackAwareReplicaSelector", True),
    ],
)
def test_rack_aware_reads(text: str, aware: bool) -> None:
    config = node_config(settings_of({**NODE, "replica.selector.class": text}))
    assert config.rack_aware_reads is aware


def test_units_reach_the_log_in_milliseconds() -> None:
    texts = {"log.retention.minutes": "2", "log.roll.hours": "3"}
    config = node_config(settings_of({**NODE, **texts}))
    assert (config.log.retention_ms, config.log.segment_ms) == (120_000, 10_800_000)


@pytest.mark.parametrize("session", [1000, 9000, 60_000])
def test_fencing_margin_equals_the_nodes(session: int) -> None:
    config = NodeConfig(1, broker_session_timeout_ms=session)
    assert fencing_margin_ms(session) == config.fencing_margin_ms
