"""What a topic's configuration means for its replicas here.

A topic's own setting comes first, then what was set for this broker while it ran, then what
was set for all of them, then what this broker was started with. Settings that no replica
heeds are none of this file's business.
"""

from tidelog.core.controller.metadata.cluster_image import MIN_INSYNC_REPLICAS, ClusterImage
from tidelog.core.node.config import NodeConfig
from tidelog.core.record.compression import Codec
from tidelog.core.record.validation import BatchRules
from tidelog.core.replication.partition import PartitionConfig
from tidelog.core.slotted import replace
from tidelog.core.storage.log_config import LogConfig
from tidelog.core.types import TopicId

GZIP_DEFAULT_LEVEL = "-1"
_CLEANUP_POLICY = "cleanup.policy"
_NUMBERS = {
    name.replace("_", "."): name for name, kind in LogConfig.__annotations__.items() if kind is int
}


def log_config(config: NodeConfig, image: ClusterImage, topic: TopicId) -> LogConfig:
    """How its log rolls, keeps and flushes."""
    me = config.broker_id
    changes: dict[str, int | bool] = {}
    for name, attribute in _NUMBERS.items():
        value = image.topic_config(topic, name, me)
        if value is not None:
            changes[attribute] = int(value)
    policy = image.topic_config(topic, _CLEANUP_POLICY, me)
    if policy is not None:
        changes["cleanup_delete"] = "delete" in policy.split(",")
        changes["cleanup_compact"] = "compact" in policy.split(",")
    preallocate = image.topic_config(topic, "preallocate", me)
    if preallocate is not None:
        changes["preallocate"] = preallocate == "true"
    if not changes:
        return config.log  # nobody changes it, so thousands of logs may share it
    return replace(config.log, **changes)


def partition_config(config: NodeConfig, image: ClusterImage, topic: TopicId) -> PartitionConfig:
    """What replication needs. Flushing after every record means before its acknowledgement,
    and that on every replica: else it would hold only until the next leader."""
    min_insync = image.topic_config(topic, MIN_INSYNC_REPLICAS)
    return PartitionConfig(
        config.min_insync_replicas if min_insync is None else int(min_insync),
        config.replica_lag_time_max_ms,
        config.replica_fetch_backoff_ms,
        log_config(config, image, topic).flush_messages == 1,
    )


def batch_rules(config: NodeConfig, image: ClusterImage, topic: TopicId) -> BatchRules:
    """What a producer may send."""
    me = config.broker_id
    rules = BatchRules(
        config.message_max_bytes,
        config.log_append_time,
        config.timestamp_before_max_ms,
        config.timestamp_after_max_ms,
    )
    largest = image.topic_config(topic, "max.message.bytes", me)
    if largest is not None:
        rules.max_message_bytes = int(largest)
    stamps = image.topic_config(topic, "message.timestamp.type", me)
    if stamps is not None:
        rules.log_append_time = stamps == "LogAppendTime"
    before = image.topic_config(topic, "message.timestamp.before.max.ms", me)
    if before is not None:
        rules.timestamp_before_max_ms = int(before)
    after = image.topic_config(topic, "message.timestamp.after.max.ms", me)
    if after is not None:
        rules.timestamp_after_max_ms = int(after)
    _set_packing(rules, image, topic, config)
    policy = image.topic_config(topic, _CLEANUP_POLICY, me)
    rules.keys_needed = config.log.cleanup_compact if policy is None else "compact" in policy
    return rules


def _set_packing(
    rules: BatchRules, image: ClusterImage, topic: TopicId, config: NodeConfig
) -> None:
    me = config.broker_id
    wanted = image.topic_config(topic, "compression.type", me) or config.compression_type
    if wanted == "producer":
        return
    rules.codec = Codec.NONE if wanted == "uncompressed" else Codec[wanted.upper()]
    level = image.topic_config(topic, f"compression.{wanted}.level", me)
    if level is not None and level != GZIP_DEFAULT_LEVEL:
        rules.level = int(level)
