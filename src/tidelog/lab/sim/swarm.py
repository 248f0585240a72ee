"""Draw the plan of a run from its seed: first the mix of options, then the actions and their times.

Every run has a different mix (swarm testing), because a fault kind that is always active hides bugs
that appear only without it. All actions on the cluster are drawn in advance, so that a failing run
can be repeated without some of them (shrink.py). The target of a fault is often the leader of a
partition at that time, because faults of a leader have the most effect.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random
from typing import NamedTuple
from zlib import crc32

from tidelog.core.controller.events import UpgradeType
from tidelog.core.groups.config import GroupConfig
from tidelog.core.node.config import NodeConfig
from tidelog.core.replication.events import ACKS_ALL, ACKS_LEADER, ACKS_NONE
from tidelog.core.storage.log_config import LogConfig
from tidelog.core.storage.log_copy import CopyLimits
from tidelog.core.transactions.config import TransactionConfig
from tidelog.core.types import BrokerId, TopicId
from tidelog.lab.sim.machine.disk import PowerLossWeights
from tidelog.lab.sim.machine.network import LinkConditions
from tidelog.lab.sim.machine.store import StoreFaults

_TRANSACTIONS = TransactionConfig(transaction_abort_timed_out_transaction_cleanup_interval_ms=200)
_GROUPS = GroupConfig(group_min_session_timeout_ms=100, group_initial_rebalance_delay_ms=200)
CALM_START_MS = 1_500
"""Enough time for brokers to register and for the admin to create the topic."""


class Action(NamedTuple):
    """A fault, admin request or produce at a given time.

    `target` is a broker or, if negative, the leader of partition -1 - target at that time. For a
    produce it is the partition. The meaning of `amounts` depends on the kind.
    """

    at_ms: int
    kind: str
    target: int = 0
    amounts: tuple[int, ...] = ()


class ProducerPlan(NamedTuple):
    """The options of one producer."""

    acks: int
    idempotent: bool


class ConsumerPlan(NamedTuple):
    """The options of one consumer."""

    partition: int
    from_followers: bool
    sends_epoch: bool


class IdleRestart(NamedTuple):
    """A clean restart of a broker that has nothing to do."""

    broker: BrokerId
    after_ms: int
    """When the broker is asked to stop, after the start of its round."""
    down_ms: int
    """How long the process is down: both shorter and longer than a fetch waits at a leader."""


class IdleDisturbance(NamedTuple):
    """A fault during idle restarts that loses nothing: it only lets events arrive late."""

    kind: str
    broker: BrokerId
    after_ms: int
    for_ms: int


class FeatureLevels(NamedTuple):
    """The levels of `tidelog.version` that one version of the software supports."""

    lowest: int
    highest: int


@dataclass(slots=True)
class Plan:
    """All options and actions of a run, drawn before it begins."""

    seed: int
    brokers: int
    partitions: int
    replication_factor: int
    min_insync_replicas: int
    unclean: bool
    flush_before_ack: bool
    proof_of_death: bool
    duration_ms: int
    conditions: LinkConditions
    store: StoreFaults
    power_loss: PowerLossWeights
    producers: list[ProducerPlan]
    consumers: list[ConsumerPlan]
    groups: bool = False
    """Whether clients use groups and commit offsets."""
    compacted: bool = False
    """Whether there is also a compacted topic."""
    transactional_ids: int = 0
    """How many transactional ids producers use; with 0 there are no transactions."""
    late_topics: bool = False
    """Whether topics, including the groups' offsets topic, are created while brokers are down."""
    retention_ms: int | None = None
    """The topic's retention time in runs that set wall clocks. In these runs nothing else deletes
    records, so the oracle knows the age of each deleted record."""
    scrub_interval_ms: int = 7 * 86_400_000
    """Short in runs that damage files of running brokers."""
    two_damaged: bool = False
    """Whether several replicas are damaged at a time. Records may then be lost, but brokers must
    report the loss (oracle/promise.py)."""
    software: tuple[FeatureLevels, ...] = ()
    """The levels that the old and the new software support, in runs with rolling upgrades."""
    two_directories: bool = False
    """Whether each broker has two log directories, of which one may fail."""
    copy_limits: CopyLimits = field(default_factory=CopyLimits)
    """Small in runs that move replicas between log directories: a copy then takes a while."""
    brief_topics: bool = False
    """Whether a topic is created, moved and deleted repeatedly."""
    idle_restarts: tuple[tuple[IdleRestart, ...], ...] = ()
    """The rounds of restarts after everything has settled, while no client writes."""
    idle_disturbances: tuple[tuple[IdleDisturbance, ...], ...] = ()
    """The disturbances of each round."""
    actions: list[Action] = field(default_factory=list)

    def node_config(self, broker: BrokerId) -> NodeConfig:
        """Return the settings of a broker.

        Most times are at most a tenth of Kafka's defaults, so that much happens in a short run.
        """
        draw = Random(f"{self.seed}/config")
        log = LogConfig(
            segment_bytes=draw.choice((600, 1_500, 4_000, 1 << 20)),
            segment_index_bytes=draw.choice((64, 4_096)),
            index_interval_bytes=draw.choice((0, 200, 4_096)),
            file_delete_delay_ms=draw.choice((200, 2_000)),
            retention_bytes=draw.choice((-1, -1, -1, 2_500)),
        )
        if self.retention_ms is not None:
            log.retention_bytes, log.retention_ms = -1, self.retention_ms
        lags_ms = (IDLE_LAG_MS,) * 3 if self.idle_restarts else (800, 1_500, 3_000)
        fetch_waits_ms = (IDLE_FETCH_WAIT_MS,) if self.idle_restarts else (100, 300, 500)
        balance = Random(f"{self.seed}/balance")
        return NodeConfig(
            broker,
            log=log,
            auto_leader_rebalance_enable=balance.random() < 0.8,
            leader_imbalance_check_interval_seconds=balance.choice((1, 3, 300)),
            groups=_GROUPS,
            transactions=_TRANSACTIONS,
            replica_lag_time_max_ms=draw.choice(lags_ms),
            replica_fetch_wait_max_ms=draw.choice(fetch_waits_ms),
            replica_fetch_max_bytes=draw.choice((300, 2_000, 1 << 20)),
            replica_fetch_backoff_ms=draw.choice((50, 200)),
            high_watermark_linger_ms=draw.choice((0, 5)),
            replica_socket_timeout_ms=1_000,
            request_timeout_ms=1_000,
            broker_session_timeout_ms=draw.choice((2_000, 3_000)),
            broker_heartbeat_interval_ms=500,
            controlled_shutdown_timeout_ms=2_000,
            replica_high_watermark_checkpoint_interval_ms=draw.choice((300, 1_000, 5_000)),
            log_retention_check_interval_ms=draw.choice((700, 2_000)),
            log_flush_offset_checkpoint_interval_ms=draw.choice((500, 3_000)),
            log_flush_start_offset_checkpoint_interval_ms=draw.choice((500, 3_000)),
            log_cleaner_backoff_ms=200 if self.compacted else 15_000,
            clock_hold_ms=CLOCK_HOLD_MS,
            producer_id_expiration_check_interval_ms=1_000,
            scrub_interval_ms=self.scrub_interval_ms,
            partitions_at_once=Random(f"{self.seed}/slices").choice((1, 1, 2, 16)),
        )

    def topic_configs(self) -> dict[str, str]:
        """Return the topic's settings for the create request."""
        configs = {
            "min.insync.replicas": str(self.min_insync_replicas),
            "unclean.leader.election.enable": "true" if self.unclean else "false",
        }
        if self.flush_before_ack:
            configs["flush.messages"] = "1"
        return configs

    def offsets_topic_configs(self) -> dict[str, str]:
        """Return settings without retention: an old record may be a group's latest commit."""
        if self.transactional_ids:
            return self.transaction_configs()
        return {**self.topic_configs(), "retention.bytes": "-1", "retention.ms": "-1"}

    def transaction_configs(self) -> dict[str, str]:
        """Return settings with which no committed record is ever lost or deleted."""
        return {
            "min.insync.replicas": str(self.min_insync_replicas),
            "unclean.leader.election.enable": "false",
            "flush.messages": "1",
            "retention.bytes": "-1",
            "retention.ms": "-1",
        }

    def table_configs(self) -> dict[str, str]:
        """Return settings with which no committed record is lost and the cleaner works often."""
        draw = Random(f"{self.seed}/table")
        return {
            "min.insync.replicas": str(self.min_insync_replicas),
            "unclean.leader.election.enable": "false",
            "flush.messages": "1",
            "cleanup.policy": "compact",
            "segment.bytes": draw.choice(("400", "1000", "3000")),
            "min.cleanable.dirty.ratio": draw.choice(("0.01", "0.3")),
            "delete.retention.ms": draw.choice(("0", "1000", "60000")),
        }

    @property
    def table_id(self) -> TopicId:
        return self._topic_id(b"table %d")

    @property
    def topic_id(self) -> TopicId:
        return self._topic_id(b"%d")

    @property
    def offsets_topic_id(self) -> TopicId:
        return self._topic_id(b"offsets %d")

    @property
    def transactions_topic_id(self) -> TopicId:
        return self._topic_id(b"transactions %d")

    @property
    def transfers_id(self) -> TopicId:
        return self._topic_id(b"transfers %d")

    def _topic_id(self, pattern: bytes) -> TopicId:
        return crc32(pattern % self.seed).to_bytes(4, "big") * 4

    @property
    def first_group_ms(self) -> int:
        """The time at which the offsets topic is created."""
        if not self.late_topics:
            return 320
        return Random(f"{self.seed}/first group").randint(CALM_START_MS, self.duration_ms - 1_000)

    @property
    def effective_min_isr(self) -> int:
        return min(self.min_insync_replicas, self.replication_factor)

    def line(self) -> str:
        """Return the mix of options as one line of text."""
        return (
            f"{self.brokers} brokers, {self.partitions} partitions, "
            f"RF {self.replication_factor}, min ISR {self.min_insync_replicas}, "
            f"unclean {'on' if self.unclean else 'off'}, "
            f"flush before ack {'on' if self.flush_before_ack else 'off'}, "
            f"{'a group, ' if self.groups else ''}"
            f"{'a compacted topic, ' if self.compacted else ''}"
            f"{f'{self.transactional_ids} transactional ids, ' if self.transactional_ids else ''}"
            f"{'topics during faults, ' if self.late_topics else ''}"
            f"{'several damaged replicas, ' if self.two_damaged else ''}"
            f"{'rolling upgrades, ' if self.software else ''}"
            f"{'two log directories, ' if self.two_directories else ''}"
            f"{'brief topics, ' if self.brief_topics else ''}"
            f"{'idle restarts, ' if self.idle_restarts else ''}"
            f"{len(self.actions)} actions in {self.duration_ms / 1000:g} s"
        )


