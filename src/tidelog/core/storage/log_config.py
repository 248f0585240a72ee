"""The settings of one log, with Kafka's names and defaults."""

from tidelog.core.slotted import slotted

NEVER = 2**63 - 1
UNLIMITED = -1


@slotted
class LogConfig:
    """`segment.bytes` and others; a topic may override each."""

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
    """`cleanup.policy` contains `compact`: offsets may have gaps."""
    min_cleanable_dirty_ratio: float = 0.5
    """Compaction starts when more than this share of the log is dirty."""
    min_compaction_lag_ms: int = 0
    max_compaction_lag_ms: int = NEVER
    delete_retention_ms: int = 86_400_000
    """How long a tombstone is kept after the first cleaning that read it."""
    file_delete_delay_ms: int = 60_000
    flush_messages: int = NEVER
    """Flush after this many offsets; with 1, records are flushed before the acknowledgement."""
    flush_ms: int = NEVER
    preallocate: bool = False
    """Reserve space for a whole segment when it is created."""
    reserve_steps: bool = True
    """Reserve space after the active segment's end, in steps that grow with the segment."""
