"""All settings of a topic, and the broker setting that is the default of each.

Invariant: the names are exactly the topic settings of Kafka 4.x, so that Kafka's tools can set all
of them. `has_effect` says which have an effect.
"""

from tidelog.core.settings.setting import CLUSTER_WIDE, LONG_MAX, Setting

_NEVER = LONG_MAX

_ROWS = (
    Setting(
        "cleanup.policy",
        "list",
        ("delete",),
        "What happens to old records: `delete` removes whole segments by age and size,"
        " `compact` keeps the latest record of each key. Empty: nothing is ever removed.",
        choices=("delete", "compact"),
    ),
    Setting(
        "compression.gzip.level",
        "int",
        -1,
        "The gzip level if the leader compresses; -1: gzip's default.",
        least=-1,
        most=9,
    ),
    Setting(
        "compression.lz4.level",
        "int",
        9,
        "The lz4 level if the leader compresses.",
        least=1,
        most=17,
    ),
    Setting(
        "compression.zstd.level",
        "int",
        3,
        "The zstd level if the leader compresses.",
        least=-131_072,
        most=22,
    ),
    Setting(
        "compression.type",
        "string",
        "producer",
        "The compression of stored batches. `producer` keeps the producer's; with any other"
        " value, the leader recompresses batches that differ.",
        choices=("producer", "uncompressed", "gzip", "snappy", "lz4", "zstd"),
    ),
    Setting(
        "delete.retention.ms",
        "long",
        86_400_000,
        "How long a tombstone (a record without a value) stays in a compacted log, counted"
        " from the first cleaning that finds it. A consumer that is slower may miss the"
        " deletion.",
        "ms",
        0,
    ),
    Setting(
        "file.delete.delay.ms",
        "long",
        60_000,
        "How long the renamed files of a deleted segment stay on disk.",
        "ms",
        0,
    ),
    Setting(
        "flush.messages",
        "long",
        _NEVER,
        "Flush to disk after this many records. With 1, a record counts as replicated only"
        " where it is on disk, so acknowledged records survive a power cut of all brokers.",
        "records",
        1,
    ),
    Setting(
        "flush.ms",
        "long",
        _NEVER,
        "Flush to disk when the oldest unflushed record is this old. Checked every"
        " `log.flush.scheduler.interval.ms`.",
        "ms",
        0,
    ),
    Setting(
        "index.interval.bytes",
        "int",
        4096,
        "One index entry per this many bytes of records. A smaller value finds offsets faster"
        " and makes larger indexes.",
        "bytes",
        0,
    ),
    Setting(
        "max.compaction.lag.ms",
        "long",
        _NEVER,
        "A log with a record that has waited this long is compacted, however small its new"
        " part is. The active segment is closed in time for that.",
        "ms",
        1,
    ),
    Setting(
        "max.message.bytes",
        "int",
        1_048_588,
        "The largest batch that is accepted, in its compressed size.",
        "bytes",
        0,
    ),
    Setting(
        "message.timestamp.after.max.ms",
        "long",
        3_600_000,
        "How far ahead of the broker's clock a record's timestamp may be.",
        "ms",
        0,
    ),
    Setting(
        "message.timestamp.before.max.ms",
        "long",
        _NEVER,
        "How far behind the broker's clock a record's timestamp may be.",
        "ms",
        0,
    ),
    Setting(
        "message.timestamp.type",
        "string",
        "CreateTime",
        "The timestamp of a record: the producer's (`CreateTime`) or the time of the append"
        " (`LogAppendTime`).",
        choices=("CreateTime", "LogAppendTime"),
    ),
    Setting(
        "min.cleanable.dirty.ratio",
        "double",
        0.5,
        "A log is compacted when more than this share of it is new. A smaller value leaves"
        " fewer superseded records and needs more work.",
        least=0,
        most=1,
    ),
    Setting(
        "min.compaction.lag.ms",
        "long",
        0,
        "Every record is kept for at least this long, superseded or not.",
        "ms",
        0,
    ),
    Setting(
        "min.insync.replicas",
        "int",
        1,
        "The number of in-sync replicas, leader included, that a produce with acks=all needs.",
        "replicas",
        1,
        note="`tidelog up` sets 2.",
    ),
    Setting(
        "preallocate",
        "boolean",
        False,
        "Whether the disk space of a whole segment is reserved with its first record.",
        note="If false, Tidelog reserves small amounts that grow with the segment.",
    ),
    Setting(
        "retention.bytes",
        "long",
        -1,
        "The largest size of a partition; beyond it the oldest segments are deleted; -1: no limit.",
        "bytes",
        -1,
    ),
    Setting(
        "retention.ms",
        "long",
        604_800_000,
        "A segment is deleted when its newest record is this old; -1: never.",
        "ms",
        -1,
    ),
    Setting(
        "segment.bytes",
        "int",
        1_073_741_824,
        "The size at which a new segment is started.",
        "bytes",
        14,
        note="Kafka 4 accepts no less than 1048576.",
    ),
    Setting(
        "segment.index.bytes",
        "int",
        10_485_760,
        "The largest size of an index. When it is full, a new segment is started.",
        "bytes",
        4,
    ),
    Setting(
        "segment.jitter.ms",
        "long",
        0,
        "The largest random time that is subtracted from `segment.ms`, so that not all"
        " segments end at once.",
        "ms",
        0,
    ),
    Setting(
        "segment.ms",
        "long",
        604_800_000,
        "The age at which a new segment is started, even if the old one is not full.",
        "ms",
        1,
    ),
    Setting(
        "unclean.leader.election.enable",
        "boolean",
        False,
        "Whether a replica that may lack acknowledged records can become leader if no other is"
        " left. True trades lost records for availability.",
    ),
    Setting(
        "follower.replication.throttled.replicas",
        "list",
        (),
        "Replicas that fetch at most at `follower.replication.throttled.rate` while they are not in"
        " sync, as partition:broker, or `*` for all.",
    ),
    Setting(
        "leader.replication.throttled.replicas",
        "list",
        (),
        "Leaders that send at most `leader.replication.throttled.rate` to replicas that are not in"
        " sync, as partition:broker, or `*` for all.",
    ),
)