FAULTS = (
    "kill",
    "chase-leader",
    "lose-power",
    "lose-power-everywhere",
    "shut-down",
    "pause",
    "jump-clock",
    "cut-one-way",
    "cut-both-ways",
    "isolate",
    "cut-from-store",
    "clog",
    "rain",
    "fill-disk",
    "break-disk",
    "die-in-write",
    "slow-disk",
    "cut-watch",
    "compact-store",
    "elect",
    "reassign",
    "delete-records",
)
LOST_FOLDERS = ("lose-folder", "lose-folders-everywhere")
DAMAGED_LOGS = ("damage-log", "damage-log-everywhere-down")
STOPPED = "damage-stopped"
DAMAGED_CHECKPOINTS = ("damage-checkpoint", "damage-checkpoint-everywhere-down")
OLD_COPY = "put-back-old-copy"
_DAMAGED = (*DAMAGED_LOGS, *DAMAGED_CHECKPOINTS, STOPPED, OLD_COPY)
BY_HAND = (*LOST_FOLDERS, *_DAMAGED, "store-goes-back")
"""Faults that change files while brokers are down, or restore old metadata in the store. They
have their own generators."""
BAD_DISKS = ("decay", "lie", "damage-two")
"""Faults of disks, with their own generator: files of running brokers decay, a disk reports syncs
that it did not do, or several replicas are damaged at a time."""
MOVE = "move-replica"
"""A fault with its own generator, only where brokers have two log directories: a replica is moved
from one to the other, often with a second fault during the move."""
FAIL_DIRECTORY = "fail-directory"
"""A fault with its own generator: one of two log directories of a broker fails."""
KILL_AT_OUTCOME = "kill-at-outcome"
"""A fault with its own generator: when the outcome of a transaction is decided and not all markers
are written, its coordinator dies, or the leader of one of its partitions, or both."""
UNREGISTER = "unregister"
"""A fault with its own generator: a broker is unregistered while it is down."""
STORE_AWAY = "store-away"
"""A fault with its own generator: the store responds to no broker."""
STORE_LEADER = "store-leader"
"""A fault with its own generator: the store's leader changes while a broker is silent."""
UPGRADES = ("install", "update-features", "lag-watch")
"""Faults with their own generator: a broker restarts with older or newer software, an administrator
raises or lowers the feature level, or a broker learns of changes late."""
SOFTWARE = (
    (FeatureLevels(1, 1), FeatureLevels(1, 2)),
    (FeatureLevels(1, 2), FeatureLevels(1, 3)),
    (FeatureLevels(1, 2), FeatureLevels(2, 3)),
)
"""Pairs of old and new software. The newest one of the last pair no longer supports level 1."""
CLOCKS = ("set-clock", "set-clocks-everywhere")
"""Faults that set wall clocks, with their own generator."""
CLOCK_HOLD_MS = 10_000
"""Longer than any clock stays wrong."""
IDLE_RESTARTS = 1 / 8
"""The part of the runs in which brokers restart cleanly while no client writes."""
IDLE_DISTURBANCES = ("pause", "clog", "lag-watch", "cut-watch")
"""A broker hangs, its messages to the next broker are held back, or it learns of changes late."""
IDLE_FETCH_WAIT_MS = 500
"""Kafka's default, in these runs: a leader answers the last fetch of a stopped follower when the
next process may have fetched already."""
IDLE_LAG_MS = 60_000
"""Longer than a run waits, in these runs: leaders consider all followers at half of this interval,
which would hide that a fetch rests although it is needed."""
RESTLESS = ("chase-leader", "elect", "shut-down", "kill")
_WEIGHTS = {
    "kill": 3,
    "chase-leader": 3,
    "lose-power": 2,
    "pause": 2,
    "isolate": 2,
    "die-in-write": 2,
    "elect": 2,
}


