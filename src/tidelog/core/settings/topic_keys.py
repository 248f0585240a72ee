"""Every setting of a topic, and the broker's setting that stands in where a topic says nothing.

Always true: each name is one of Kafka's 4.x topic settings, and each of those is here, so
that whatever Kafka's tools ask for is understood. `heeded` tells which have an effect.
"""

from tidelog.core.settings.setting import CLUSTER_WIDE, LONG_MAX, Setting

_NEVER = LONG_MAX

_ROWS = (
    Setting(
        "cleanup.policy",
        "list",
        ("delete",),
        "What happens to old records: `delete` removes whole segments by age and size, `compact`"
        " keeps the latest record of each key. Empty, nothing is ever removed.",
        choices=("delete", "compact"),
    ),
    Setting(
        "compression.gzip.level",
        "int",
        -1,
        "How hard gzip tries, where the leader compresses; -1 is gzip's own choice.",
        least=-1,
        most=9,
    ),
    Setting(
        "compression.lz4.level",
        "int",
        9,
        "How hard lz4 tries, where the leader compresses.",
        least=1,
        most=17,
    ),
    Setting(
        "compression.zstd.level",
        "int",
        3,
        "How hard zstd tries, where the leader compresses.",
        least=-131_072,
        most=22,
    ),
    Setting(
        "compression.type",
        "string",
        "producer",
        "How batches are stored. `producer` keeps them as they came; any other value makes the"
        " leader compress anew what came differently.",
        choices=("producer", "uncompressed", "gzip", "snappy", "lz4", "zstd"),
    ),
    Setting(
        "delete.retention.ms",
        "long",
        86_400_000,
        "How long the mark of a deleted key (a record without a value) stays in a compacted log,"
        " counted from the first cleaning that meets it. A reader that is slower than that may"
        " not hear of the deletion.",
        "ms",
        0,
    ),
    Setting(
        "file.delete.delay.ms",
        "long",
        60_000,
        "How long the files of a deleted segment stay on disk under another name.",
        "ms",
        0,
    ),
    Setting(
        "flush.messages",
        "long",
        _NEVER,
        "Flush to disk after so many records. With 1 a record counts as replicated only where it"
        " is on disk, so acknowledged records survive a power cut of all brokers.",
        "records",
        1,
    ),
    Setting(
        "flush.ms",
        "long",
        _NEVER,
        "Flush to disk when the oldest record not yet flushed is so old. Looked at every"
        " `log.flush.scheduler.interval.ms`.",
        "ms",
        0,
    ),
    Setting(
        "index.interval.bytes",
        "int",
        4096,
        "One index entry for so many bytes of records. Less finds an offset faster and makes"
        " larger indexes.",
        "bytes",
        0,
    ),
    Setting(
        "max.compaction.lag.ms",
        "long",
        _NEVER,
        "A log with a record that has waited for so long is compacted, however little of it is"
        " new. The active segment ends in time for that.",
        "ms",
        1,
    ),
    Setting(
        "max.message.bytes",
        "int",
        1_048_588,
        "The largest batch that is taken, compressed as it came.",
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
        "Whose time a record carries: the producer's (`CreateTime`) or that of the append.",
        choices=("CreateTime", "LogAppendTime"),
    ),
    Setting(
        "min.cleanable.dirty.ratio",
        "double",
        0.5,
        "A log is compacted when more than this share of it is new. Less means fewer superseded"
        " records and more work.",
        least=0,
        most=1,
    ),
    Setting(
        "min.compaction.lag.ms",
        "long",
        0,
        "For so long every record stays, superseded or not.",
        "ms",
        0,
    ),
    Setting(
        "min.insync.replicas",
        "int",
        1,
        "How many replicas must be in sync, leader included, for a produce with acks=all to be"
        " taken.",
        "replicas",
        1,
        note="`tidelog up` sets 2.",
    ),
    Setting(
        "preallocate",
        "boolean",
        False,
        "Reserve the disk space of a whole segment with its first record.",
        note="If false, Tidelog reserves in small steps that grow with the segment.",
    ),
    Setting(
        "retention.bytes",
        "long",
        -1,
        "How large a partition may be before its oldest segments go; -1 is without limit.",
        "bytes",
        -1,
    ),
    Setting(
        "retention.ms",
        "long",
        604_800_000,
        "How old a segment's newest record may be before the segment goes; -1 is for ever.",
        "ms",
        -1,
    ),
    Setting(
        "segment.bytes",
        "int",
        1_073_741_824,
        "How large a segment grows before the next one begins.",
        "bytes",
        14,
        note="Kafka 4 takes no less than 1048576.",
    ),
    Setting(
        "segment.index.bytes",
        "int",
        10_485_760,
        "How large an index may grow; a full one begins the next segment.",
        "bytes",
        4,
    ),
    Setting(
        "segment.jitter.ms",
        "long",
        0,
        "At most so much is taken off `segment.ms`, by chance, so that not all segments end at"
        " once.",
        "ms",
        0,
    ),
    Setting(
        "segment.ms",
        "long",
        604_800_000,
        "How old a segment may be before the next one begins, full or not.",
        "ms",
        1,
    ),
    Setting(
        "unclean.leader.election.enable",
        "boolean",
        False,
        "Whether a replica that may lack acknowledged records may lead when no other is left."
        " True gives availability for lost records.",
    ),
)

_KEPT = (
    Setting(
        "follower.replication.throttled.replicas",
        "list",
        (),
        "Replicas whose following is slowed down, as partition:broker, or `*`.",
    ),
    Setting(
        "leader.replication.throttled.replicas",
        "list",
        (),
        "Replicas whose leading is slowed down, as partition:broker, or `*`.",
    ),
    Setting(
        "local.retention.bytes",
        "long",
        -2,
        "Tiered storage: how much stays on the broker's own disk.",
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
        "Tiered storage: copy nothing more.",
    ),
    Setting(
        "remote.log.delete.on.disable",
        "boolean",
        False,
        "Tiered storage: delete the remote copy when it is turned off.",
    ),
    Setting(
        "remote.storage.enable",
        "boolean",
        False,
        "Tiered storage for this topic.",
    ),
)

TOPIC: dict[str, Setting] = {
    row.name: row
    for row in sorted(
        [row._replace(dynamic=CLUSTER_WIDE) for row in _ROWS]
        + [row._replace(dynamic=CLUSTER_WIDE, heeded=False) for row in _KEPT]
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
"""By topic setting, the broker's: the first of them that is set holds."""

BROKER_NAME: dict[str, str] = {topic: names[0] for topic, names in SYNONYMS.items()}
"""The one of them that can be changed while brokers run."""
