"""Settings of one log, under Kafka's names, with Kafka's defaults."""

from tidelog.core.slotted import slotted

NEVER = 2**63 - 1
UNLIMITED = -1


@slotted
class LogConfig:
    """`segment.bytes` and so on; a topic may override each."""

    segment_bytes: int = 1_073_741_824
    segment_ms: int = 604_800_000
    segment_jitter_ms: int = 0
    segment_index_bytes: int = 10_485_760
    index_interval_bytes: int = 4096
    retention_ms: int = 604_800_000
    retention_bytes: int = UNLIMITED
    cleanup_delete: bool = True
    """`cleanup.policy` contains `delete`: time and size remove segments."""
    cleanup_compact: bool = False
    """`cleanup.policy` contains `compact`: offsets may have gaps anywhere."""
    min_cleanable_dirty_ratio: float = 0.5
    """Compaction begins when more than this share of the log is new."""
    min_compaction_lag_ms: int = 0
    max_compaction_lag_ms: int = NEVER
    delete_retention_ms: int = 86_400_000
    """How long a tombstone stays after the first cleaning that met it."""
    file_delete_delay_ms: int = 60_000
    flush_messages: int = NEVER
    """Flush after so many offsets; 1 is "on disk before the acknowledgement"."""
    flush_ms: int = NEVER
    preallocate: bool = False
    """Reserve a whole segment at once."""
    reserve_steps: bool = True
    """Reserve space ahead of the active segment's end, in steps that grow with it."""