def draw_plan(seed: int) -> Plan:
    """Return the plan of a seed."""
    draw = Random(f"{seed}/plan")
    # One run in six changes leaders often while many requests are in flight. The high watermark
    # then always lags, and rules that rely on it fail.
    restless = draw.random() < 1 / 6
    brokers = draw.choice((3, 3, 3, 3, 2, 4, 5))
    rough = draw.random() < 0.6
    partitions = draw.choice((1, 1, 2, 3))
    plan = Plan(
        seed,
        brokers,
        partitions,
        replication_factor=draw.choice([n for n in (2, 3, 3, 3) if n <= brokers]),
        min_insync_replicas=draw.choice((1, 2, 2)),
        unclean=draw.random() < 0.2,
        flush_before_ack=draw.random() < 0.25,
        proof_of_death=draw.random() < 0.5,
        duration_ms=draw.choice((5_000, 7_000, 9_000)),
        conditions=LinkConditions(5, 60) if restless else _draw_conditions(draw, rough),
        store=_draw_store(draw),
        power_loss=_draw_power_loss(draw),
        producers=_draw_producers(draw),
        consumers=_draw_consumers(draw, partitions),
        groups=Random(f"{seed}/groups").random() < 0.3,
        compacted=Random(f"{seed}/compacted").random() < 0.2,
        late_topics=Random(f"{seed}/late topics").random() < 0.2,
    )
    # An operator's unclean election affects all partitions, but the compacted topic must not
    # lose records.
    plan.compacted = plan.compacted and not plan.unclean
    _draw_faults(draw, plan, RESTLESS if restless else None)
    _draw_lost_folders(plan)
    _draw_damaged_logs(plan)
    _draw_damaged_checkpoints(plan)
    _draw_bad_disks(plan)
    _draw_store_going_back(plan)
    _draw_store_outages(plan)
    _draw_store_leaders(plan)
    _draw_unregistrations(plan)
    _draw_wrong_clocks(plan)
    _draw_upgrades(plan)
    _draw_old_copies(plan)
    _draw_failed_directories(plan)
    _draw_moves(plan)
    _draw_idle_restarts(plan)
    _draw_transactions(plan)
    _draw_produces(draw, plan, 25 if restless else draw.choice((60, 120, 300)))
    plan.actions.sort()
    return plan


