"""The settings of a topic's replicas on this broker.

The topic's own setting comes first, then the dynamic setting of this broker, then that of all
brokers, then the setting with which this broker was started. Only settings that replicas use are
here.
"""

from collections.abc import Mapping
from typing import NamedTuple

from tidelog.core.controller.metadata.cluster_image import MIN_INSYNC_REPLICAS, ClusterImage
from tidelog.core.node.config import NodeConfig
from tidelog.core.record.compression import Codec
from tidelog.core.record.validation import BatchRules
from tidelog.core.replication.partition import PartitionConfig
from tidelog.core.slotted import replace
from tidelog.core.storage.log_config import LogConfig
from tidelog.core.types import TopicId

INDEX_INTERVAL_BYTES_MAX = 256 * 1024
"""A lookup scans from the previous index entry: with fewer entries it would take seconds."""
AGGRESSIVE = "aggressive"
"""The `unclean.recovery.strategy` that elects live replicas while others may be in sync."""
GZIP_DEFAULT = ("gzip", "-1")
_DEFAULT_LEVELS = {"gzip": -1, "lz4": 9, "zstd": 3}
_NUMBERS = {
    name.replace("_", "."): name for name, kind in LogConfig.__annotations__.items() if kind is int
}


class TopicSettings(NamedTuple):
    """The settings that a replica uses."""

    log: LogConfig
    partition: PartitionConfig
    rules: BatchRules


def topic_settings(config: NodeConfig, image: ClusterImage, topic: TopicId) -> TopicSettings:
    """Return the settings of a topic's replicas on this broker."""
    overrides = image.topic_overrides(topic, config.broker_id)
    log = _log_config(config, overrides)
    return TopicSettings(
        log,
        _partition_config(config, overrides, log),
        _batch_rules(config, overrides, log),
    )


def _log_config(config: NodeConfig, overrides: Mapping[str, str]) -> LogConfig:
    """Return the settings for rolling, retention, compaction and flushing."""
    changes: dict[str, float | bool] = {}
    for name, value in overrides.items():
        if name in _NUMBERS:
            changes[_NUMBERS[name]] = int(value)
        elif name == "min.cleanable.dirty.ratio":
            changes["min_cleanable_dirty_ratio"] = float(value)
        elif name == "cleanup.policy":
            changes["cleanup_delete"] = "delete" in value.split(",")
            changes["cleanup_compact"] = "compact" in value.split(",")
        elif name == "preallocate":
            changes["preallocate"] = value == "true"
    if "index_interval_bytes" in changes:
        changes["index_interval_bytes"] = min(
            changes["index_interval_bytes"], INDEX_INTERVAL_BYTES_MAX
        )
    if not changes:
        return config.log  # immutable, so thousands of logs share it
    return replace(config.log, **changes)


def _partition_config(
    config: NodeConfig, overrides: Mapping[str, str], log: LogConfig
) -> PartitionConfig:
    """Return the settings of replication. Flushing after every record means before its
    acknowledgement and on every replica: otherwise the guarantee would end with the next leader."""
    min_insync = overrides.get(MIN_INSYNC_REPLICAS)
    unclean = overrides.get("unclean.leader.election.enable")
    return PartitionConfig(
        config.min_insync_replicas if min_insync is None else int(min_insync),
        config.replica_lag_time_max_ms,
        config.replica_fetch_backoff_ms,
        log.flush_messages == 1,
        config.unclean_recovery_strategy == AGGRESSIVE
        or (config.unclean_leader_election_enable if unclean is None else unclean == "true"),
    )


def _batch_rules(config: NodeConfig, overrides: Mapping[str, str], log: LogConfig) -> BatchRules:
    """Return the limits for produced batches, and how they are compressed."""
    rules = BatchRules(
        config.message_max_bytes,
        config.log_append_time,
        config.timestamp_before_max_ms,
        config.timestamp_after_max_ms,
        keys_needed=log.cleanup_compact,
        records_checked=config.produced_records_check,
    )
    if (largest := overrides.get("max.message.bytes")) is not None:
        rules.max_message_bytes = int(largest)
    if (stamps := overrides.get("message.timestamp.type")) is not None:
        rules.log_append_time = stamps == "LogAppendTime"
    if (before := overrides.get("message.timestamp.before.max.ms")) is not None:
        rules.timestamp_before_max_ms = int(before)
    if (after := overrides.get("message.timestamp.after.max.ms")) is not None:
        rules.timestamp_after_max_ms = int(after)
    packing = overrides.get("compression.type", config.compression_type)
    if packing != "producer":
        rules.codec = Codec.NONE if packing == "uncompressed" else Codec[packing.upper()]
        level = overrides.get(f"compression.{packing}.level")
        if level is not None and (packing, level) != GZIP_DEFAULT:
            rules.level = int(level)
        elif level is None:
            rules.level = _brokers_level(config, packing)
    return rules


def _brokers_level(config: NodeConfig, packing: str) -> int | None:
    """The broker's compression level; None (the codec's own default) if it was not changed."""
    if packing not in _DEFAULT_LEVELS:
        return None
    level: int = getattr(config, f"compression_{packing}_level")
    return None if level == _DEFAULT_LEVELS[packing] else level
