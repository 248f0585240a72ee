"""Settings of the group coordinator, with Kafka's names and defaults, in milliseconds."""

from typing import NamedTuple


class GroupConfig(NamedTuple):
    """The group coordinator's settings."""

    group_min_session_timeout_ms: int = 6_000
    group_max_session_timeout_ms: int = 1_800_000
    group_initial_rebalance_delay_ms: int = 3_000
    group_max_size: int = 2_147_483_647
    offsets_retention_ms: int = 7 * 24 * 60 * 60 * 1_000
    offsets_retention_check_interval_ms: int = 600_000
    offset_metadata_max_bytes: int = 4_096
