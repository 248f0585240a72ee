"""The options of the `cluster` command, with Kafka's name where Kafka has the setting."""

from collections.abc import Callable
from functools import reduce

from tidelog.core.controller.election import UncleanRecovery
from tidelog.core.groups.config import GroupConfig
from tidelog.core.node.config import NodeConfig
from tidelog.core.storage.log_config import LogConfig
from tidelog.lab.story.grammar import Step, StoryError, known_name
from tidelog.lab.story.play import boolean, number, one_of
from tidelog.lab.story.stage.narration import CLIENT, CONTROLLER
from tidelog.lab.story.stage.world import Setup

BROKERS_MAX = 9
NEVER_MS = 1 << 40
RECORDS_PER_SEGMENT_BYTES = 90
"""Slightly more than the size of a batch with one short name."""


def _story_config() -> NodeConfig:
    """Return the config of a broker that never waits: only the story makes time pass."""
    return NodeConfig(
        broker_id=0,
        replica_fetch_wait_max_ms=0,
        replica_fetch_backoff_ms=0,
        high_watermark_linger_ms=0,
        replica_socket_timeout_ms=NEVER_MS,
        request_timeout_ms=NEVER_MS,
        add_partitions_to_txn_retry_backoff_max_ms=0,
        max_incremental_fetch_session_cache_slots=0,
        replica_high_watermark_checkpoint_interval_ms=1,
        groups=GroupConfig(group_initial_rebalance_delay_ms=0),
        log=LogConfig(reserve_steps=False),
    )


def _segment_bytes(value: str, option: str) -> int:
    return max(1, number(value, option)) * RECORDS_PER_SEGMENT_BYTES


def _names(value: str, _option: str) -> tuple[str, ...]:
    return tuple(name for name in value.split(",") if name)


def _text(value: str, _option: str) -> str:
    return value


def _transaction_version(value: str, option: str) -> int:
    return int(one_of(value, ("1", "2"), option))


def _recovery(value: str, option: str) -> UncleanRecovery:
    return UncleanRecovery(one_of(value, tuple(each.value for each in UncleanRecovery), option))


def _checkpoint_interval_ms(value: str, option: str) -> int:
    slow = boolean(value, option)
    defaults = NodeConfig(0) if slow else _story_config()
    return defaults.replica_high_watermark_checkpoint_interval_ms


_OPTIONS: dict[str, tuple[str, Callable[[str, str], object]]] = {
    "min.insync.replicas": ("min_insync_replicas", number),
    "unclean": ("unclean", boolean),
    "lag": ("config.replica_lag_time_max_ms", number),
    "flush": ("config.log.flush_messages", number),
    "segment": ("config.log.segment_bytes", _segment_bytes),
    "retention.ms": ("config.log.retention_ms", number),
    "replica.fetch.max.bytes": ("config.replica_fetch_max_bytes", number),
    "spare": ("spares", _names),
    "down": ("down", _names),
    "drop-unclean-stops": ("drop_unclean_stops", boolean),
    "slow-checkpoints": (
        "config.replica_high_watermark_checkpoint_interval_ms",
        _checkpoint_interval_ms,
    ),
    "recovery": ("recovery", _recovery),
    "disks": ("disks", number),
    "coordinators": ("coordinators", _names),
    "groups": ("groups", _names),
    "other": ("other", _text),
    "transaction.version": ("transaction_version", _transaction_version),
    "transaction.partition.verification.enable": (
        "config.transaction_partition_verification_enable",
        boolean,
    ),
    "fetch.sessions": ("config.max_incremental_fetch_session_cache_slots", number),
}
"""Each option's attribute of `Setup`, and the function that parses its value."""
_OPTIONS |= {
    "unclean.leader.election.enable": _OPTIONS["unclean"],
    "replica.lag.time.max.ms": _OPTIONS["lag"],
    "flush.messages": _OPTIONS["flush"],
    "unclean.recovery.strategy": _OPTIONS["recovery"],
}
"""Kafka's own names for the short names that stories use."""
CLUSTER_OPTIONS = tuple(_OPTIONS)


def read_setup(step: Step) -> Setup:
    """Return the setup that a `cluster` command describes."""
    names = step.arguments
    if not names:
        raise StoryError("name at least one broker, such as: cluster A B")
    setup = Setup(names, config=_story_config())
    for option, value in step.options.items():
        path, parse = _OPTIONS[option]
        *objects, attribute = path.split(".")
        setattr(reduce(getattr, objects, setup), attribute, parse(value, option))
    everyone = setup.everyone
    if len(set(everyone)) < len(everyone):
        raise StoryError("a broker is named twice")
    for name in setup.down:
        known_name("broker", name, dict.fromkeys(everyone))
    if not set(names) - set(setup.down):
        raise StoryError("option down: at least one replica must be up")
    if len(everyone) > BROKERS_MAX:
        raise StoryError(f"a cluster has at most {BROKERS_MAX} brokers")
    for name in everyone:
        if not name.isalnum() or name in (CLIENT, CONTROLLER):
            raise StoryError(f"invalid broker name {name!r}; use letters and digits, such as A")
    return setup
