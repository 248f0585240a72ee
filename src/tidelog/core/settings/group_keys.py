"""A broker's settings for consumer groups and for the topic in which they are kept.

None of them can be changed while it runs.
"""

from tidelog.core.settings.setting import HIGH, INT_MAX, Setting

GROUPS = (
    Setting(
        "group.initial.rebalance.delay.ms",
        "int",
        3000,
        "How long a group that was empty waits for more members before its first assignment.",
        "ms",
        0,
        note="`tidelog up` sets 0, as Kafka's own server.properties does: a first consumer gets"
        " records 3 s sooner, but members that start together rebalance more than once.",
    ),
    Setting(
        "group.max.session.timeout.ms",
        "int",
        1_800_000,
        "The longest session time-out that a member may ask for.",
        "ms",
        0,
    ),
    Setting(
        "group.max.size",
        "int",
        INT_MAX,
        "How many members a group may have.",
        "members",
        1,
    ),
    Setting(
        "group.min.session.timeout.ms",
        "int",
        6000,
        "The shortest session time-out that a member may ask for.",
        "ms",
        0,
    ),
    Setting(
        "offset.metadata.max.bytes",
        "int",
        4096,
        "How long the text may be that comes with a committed offset.",
        "bytes",
        0,
        importance=HIGH,
    ),
    Setting(
        "offsets.commit.timeout.ms",
        "int",
        5000,
        "How long a commit waits for the replicas of `__consumer_offsets`.",
        "ms",
        1,
        importance=HIGH,
    ),
    Setting(
        "offsets.retention.check.interval.ms",
        "long",
        600_000,
        "How often offsets are looked at that may be too old.",
        "ms",
        1,
        importance=HIGH,
    ),
    Setting(
        "offsets.retention.minutes",
        "int",
        10_080,
        "How long offsets are kept after their group has become empty.",
        "minutes",
        1,
        importance=HIGH,
    ),
    Setting(
        "offsets.topic.num.partitions",
        "int",
        50,
        "Partitions of `__consumer_offsets`. To be set before the first group.",
        "partitions",
        1,
        importance=HIGH,
    ),
    Setting(
        "offsets.topic.replication.factor",
        "short",
        3,
        "Replicas of `__consumer_offsets`. Groups wait until so many brokers are there.",
        "replicas",
        1,
        importance=HIGH,
        note="`tidelog up` sets the number of brokers, 3 at most.",
    ),
    Setting(
        "offsets.topic.segment.bytes",
        "int",
        104_857_600,
        "Segment size of `__consumer_offsets`: small, so that compaction keeps up.",
        "bytes",
        1,
        importance=HIGH,
    ),
)
