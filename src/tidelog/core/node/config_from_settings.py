"""A node's configuration out of a broker's settings.

Every field comes from the setting of the same name, dots for underscores, or is told apart
here; a field without a setting is a mistake that shows at once.
"""

from typing import Any

from tidelog.core.groups.config import GroupConfig
from tidelog.core.node.config import NodeConfig
from tidelog.core.settings.broker_settings import BrokerSettings
from tidelog.core.storage.log_config import LogConfig

_NAMES = {
    "high_watermark_linger_ms": "tidelog.high.watermark.linger.ms",
    "produced_records_check": "tidelog.produced.records.check",
    "partitions_at_once": "tidelog.partitions.at.once",
    "clock_hold_ms": "tidelog.clock.hold.ms",
    "rack": "broker.rack",
    "scrub_max_bytes_per_second": "tidelog.scrub.max.bytes.per.second",
    "scrub_interval_ms": "tidelog.scrub.interval.ms",
    "controlled_shutdown_timeout_ms": "tidelog.controlled.shutdown.timeout.ms",
    "timestamp_before_max_ms": "log.message.timestamp.before.max.ms",
    "timestamp_after_max_ms": "log.message.timestamp.after.max.ms",
}
_APPEND_TIME = "LogAppendTime"
_RACK_AWARE = "RackAwareReplicaSelector"


def node_config(
    settings: BrokerSettings,
    host: str = "localhost",
    port: int = 0,
    internal_host: str = "localhost",
    internal_port: int = 0,
) -> NodeConfig:
    """`host` and `port` are what clients are told, the others what brokers are told: known
    once the listeners are open."""
    told: dict[str, Any] = {
        "broker_id": settings.node_id,
        "host": host,
        "port": port,
        "internal_host": internal_host,
        "internal_port": internal_port,
        "log": _log_config(settings),
        "groups": _group_config(settings),
        "log_append_time": settings.get("log.message.timestamp.type") == _APPEND_TIME,
        "rack_aware_reads": (settings.get("replica.selector.class") or "").endswith(_RACK_AWARE),
    }
    values = {}
    for name in NodeConfig.__annotations__:
        if name in told:
            values[name] = told[name]
        else:
            values[name] = settings.get(_NAMES.get(name, name.replace("_", ".")))
    return NodeConfig(**values)


def _log_config(settings: BrokerSettings) -> LogConfig:
    policy = settings.topic_default("cleanup.policy")
    told = {
        "cleanup_delete": "delete" in policy,
        "cleanup_compact": "compact" in policy,
        "reserve_steps": True,
    }
    names = list(LogConfig.__annotations__)
    return LogConfig(
        **{
            name: told[name] if name in told else settings.topic_default(name.replace("_", "."))
            for name in names
        }
    )


def _group_config(settings: BrokerSettings) -> GroupConfig:
    values = {
        name: settings.get(name.replace("_", "."))
        for name in GroupConfig._fields
        if name != "offsets_retention_ms"
    }
    minutes = settings.get("offsets.retention.minutes")
    return GroupConfig(**values, offsets_retention_ms=minutes * 60_000)
