"""Settings of a broker's cleaner, which compacts logs; when a log is worth it, its topic says.

Whether it works at all can't be changed while a broker runs; how it works can, for one or all.
"""

from tidelog.core.settings.setting import CLUSTER_WIDE, Setting

_UNLIMITED = 1.7976931348623157e308

CLEANER = (
    Setting(
        "log.cleaner.backoff.ms",
        "long",
        15_000,
        "How long the cleaner rests when no log needs it.",
        "ms",
        1,
        dynamic=CLUSTER_WIDE,
    ),
    Setting(
        "log.cleaner.dedupe.buffer.size",
        "long",
        134_217_728,
        "Memory for the keys of the logs that are being cleaned, in all. 24 bytes a key, and a"
        " quarter stays free; a log with more keys is cleaned in several rounds.",
        "bytes",
        1_048_576,
        dynamic=CLUSTER_WIDE,
    ),
    Setting(
        "log.cleaner.enable",
        "boolean",
        True,
        "Whether logs are compacted. Without it compacted topics, the offsets of groups among"
        " them, only grow.",
    ),
    Setting(
        "log.cleaner.io.max.bytes.per.second",
        "double",
        _UNLIMITED,
        "How many bytes a cleaner reads and writes in a second, at most.",
        "bytes a second",
        1024,
        dynamic=CLUSTER_WIDE,
    ),
    Setting(
        "log.cleaner.threads",
        "int",
        1,
        "How many logs are cleaned at the same time.",
        "logs",
        1,
        64,
        dynamic=CLUSTER_WIDE,
        note="Each cleaning is a process of its own, of low priority, that ends with it.",
    ),
)