def _draw_transactions(plan: Plan) -> None:
    """Let clients use transactions in one run of five, and kill brokers in the middle of some.

    In half of these runs most faults of `FAULTS` are left out: a transaction has many steps, and
    few end while brokers die all the time.
    """
    draw = Random(f"{plan.seed}/transactional ids")
    # As in the compacted topic, no record may be lost.
    may_lose = plan.unclean or any(action.kind == "lie" for action in plan.actions)
    if draw.random() < 1 / 5 and not may_lose:
        plan.transactional_ids = draw.choice((1, 1, 2, 3))
        kept = draw.choice((1.0, 1.0, 0.3, 0.1))
        plan.actions = [
            action for action in plan.actions if action.kind not in FAULTS or draw.random() < kept
        ]
        for _ in range(draw.randint(0, 4)):
            at = draw.randint(CALM_START_MS, plan.duration_ms)
            amounts = (draw.choice((20, 200, 600, 1_500)), 0, draw.randrange(1 << 16))
            plan.actions.append(Action(at, KILL_AT_OUTCOME, 1, amounts))


def _draw_idle_restarts(plan: Plan) -> None:
    """Draw which brokers restart while nothing is written; one of them does not in a round."""
    draw = Random(f"{plan.seed}/idle restarts")
    if draw.random() >= IDLE_RESTARTS:
        return
    rounds = []
    for _ in range(draw.randint(4, 10)):
        stays, apart_ms = draw.randint(1, plan.brokers), draw.choice((0, 100, 500))
        rounds.append(
            tuple(
                IdleRestart(broker, draw.randint(0, apart_ms), draw.randint(20, 600))
                for broker in range(1, plan.brokers + 1)
                if broker != stays
            )
        )
    plan.idle_restarts = tuple(rounds)
    draw = Random(f"{plan.seed}/idle disturbances")
    plan.idle_disturbances = tuple(
        tuple(
            IdleDisturbance(
                draw.choice(IDLE_DISTURBANCES),
                draw.randint(1, plan.brokers),
                draw.randint(0, 1_500),
                draw.choice((5, 20, 60, 200, 500, 1_200)),
            )
            for _ in range(draw.randint(0, 6))
        )
        for _ in rounds
    )


