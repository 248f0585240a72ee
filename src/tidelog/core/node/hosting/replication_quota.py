"""Replication throttles (KIP-73): a largest rate for replicas that are not in sync.

`leader.replication.throttled.rate` limits what a broker sends as a leader,
`follower.replication.throttled.rate` what it fetches as a follower. Both apply only to partitions
in the topic settings `*.replication.throttled.replicas`, and delay only replicas outside the ISR.
As in Kafka, the bytes of in-sync replicas of these partitions count too.
`replica.alter.log.dirs.io.max.bytes.per.second` limits what a broker copies between its log
directories, for all moves together (KIP-113).

Kafka averages over eleven seconds; here bytes are a debt that shrinks at the configured rate, and
the quota is exceeded while there is debt. No request waits for the debt of the last response, so
for each throttled partition a move may end early by about one second of bytes.
"""

from collections.abc import Mapping

from tidelog.core.controller.metadata import keys
from tidelog.core.controller.metadata.cluster_image import ClusterImage
from tidelog.core.node.config import NodeConfig
from tidelog.core.types import BrokerId

LEADER_RATE = "leader.replication.throttled.rate"
FOLLOWER_RATE = "follower.replication.throttled.rate"
MOVE_RATE = "replica.alter.log.dirs.io.max.bytes.per.second"
LEADER_REPLICAS = "leader.replication.throttled.replicas"
FOLLOWER_REPLICAS = "follower.replication.throttled.replicas"
ALL = "*"
RECHECK_MS = 1000
"""The longest time until a throttled replica is checked again: settings may have changed."""
IN_SYNC_DEBT_S = 10
"""The most debt, in seconds, to which in-sync replicas add: their rate may exceed the limit for
long, and the others must not wait for all of that afterwards."""


class ReplicationQuota:
    """One of the limits on one broker."""

    __slots__ = ("_at_ms", "_at_start", "_broker", "_changes", "_debt", "_image", "_name", "_rate")

    def __init__(
        self, name: str, broker: BrokerId, image: ClusterImage, at_start: int | None
    ) -> None:
        self._name = name
        self._broker = broker
        self._image = image
        self._at_start = at_start
        self._rate = at_start
        self._changes = -1
        self._debt = 0.0
        self._at_ms = 0

    def rate(self) -> int | None:
        """The largest rate in bytes a second: of this broker, of all brokers, or at startup."""
        if self._changes != self._image.config_changes:
            self._changes = self._image.config_changes
            rate = self._at_start
            for key in (keys.DEFAULT_CONFIG, keys.broker_config(self._broker)):
                text = self._image.configs.get(key, {}).get(self._name)
                if text:
                    rate = int(text)
            if rate != self._rate:
                # At a lower rate the debt takes as long as before: the bytes of a high rate would
                # stop all copies for long.
                kept = min(rate / self._rate, 1.0) if rate and self._rate else 0.0
                self._debt *= kept
                self._rate = rate
        return self._rate

    def record(self, size: int, now_ms: int, *, in_sync: bool) -> None:
        """Count bytes of a throttled partition."""
        rate = self.rate()
        if rate is None:
            return
        self._settle(rate, now_ms)
        if not in_sync:
            self._debt += size
        elif self._debt < rate * IN_SYNC_DEBT_S:
            self._debt = min(self._debt + size, float(rate * IN_SYNC_DEBT_S))

    def wait_ms(self, now_ms: int) -> int:
        """How long replicas that are not in sync wait, `RECHECK_MS` at most; 0: not at all."""
        rate = self.rate()
        if rate is None:
            return 0
        if rate == 0:
            return RECHECK_MS
        self._settle(rate, now_ms)
        if self._debt <= 0:
            return 0
        return min(int(self._debt * 1000 / rate) + 1, RECHECK_MS)

    def most_bytes(self) -> int | None:
        """The bytes of one second, to limit one response; None without a limit."""
        rate = self.rate()
        return None if rate is None else max(rate, 1)

    def _settle(self, rate: int, now_ms: int) -> None:
        passed_ms = now_ms - self._at_ms
        if passed_ms > 0:
            self._at_ms = now_ms
            self._debt = max(self._debt - rate * passed_ms / 1000, 0.0)


class ReplicationQuotas:
    """The limits of one broker: as a leader, as a follower, and for moves between its disks."""

    __slots__ = ("follower", "leader", "moves")

    def __init__(self, config: NodeConfig, image: ClusterImage) -> None:
        me = config.broker_id
        at_start = config.leader_replication_throttled_rate
        self.leader = ReplicationQuota(LEADER_RATE, me, image, at_start)
        at_start = config.follower_replication_throttled_rate
        self.follower = ReplicationQuota(FOLLOWER_RATE, me, image, at_start)
        at_start = config.replica_alter_log_dirs_io_max_bytes_per_second
        self.moves = ReplicationQuota(MOVE_RATE, me, image, at_start)


def throttled(overrides: Mapping[str, str], name: str, partition: int, broker: BrokerId) -> bool:
    """Whether a topic's list of throttled replicas has this one."""
    text = overrides.get(name)
    if not text:
        return False
    return text == ALL or f"{partition}:{broker}" in text.split(",")
