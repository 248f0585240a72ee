"""The options of the `cluster` command, with Kafka's name where Kafka has the setting."""

from collections.abc import Callable

from tidelog.core.controller.election import UncleanRecovery
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
        max_incremental_fetch_session_cache_slots=0,
        replica_high_watermark_checkpoint_interval_ms=1,
        log=LogConfig(reserve_steps=False),
    )


def _min_isr(setup: Setup, value: str) -> None:
    setup.min_insync_replicas = number(value, "min.insync.replicas")


def _unclean(setup: Setup, value: str) -> None:
    setup.unclean = boolean(value, "unclean")


def _lag(setup: Setup, value: str) -> None:
    setup.config.replica_lag_time_max_ms = number(value, "lag")


def _flush(setup: Setup, value: str) -> None:
    setup.config.log.flush_messages = number(value, "flush")


def _segment(setup: Setup, value: str) -> None:
    records = number(value, "segment")
    setup.config.log.segment_bytes = max(1, records) * RECORDS_PER_SEGMENT_BYTES


def _retention(setup: Setup, value: str) -> None:
    setup.config.log.retention_ms = number(value, "retention.ms")


def _fetch_max_bytes(setup: Setup, value: str) -> None:
    setup.config.replica_fetch_max_bytes = number(value, "replica.fetch.max.bytes")


def _spare(setup: Setup, value: str) -> None:
    setup.spares = tuple(name for name in value.split(",") if name)


def _down(setup: Setup, value: str) -> None:
    setup.down = tuple(name for name in value.split(",") if name)


def _drop_unclean_stops(setup: Setup, value: str) -> None:
    setup.drop_unclean_stops = boolean(value, "drop-unclean-stops")


def _recovery(setup: Setup, value: str) -> None:
    strategies = tuple(strategy.value for strategy in UncleanRecovery)
    setup.recovery = UncleanRecovery(one_of(value, strategies, "unclean.recovery.strategy"))


def _checkpoints(setup: Setup, value: str) -> None:
    if boolean(value, "slow-checkpoints"):
        defaults = NodeConfig(0)
        setup.config.replica_high_watermark_checkpoint_interval_ms = (
            defaults.replica_high_watermark_checkpoint_interval_ms
        )


_SETTERS: dict[str, Callable[[Setup, str], None]] = {
    "min.insync.replicas": _min_isr,
    "unclean": _unclean,
    "lag": _lag,
    "flush": _flush,
    "segment": _segment,
    "retention.ms": _retention,
    "replica.fetch.max.bytes": _fetch_max_bytes,
    "spare": _spare,
    "down": _down,
    "drop-unclean-stops": _drop_unclean_stops,
    "slow-checkpoints": _checkpoints,
    "recovery": _recovery,
}
_SETTERS |= {
    "unclean.leader.election.enable": _unclean,
    "replica.lag.time.max.ms": _lag,
    "flush.messages": _flush,
    "unclean.recovery.strategy": _recovery,
}
"""Kafka's own names for the short names that stories use."""
CLUSTER_OPTIONS = tuple(_SETTERS)


def read_setup(step: Step) -> Setup:
    """Return the setup that a `cluster` command describes."""
    names = step.arguments
    if not names:
        raise StoryError("name at least one broker, such as: cluster A B")
    setup = Setup(names, config=_story_config())
    for option, value in step.options.items():
        _SETTERS[option](setup, value)
    everyone = (*names, *setup.spares)
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