def _draw_conditions(draw: Random, rough: bool) -> LinkConditions:
    if not rough:
        return LinkConditions(latency_max_ms=draw.choice((2, 5)))
    return LinkConditions(
        latency_max_ms=draw.choice((3, 10, 40, 100)),
        drop=draw.choice((0.0, 0.01, 0.03)),
        duplicate=draw.choice((0.0, 0.02, 0.05)),
        late=draw.choice((0.0, 0.02, 0.05)),
        late_max_ms=draw.choice((100, 400, 1_500)),
    )


def _draw_store(draw: Random) -> StoreFaults:
    return StoreFaults(
        unavailable=draw.choice((0.0, 0.0, 0.05, 0.15)), unknown=draw.choice((0.0, 0.0, 0.05, 0.15))
    )


def _draw_power_loss(draw: Random) -> PowerLossWeights:
    return PowerLossWeights(
        forget=draw.choice((0.0, 1.0, 3.0)),
        tear=draw.choice((0.0, 1.0)),
        flip=draw.choice((0.0, 1.0)),
        zero=draw.choice((0.0, 1.0)),
        keep=draw.choice((0.2, 1.0)),
    )


def _draw_producers(draw: Random) -> list[ProducerPlan]:
    plans = [ProducerPlan(ACKS_ALL, draw.random() < 0.5)]
    for _ in range(draw.randint(0, 2)):
        acks = draw.choice((ACKS_ALL, ACKS_LEADER, ACKS_NONE))
        plans.append(ProducerPlan(acks, acks == ACKS_ALL and draw.random() < 0.5))
    return plans


def _draw_consumers(draw: Random, partitions: int) -> list[ConsumerPlan]:
    return [
        ConsumerPlan(draw.randrange(partitions), draw.random() < 0.4, draw.random() < 0.5)
        for _ in range(draw.randint(1, 2))
    ]


