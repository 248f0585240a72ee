"""Settings of one broker, under Kafka's names, with Kafka's defaults.

A topic may override those that Kafka lets it override; `topic_settings` in
membership/topic_settings.py does so.
"""

from tidelog.core.groups.config import GroupConfig
from tidelog.core.record.validation import TIMESTAMP_AFTER_MAX_MS, TIMESTAMP_BEFORE_MAX_MS
from tidelog.core.settings.broker_settings import fencing_margin_ms
from tidelog.core.slotted import field, slotted
from tidelog.core.storage.log_config import LogConfig
from tidelog.core.types import BrokerId


@slotted
class NodeConfig:
    """`broker.id` and so on; times in milliseconds."""

    broker_id: BrokerId
    rack: str | None = None
    host: str = "localhost"
    port: int = 9092
    """Where clients are told to go: `advertised.listeners`."""
    internal_host: str = "localhost"
    internal_port: int = 0
    """Where other brokers connect; 0 where there is no listener for them alone."""
    log: LogConfig = field(default_factory=LogConfig)
    """Defaults for topics that say nothing. `flush_messages` = 1: a record counts as
    replicated only where it is on stable storage."""

    min_insync_replicas: int = 1
    unclean_leader_election_enable: bool = False
    unclean_recovery_strategy: str = "balanced"
    unclean_recovery_timeout_ms: int = 30_000
    message_max_bytes: int = 1_048_588
    log_append_time: bool = False
    """`log.message.timestamp.type` is LogAppendTime."""
    timestamp_before_max_ms: int = TIMESTAMP_BEFORE_MAX_MS
    timestamp_after_max_ms: int = TIMESTAMP_AFTER_MAX_MS
    compression_type: str = "producer"
    compression_gzip_level: int = -1
    compression_lz4_level: int = 9
    compression_zstd_level: int = 3
    produced_records_check: bool = False

    replica_lag_time_max_ms: int = 30_000
    replica_fetch_wait_max_ms: int = 500
    replica_fetch_min_bytes: int = 1
    replica_fetch_max_bytes: int = 2_097_152
    replica_fetch_response_max_bytes: int = 10_485_760
    replica_fetch_backoff_ms: int = 1000
    high_watermark_linger_ms: int = 5
    """How long a follower may not know what is committed, if no records tell it."""
    replica_socket_timeout_ms: int = 30_000
    request_timeout_ms: int = 30_000

    partitions_at_once: int = 16
    """How many logs are made, dropped or given another leader before others have their turn.
    From 16 on a sync for all of them costs no more than one for each would."""

    rack_aware_reads: bool = False
    """`replica.selector.class` names the rack-aware one: consumers are sent to a replica in
    their rack."""
    max_incremental_fetch_session_cache_slots: int = 1000

    groups: GroupConfig = GroupConfig()
    offsets_commit_timeout_ms: int = 5000

    auto_leader_rebalance_enable: bool = True
    leader_imbalance_check_interval_seconds: int = 300

    broker_session_timeout_ms: int = 9000
    broker_heartbeat_interval_ms: int = 2000
    controlled_shutdown_enable: bool = True
    """Hand over what this broker leads before it stops."""
    controlled_shutdown_timeout_ms: int = 300_000
    """After that the broker stops although the controller has not let it go."""

    replica_high_watermark_checkpoint_interval_ms: int = 5000
    log_flush_offset_checkpoint_interval_ms: int = 60_000
    log_flush_start_offset_checkpoint_interval_ms: int = 60_000
    log_retention_check_interval_ms: int = 300_000
    producer_id_expiration_check_interval_ms: int = 600_000
    producer_id_expiration_ms: int = 86_400_000
    log_flush_scheduler_interval_ms: int = 1000
    """How often `flush.ms` is looked at; Kafka's default is never to look."""

    clock_hold_ms: int = 86_400_000
    """How long a wall clock that jumped has to hold before records are deleted on its word."""
    scrub_max_bytes_per_second: int = 8_388_608
    scrub_interval_ms: int = 604_800_000

    log_cleaner_enable: bool = True
    log_cleaner_threads: int = 1
    log_cleaner_dedupe_buffer_size: int = 134_217_728
    log_cleaner_backoff_ms: int = 15_000
    log_cleaner_io_max_bytes_per_second: float = 1.7976931348623157e308

    @property
    def decisions_at_once(self) -> int:
        """How many partitions the controller decides on in a turn: each costs a tenth of what a
        log does. One by one here is one by one there."""
        return 10 * (self.partitions_at_once - 1) + 1

    @property
    def rebalance_interval_ms(self) -> int | None:
        """How often the controller elects preferred leaders by itself; None: never."""
        if not self.auto_leader_rebalance_enable:
            return None
        return self.leader_imbalance_check_interval_seconds * 1000

    @property
    def fencing_margin_ms(self) -> int:
        """How long before its session may end a broker stops acting as leader."""
        return fencing_margin_ms(self.broker_session_timeout_ms)