_WITHOUT_EFFECT = (
    Setting(
        "local.retention.bytes",
        "long",
        -2,
        "Tiered storage: how many bytes stay on the broker's own disk.",
        "bytes",
        -2,
    ),
    Setting(
        "local.retention.ms",
        "long",
        -2,
        "Tiered storage: how long records stay on the broker's own disk.",
        "ms",
        -2,
    ),
    Setting(
        "remote.log.copy.disable",
        "boolean",
        False,
        "Tiered storage: stop copying.",
    ),
    Setting(
        "remote.log.delete.on.disable",
        "boolean",
        False,
        "Tiered storage: delete the remote copy when tiered storage is disabled.",
    ),
    Setting(
        "remote.storage.enable",
        "boolean",
        False,
        "Whether this topic uses tiered storage.",
    ),
)

TOPIC: dict[str, Setting] = {
    row.name: row
    for row in sorted(
        [row._replace(dynamic=CLUSTER_WIDE) for row in _ROWS]
        + [row._replace(dynamic=CLUSTER_WIDE, has_effect=False) for row in _WITHOUT_EFFECT]
    )
}

SYNONYMS: dict[str, tuple[str, ...]] = {
    "cleanup.policy": ("log.cleanup.policy",),
    "compression.gzip.level": ("compression.gzip.level",),
    "compression.lz4.level": ("compression.lz4.level",),
    "compression.type": ("compression.type",),
    "compression.zstd.level": ("compression.zstd.level",),
    "delete.retention.ms": ("log.cleaner.delete.retention.ms",),
    "file.delete.delay.ms": ("log.segment.delete.delay.ms",),
    "flush.messages": ("log.flush.interval.messages",),
    "flush.ms": ("log.flush.interval.ms",),
    "index.interval.bytes": ("log.index.interval.bytes",),
    "local.retention.bytes": ("log.local.retention.bytes",),
    "local.retention.ms": ("log.local.retention.ms",),
    "max.compaction.lag.ms": ("log.cleaner.max.compaction.lag.ms",),
    "max.message.bytes": ("message.max.bytes",),
    "message.timestamp.after.max.ms": ("log.message.timestamp.after.max.ms",),
    "message.timestamp.before.max.ms": ("log.message.timestamp.before.max.ms",),
    "message.timestamp.type": ("log.message.timestamp.type",),
    "min.cleanable.dirty.ratio": ("log.cleaner.min.cleanable.ratio",),
    "min.compaction.lag.ms": ("log.cleaner.min.compaction.lag.ms",),
    "min.insync.replicas": ("min.insync.replicas",),
    "preallocate": ("log.preallocate",),
    "retention.bytes": ("log.retention.bytes",),
    "retention.ms": ("log.retention.ms", "log.retention.minutes", "log.retention.hours"),
    "segment.bytes": ("log.segment.bytes",),
    "segment.index.bytes": ("log.index.size.max.bytes",),
    "segment.jitter.ms": ("log.roll.jitter.ms", "log.roll.jitter.hours"),
    "segment.ms": ("log.roll.ms", "log.roll.hours"),
    "unclean.leader.election.enable": ("unclean.leader.election.enable",),
}
"""The broker settings behind each topic setting; the first one that is set is in effect."""

BROKER_NAME: dict[str, str] = {topic: names[0] for topic, names in SYNONYMS.items()}
"""The broker setting that can be changed at run time, by topic setting."""