def _draw_faults(draw: Random, plan: Plan, kinds: Sequence[str] | None) -> None:
    """Add faults of the given kinds, or of two to seven random kinds, at random times."""
    if kinds is None:
        kinds = draw.sample(FAULTS, draw.randint(2, 7))
    weights = [_WEIGHTS.get(kind, 1) for kind in kinds]
    gap = draw.choice((250, 500, 1_000))
    at = CALM_START_MS
    while at < plan.duration_ms:
        at += draw.randint(1, 2 * gap)
        kind = draw.choices(kinds, weights)[0]
        target = _draw_target(draw, plan)
        duration = draw.choice((20, 200, 600, 1_500, 4_000))
        amounts = (duration, draw.randint(1, plan.brokers), draw.randrange(1 << 16))
        plan.actions.append(Action(at, kind, target, amounts))


def _draw_lost_folders(plan: Plan) -> None:
    """Remove folders once or twice, in one run of six."""
    draw = Random(f"{plan.seed}/folders")
    if draw.random() < 1 / 6:
        for _ in range(draw.randint(1, 2)):
            at = draw.randint(CALM_START_MS + 500, plan.duration_ms)
            kind, target = draw.choice(LOST_FOLDERS), _draw_target(draw, plan)
            amounts = (draw.choice((20, 200, 600, 1_500)), 0, draw.randrange(1 << 16))
            plan.actions.append(Action(at, kind, target, amounts))


def _draw_damaged_logs(plan: Plan) -> None:
    """Damage logs up to three times, in one run of six."""
    draw = Random(f"{plan.seed}/damage")
    if draw.random() < 1 / 6:
        for _ in range(draw.randint(1, 3)):
            at = draw.randint(CALM_START_MS + 500, plan.duration_ms)
            kind, target = draw.choice(DAMAGED_LOGS), _draw_target(draw, plan)
            amounts = (draw.choice((20, 200, 600, 1_500)), 0, draw.randrange(1 << 16))
            plan.actions.append(Action(at, kind, target, amounts))


def _draw_damaged_checkpoints(plan: Plan) -> None:
    """Damage checkpoints up to four times, in one run of five.

    With the same odds, do so after a clean stop of the broker.
    """
    draw = Random(f"{plan.seed}/checkpoints")
    if draw.random() < 1 / 5:
        for _ in range(draw.randint(1, 4)):
            _draw_damage(draw, plan, draw.choice(DAMAGED_CHECKPOINTS))
    # After a clean stop the cluster assumes that the broker has every committed record.
    draw = Random(f"{plan.seed}/stopped")
    if draw.random() < 1 / 5:
        for _ in range(draw.randint(1, 4)):
            _draw_damage(draw, plan, STOPPED)


def _draw_bad_disks(plan: Plan) -> None:
    """Add disk faults.

    In one run of five, files decay. In one of eight, a disk reports syncs that it did not do. In
    one of twelve, several replicas are damaged at a time.
    """
    draw = Random(f"{plan.seed}/bad disks")
    if draw.random() < 1 / 5:
        plan.scrub_interval_ms = draw.choice((300, 1_000, 3_000))
        for _ in range(draw.randint(1, 4)):
            _draw_damage(draw, plan, "decay")
    # The oracle tracks the losses of a lying disk for one topic only.
    if draw.random() < 1 / 8 and not plan.groups and not plan.compacted:
        _draw_damage(draw, plan, "lie")
    if draw.random() < 1 / 12:
        plan.two_damaged = True
        plan.scrub_interval_ms = draw.choice((300, 1_000, 3_000))
        for _ in range(draw.randint(1, 3)):
            _draw_damage(draw, plan, "damage-two")


def _draw_damage(draw: Random, plan: Plan, kind: str) -> None:
    at = draw.randint(CALM_START_MS + 500, plan.duration_ms)
    amounts = (draw.choice((20, 200, 600, 1_500)), 0, draw.randrange(1 << 16))
    plan.actions.append(Action(at, kind, _draw_target(draw, plan), amounts))


def _draw_store_going_back(plan: Plan) -> None:
    """Let the store go back in time once, in one run of eight."""
    draw = Random(f"{plan.seed}/store-back")
    if draw.random() < 1 / 8:
        at = draw.randint(CALM_START_MS + 500, plan.duration_ms)
        amounts = (draw.choice((20, 200, 600)), 0, draw.randrange(1 << 16))
        plan.actions.append(Action(at, "store-goes-back", 1, amounts))


