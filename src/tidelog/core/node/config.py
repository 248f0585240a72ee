"""Settings of one broker, under Kafka's names, with Kafka's defaults.

Each field comes from the setting of the same name, with dots for underscores, or has a rule in
`node_config`; a field without a setting fails at startup. Topics override some of them
(membership/topic_settings.py).
"""

from typing import Any

from tidelog.core.groups.config import GroupConfig
from tidelog.core.record.validation import TIMESTAMP_AFTER_MAX_MS, TIMESTAMP_BEFORE_MAX_MS
from tidelog.core.settings.broker_settings import BrokerSettings, fencing_margin_ms
from tidelog.core.settings.listeners import Listener
from tidelog.core.slotted import field, slotted
from tidelog.core.storage.log_config import LogConfig
from tidelog.core.transactions.config import TransactionConfig
from tidelog.core.types import BrokerId

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


@slotted
class NodeConfig:
    """Settings of one broker; times in milliseconds."""

    broker_id: BrokerId
    rack: str | None = None
    host: str = "localhost"
    port: int = 9092
    """The address that clients of the first listener get: `advertised.listeners`."""
    listeners: tuple[Listener, ...] = ()
    """The advertised addresses of all client listeners, by name."""
    internal_host: str = "localhost"
    internal_port: int = 0
    """The address for other brokers; port 0 if they have no listener of their own."""
    log: LogConfig = field(default_factory=LogConfig)
    """Defaults for topics without settings of their own. `flush_messages` = 1: a record counts as
    replicated only once it is on stable storage."""

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
    leader_replication_throttled_rate: int | None = None
    follower_replication_throttled_rate: int | None = None
    replica_alter_log_dirs_io_max_bytes_per_second: int | None = None
    quota_window_num: int = 11
    quota_window_size_seconds: int = 1
    controller_quota_window_num: int = 11
    controller_quota_window_size_seconds: int = 1
    high_watermark_linger_ms: int = 5
    """The delay before a follower without new records learns of a new high watermark."""
    replica_socket_timeout_ms: int = 30_000
    request_timeout_ms: int = 30_000

    partitions_at_once: int = 16
    """How many logs are created, deleted or get another leader in one turn. From 16 on, one sync
    for all of them costs no more than a sync for each."""

    rack_aware_reads: bool = False
    """Whether `replica.selector.class` is the rack-aware one: consumers are sent to a replica in
    their rack."""
    max_incremental_fetch_session_cache_slots: int = 1000

    groups: GroupConfig = GroupConfig()
    offsets_commit_timeout_ms: int = 5000
    transactions: TransactionConfig = TransactionConfig()

    auto_leader_rebalance_enable: bool = True
    leader_imbalance_check_interval_seconds: int = 300

    broker_session_timeout_ms: int = 9000
    broker_heartbeat_interval_ms: int = 500
    controlled_shutdown_enable: bool = True
    """Move leadership to other brokers before this one stops."""
    controlled_shutdown_timeout_ms: int = 300_000
    """After this time the broker stops even if the controller has not agreed."""

    replica_high_watermark_checkpoint_interval_ms: int = 5000
    log_flush_offset_checkpoint_interval_ms: int = 60_000
    log_flush_start_offset_checkpoint_interval_ms: int = 60_000
    log_retention_check_interval_ms: int = 300_000
    producer_id_expiration_check_interval_ms: int = 600_000
    producer_id_expiration_ms: int = 86_400_000
    transaction_partition_verification_enable: bool = True
    add_partitions_to_txn_retry_backoff_ms: int = 20
    add_partitions_to_txn_retry_backoff_max_ms: int = 100
    log_flush_scheduler_interval_ms: int = 1000
    """How often `flush.ms` is checked. Kafka's default is never."""

    clock_hold_ms: int = 86_400_000
    """How long a wall clock that jumped must run without a jump before it decides deletions."""
    scrub_max_bytes_per_second: int = 8_388_608
    scrub_interval_ms: int = 604_800_000

    log_cleaner_enable: bool = True
    log_cleaner_threads: int = 1
    log_cleaner_dedupe_buffer_size: int = 134_217_728
    log_cleaner_backoff_ms: int = 15_000
    log_cleaner_io_max_bytes_per_second: float = 1.7976931348623157e308

    @property
    def decisions_at_once(self) -> int:
        """How many partitions the controller decides on in one turn: each takes a tenth of the
        time of a log. With `partitions_at_once` = 1 it is 1 too."""
        return 10 * (self.partitions_at_once - 1) + 1

    @property
    def rebalance_interval_ms(self) -> int | None:
        """How often the controller elects preferred leaders without a request; None: never."""
        if not self.auto_leader_rebalance_enable:
            return None
        return self.leader_imbalance_check_interval_seconds * 1000

    @property
    def fencing_margin_ms(self) -> int:
        """How long before its session may end a broker stops acting as leader."""
        return fencing_margin_ms(self.broker_session_timeout_ms)


def node_config(
    settings: BrokerSettings,
    host: str = "localhost",
    port: int = 0,
    internal_host: str = "localhost",
    internal_port: int = 0,
    listeners: tuple[Listener, ...] = (),
) -> NodeConfig:
    """Build the configuration of a node from a broker's settings.

    `host` and `port` are advertised to clients of the first listener, the other two to brokers;
    they are known once the listeners are open.
    """
    given: dict[str, Any] = {
        "broker_id": settings.node_id,
        "host": host,
        "port": port,
        "internal_host": internal_host,
        "internal_port": internal_port,
        "listeners": listeners,
        "log": _log_config(settings),
        "groups": _group_config(settings),
        "transactions": _transaction_config(settings),
        "log_append_time": settings.get("log.message.timestamp.type") == _APPEND_TIME,
        "rack_aware_reads": (settings.get("replica.selector.class") or "").endswith(_RACK_AWARE),
    }
    values = {}
    for name in NodeConfig.__annotations__:
        if name in given:
            values[name] = given[name]
        else:
            values[name] = settings.get(_NAMES.get(name, name.replace("_", ".")))
    return NodeConfig(**values)


def _log_config(settings: BrokerSettings) -> LogConfig:
    policy = settings.topic_default("cleanup.policy")
    given = {
        "cleanup_delete": "delete" in policy,
        "cleanup_compact": "compact" in policy,
        "reserve_steps": True,
    }
    names = list(LogConfig.__annotations__)
    return LogConfig(
        **{
            name: given[name] if name in given else settings.topic_default(name.replace("_", "."))
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


def _transaction_config(settings: BrokerSettings) -> TransactionConfig:
    names = TransactionConfig._fields
    return TransactionConfig(**{name: settings.get(name.replace("_", ".")) for name in names})