def _draw_store_outages(plan: Plan) -> None:
    """Let the store fail once or twice, mostly for longer than a session, in one run of five."""
    draw = Random(f"{plan.seed}/store-away")
    if draw.random() < 1 / 5:
        for _ in range(draw.randint(1, 2)):
            at = draw.randint(CALM_START_MS, plan.duration_ms - 1_000)
            duration = draw.choice((600, 2_500, 4_000, 6_000))
            plan.actions.append(Action(at, STORE_AWAY, 1, (duration,)))


def _draw_store_leaders(plan: Plan) -> None:
    """Pause a broker or cut it off from the store up to three times, and let the store's leader
    change meanwhile, in one run of four: all sessions get their whole time to live again."""
    draw = Random(f"{plan.seed}/{STORE_LEADER}")
    if draw.random() >= 1 / 4:
        return
    for _ in range(draw.randint(1, 3)):
        at = draw.randint(CALM_START_MS, plan.duration_ms - 1_000)
        kind, silence_ms = draw.choice(("pause", "cut-from-store")), draw.choice((1_000, 4_000))
        plan.actions.append(Action(at, kind, _draw_target(draw, plan), (silence_ms, 0, 0)))
        at += draw.randint(0, silence_ms // 2)
        plan.actions.append(Action(at, STORE_LEADER, 1, (draw.choice((50, 200, 700)),)))


def _draw_unregistrations(plan: Plan) -> None:
    """Unregister a broker once or twice, in one run of eight."""
    draw = Random(f"{plan.seed}/unregister")
    if draw.random() < 1 / 8:
        for _ in range(draw.randint(1, 2)):
            at = draw.randint(CALM_START_MS + 500, plan.duration_ms)
            amounts = (draw.choice((20, 200, 600, 1_500)), 0, 0)
            plan.actions.append(Action(at, UNREGISTER, _draw_target(draw, plan), amounts))


def _draw_wrong_clocks(plan: Plan) -> None:
    """Set wall clocks up to four times, in one run of six."""
    draw = Random(f"{plan.seed}/clocks")
    if draw.random() < 1 / 6:
        plan.retention_ms = draw.choice((2_000, 4_000, 100_000))
        plan.actions = [one for one in plan.actions if one.kind != "delete-records"]
        for _ in range(draw.randint(1, 4)):
            at = draw.randint(CALM_START_MS, plan.duration_ms)
            amounts = (draw.choice((20, 600, 1_500, 4_000)), 0, draw.randrange(1 << 16))
            kind = draw.choice(CLOCKS)
            plan.actions.append(Action(at, kind, draw.randint(1, plan.brokers), amounts))


def _draw_upgrades(plan: Plan) -> None:
    """Upgrade all brokers one by one and raise the level, in one run of six.

    In between, replace the software of some brokers by either version, and raise or lower the
    level at random times: most of these changes must be refused.
    """
    draw = Random(f"{plan.seed}/upgrades")
    if draw.random() >= 1 / 6:
        return
    plan.software = draw.choice(SOFTWARE)
    install, update, lag = UPGRADES
    highest = plan.software[1].highest
    at, gap = CALM_START_MS, draw.choice((100, 300, 600))
    for broker in draw.sample(range(1, plan.brokers + 1), plan.brokers):
        at += draw.randint(1, 2 * gap)
        amounts = (draw.choice((20, 200, 600)), 1, draw.randrange(2))
        plan.actions.append(Action(at, install, broker, amounts))
    for _ in range(draw.randint(1, 4)):
        at += draw.randint(1, 2 * gap)
        plan.actions.append(Action(at, update, 1, (highest, UpgradeType.UPGRADE.value)))
    for _ in range(draw.randint(0, 6)):
        at = draw.randint(CALM_START_MS, plan.duration_ms)
        amounts = (draw.choice((20, 200, 600)), draw.choice((0, 1, 1)), draw.randrange(2))
        plan.actions.append(Action(at, install, draw.randint(1, plan.brokers), amounts))
    for _ in range(draw.randint(8, 24)):
        at = draw.randint(CALM_START_MS, plan.duration_ms)
        kind = draw.choice((UpgradeType.UPGRADE, UpgradeType.UNSAFE_DOWNGRADE))
        level = highest if kind is UpgradeType.UPGRADE else highest - 1
        plan.actions.append(Action(at, update, 1, (level, kind.value)))
    for _ in range(draw.randint(0, 3)):
        # Raise the level while a broker starts with the old software and is about to register.
        at, broker = draw.randint(CALM_START_MS, plan.duration_ms), draw.randint(1, plan.brokers)
        plan.actions.append(Action(at, install, broker, (200, 0, 1)))
        plan.actions.append(Action(at, lag, broker, (2_000,)))
        for _ in range(12):
            raised = (highest, UpgradeType.UPGRADE.value)
            plan.actions.append(Action(at + draw.randint(300, 600), update, 1, raised))
        plan.actions.append(Action(at + 2_500, install, broker, (20, 1, draw.randrange(2))))


def _draw_failed_directories(plan: Plan) -> None:
    """Give brokers two log directories, in one of four runs without faults that change files by
    hand, and let some of them fail.

    Those faults look for files in one directory. So does the oracle after a replica was moved away
    and back while a directory was offline, so replicas are not moved either.
    """
    draw = Random(f"{plan.seed}/directories")
    by_hand = {*BY_HAND, *BAD_DISKS}
    if draw.random() >= 1 / 4 or any(action.kind in by_hand for action in plan.actions):
        return
    plan.two_directories = True
    plan.actions = [action for action in plan.actions if action.kind != "reassign"]
    for _ in range(draw.randint(1, 5)):
        at = draw.randint(CALM_START_MS, plan.duration_ms)
        amounts = (draw.choice((100, 600, 1_500, 4_000)), 0, draw.randrange(1 << 16))
        plan.actions.append(Action(at, FAIL_DIRECTORY, _draw_target(draw, plan), amounts))


def _draw_moves(plan: Plan) -> None:
    """Move replicas between the two log directories of a broker, in four of five such runs. In one
    of three of them, a topic is also created, moved and deleted repeatedly."""
    draw = Random(f"{plan.seed}/moves")
    if not plan.two_directories or draw.random() >= 4 / 5:
        return
    plan.brief_topics = draw.random() < 1 / 3
    plan.copy_limits = CopyLimits(
        piece_bytes=draw.choice((50, 200, 1_000, 1 << 20)),
        sync_bytes=draw.choice((100, 500, 1 << 20)),
        rest_bytes=draw.choice((100, 500, 1 << 20)),
        rest_files=draw.choice((2, 32)),
    )
    for _ in range(draw.randint(3, 12)):
        at = draw.randint(CALM_START_MS, plan.duration_ms)
        duration = draw.choice((20, 200, 600, 1_500, 4_000))
        amounts = (duration, draw.randint(1, plan.brokers), draw.randrange(1 << 16))
        plan.actions.append(Action(at, MOVE, _draw_target(draw, plan), amounts))


def _draw_old_copies(plan: Plan) -> None:
    """Restore an old copy of a log, in one run of twelve, and remove all other faults.

    If brokers were killed too, no broker that can replace the leader might be left. With
    min.insync.replicas=1 there never is such a broker.
    """
    draw = Random(f"{plan.seed}/old copy")
    if draw.random() < 1 / 12 and plan.effective_min_isr > 1 and not plan.two_damaged:
        at = draw.randint(CALM_START_MS, CALM_START_MS + 1_000)
        amounts = (draw.choice((600, 1_500, 3_000)), draw.choice((20, 600, 2_000)))
        action = Action(at, OLD_COPY, _draw_target(draw, plan), (*amounts, draw.randrange(1 << 16)))
        plan.actions = [action]


def _draw_target(draw: Random, plan: Plan) -> int:
    if draw.random() < 0.65:
        return -1 - draw.randrange(plan.partitions)
    return draw.randint(1, plan.brokers)


def _draw_produces(draw: Random, plan: Plan, gap: int) -> None:
    largest = draw.choice((1, 3, 8))
    for producer in range(len(plan.producers)):
        at = 700
        while at < plan.duration_ms:
            at += draw.randint(1, 2 * gap)
            amounts = (producer, draw.randint(1, largest))
            partition = draw.randrange(plan.partitions)
            plan.actions.append(Action(at, "produce", partition, amounts))
