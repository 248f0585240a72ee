"""One run: build a cluster from a plan, inject faults, stop them, require that it settles.

In the first phase the plan's actions are carried out and every event is checked. Then faults
stop and brokers that are down are started; where logs are lost or damaged and no replica may
lead, an operator elects one. Every partition must get a leader and all its replicas into the
ISR with equal logs; no producer may still wait, every consumer must reach the end. The run fails
if nothing moves for `STUCK_MS` before that. In some runs brokers then restart cleanly, several at a
time, and everything must settle again although no client writes.
"""

import traceback
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple
from zlib import crc32

from tidelog.core.controller.events import CreateTopicReceived, ElectionType
from tidelog.core.controller.metadata.features import unsupported
from tidelog.core.controller.metadata.registrations import PartitionKey
from tidelog.core.coordinator.lookup import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from tidelog.core.node.events import ShutdownRequested
from tidelog.core.replication.events import ACKS_ALL
from tidelog.core.replication.truncation import LEADER_EPOCH, TruncationPolicy
from tidelog.core.types import BrokerId, Offset, TopicId, TopicPartition
from tidelog.lab.sim.clients.admin import SimAdmin, SimTopicMaker
from tidelog.lab.sim.clients.brief_topics import SimBriefTopics
from tidelog.lab.sim.clients.consumer import SimConsumer
from tidelog.lab.sim.clients.group_clients import (
    COORDINATED_BY,
    Shares,
    SimCommitter,
    SimMember,
    why_unshared,
)
from tidelog.lab.sim.clients.producers import COMPACTED, SimIdRequester, SimKeyWriter, SimProducer
from tidelog.lab.sim.clients.transactors import (
    COORDINATOR_PARTITION,
    TRANSFER_PARTITIONS,
    TRANSFERS,
    SimCommittedReader,
    SimTransactor,
)
from tidelog.lab.sim.faults import Faults
from tidelog.lab.sim.machine.disk import SimDisk
from tidelog.lab.sim.machine.network import Address, Network
from tidelog.lab.sim.machine.process import Process, Site
from tidelog.lab.sim.machine.store import SimStore
from tidelog.lab.sim.oracle.feature_levels import FeatureLevelOracle, software
from tidelog.lab.sim.oracle.moves import MoveOracle
from tidelog.lab.sim.oracle.oracle import InvariantBroken, Oracle
from tidelog.lab.sim.oracle.settled import given_up, why_not_settled
from tidelog.lab.sim.oracle.shadow import Entry
from tidelog.lab.sim.oracle.table import TableOracle
from tidelog.lab.sim.oracle.transactions import TransactionOracle
from tidelog.lab.sim.swarm import CALM_START_MS, UNREGISTER, IdleDisturbance, IdleRestart, Plan
from tidelog.lab.sim.text import event_lines
from tidelog.lab.sim.world import LAST_EVENTS, World

FIRST_READER, LAST_READERS, FOURTH_ADMIN, FIFTH_ADMIN, BRIEF_TOPICS, TOPIC_MAKER = (
    80,
    82,
    84,
    85,
    86,
    87,
)
KEY_WRITER, THIRD_ADMIN, FIRST_MEMBER, MEMBERS = 88, 89, 90, 3
COMMITTER, SECOND_ADMIN, ID_REQUESTER, ADMIN, FIRST_PRODUCER, FIRST_CONSUMER = (
    97,
    98,
    99,
    100,
    101,
    151,
)
FIRST_TRANSACTOR = 201
STUCK_MS = 20_000
"""Many times any timeout of a run: a cluster without progress for this long is stuck."""
SETTLE_MAX_MS = 150_000
"""The limit for a run that never settles, such as replicas that truncate and refetch in a loop."""
SETTLE_STEP_MS = 200
RESTART_MS = 15 * SETTLE_STEP_MS
OPERATOR_MS = 6_000
"""Longer than any session: a leader that is still missing then needs an operator."""
TOPIC = "t"


_OF_SHIPPED_RULES = ("isr-holds-committed", "losses-reported", "losses-recorded")
"""Invariants of the shipped rules. Historical rules violate them by design."""


class Violation(NamedTuple):
    """A violated invariant, with its time and the events before it."""

    invariant: str
    what: str
    at_ms: int
    event: int
    last_events: tuple[str, ...]


@dataclass(slots=True)
class Result:
    """Result of one run. Two runs of the same plan give equal results."""

    seed: int
    policy: str
    mix: str
    violations: list[Violation] = field(default_factory=list)
    events: int = 0
    virtual_ms: int = 0
    faults: dict[str, int] = field(default_factory=dict)
    acked: int = 0
    given_up: int = 0
    consumed: int = 0
    commits: int = 0
    """Number of offset commits that were acknowledged."""
    transactions: int = 0
    """Number of transactions whose commit was acknowledged."""
    cleaned_away: int = 0
    """Records of the compacted topic that cleaning removed from some replica."""
    committed: int = 0
    lost: int = 0
    """Committed records lost where the settings allow it."""
    damages: int = 0
    """Damaged replicas; each counts once until it is repaired."""
    repaired: int = 0
    """Damaged replicas that rejoined the ISR with sound files."""
    epochs: int = 0
    """The sum of the partitions' last leader epochs: how often leaders changed."""
    settled_ms: int | None = None
    fingerprint: int = 0
    cpu_s: float = field(default=0.0, compare=False)

    @property
    def clean(self) -> bool:
        return not self.violations


class Simulation:
    """A cluster with its clients, ready to run."""

    def __init__(
        self, plan: Plan, policy: TruncationPolicy = LEADER_EPOCH, *, keep_events: bool = False
    ) -> None:
        self.plan = plan
        self.result = Result(plan.seed, policy.name, plan.line())
        self.on_violation: Callable[[str], None] = lambda _: None
        self._shipped = policy is LEADER_EPOCH
        self._all_act_since_ms: int | None = None
        """Since when all brokers are up and registered, while the cluster settles."""
        self.world = World(plan.seed, keep_events=keep_events)
        network = Network(self.world, plan.conditions)
        store = SimStore(self.world, network, plan.store)
        self.site = Site(self.world, network, store)
        for broker in range(1, plan.brokers + 1):
            disk = SimDisk(self.world, str(broker), plan.power_loss)
            process = Process(self.site, plan.node_config(broker), disk, policy)
            if plan.software:
                process.supported = software(*plan.software[0])
            if plan.two_directories:
                process.split_disk()
                process.copy_limits = plan.copy_limits
            self.site.brokers[broker] = process
        self.partitions = {
            TopicPartition(TOPIC, index): PartitionKey(plan.topic_id, index)
            for index in range(plan.partitions)
        }
        if plan.groups or plan.transactional_ids:
            self.partitions[COORDINATED_BY] = PartitionKey(plan.offsets_topic_id, 0)
        if plan.transactional_ids:
            key = PartitionKey(plan.transactions_topic_id, 0)
            self.partitions[COORDINATOR_PARTITION] = key
            for name in TRANSFER_PARTITIONS:
                self.partitions[name] = PartitionKey(plan.transfers_id, name.partition)
        self.oracle = Oracle(
            self.site,
            self.partitions,
            min_isr=plan.effective_min_isr,
            unclean_allowed=plan.unclean,
            flush_before_ack=plan.flush_before_ack,
            retention_ms=plan.retention_ms,
            two_damaged=plan.two_damaged,
            report=self._report,
        )
        unregisters = any(action.kind == UNREGISTER for action in plan.actions)
        self.oracle.registrations.may_leave = unregisters
        if plan.software:
            self.oracle.features = FeatureLevelOracle(self.site, self._report)
        if plan.two_directories:
            self.oracle.moves = MoveOracle(self.site, self._report)
        if plan.transactional_ids:
            self.oracle.transactions = TransactionOracle(self.site, self._report)
        self.site.observer = self.oracle
        store.on_change = self.oracle.store_changed
        self._add_clients()

    def _add_clients(self) -> None:
        plan = self.plan
        topic = CreateTopicReceived(
            0, TOPIC, plan.topic_id, plan.partitions, plan.replication_factor, plan.topic_configs()
        )
        self.admin = SimAdmin(self.site, ADMIN, topic)
        self.committer: SimCommitter | None = None
        self.shares = Shares(self._assigned_twice)
        self.members: list[SimMember] = []
        if plan.groups or plan.transactional_ids:
            configs = plan.offsets_topic_configs()
            self._add_topic(
                SECOND_ADMIN, OFFSETS_TOPIC, plan.offsets_topic_id, 1, configs, plan.first_group_ms
            )
        if plan.groups:
            self.committer = SimCommitter(self.site, COMMITTER, plan.topic_id, self._commit_lost)
            self.world.at(1_000, self.committer.commit)
            self._add_members()
        self.key_writer: SimKeyWriter | None = None
        if plan.compacted:
            self._add_key_writer()
        self.topic_maker: SimTopicMaker | None = None
        if plan.late_topics:
            refused = self.oracle.registrations.creation_refused
            self.topic_maker = SimTopicMaker(self.site, TOPIC_MAKER, refused)
            self.world.at(CALM_START_MS, self.topic_maker.create)
        self.brief_topics: SimBriefTopics | None = None
        if plan.brief_topics:
            self.brief_topics = SimBriefTopics(self.site, BRIEF_TOPICS)
            self.world.at(CALM_START_MS, self.brief_topics.begin)
        self.id_requester = SimIdRequester(self.site, ID_REQUESTER, self._id_assigned_twice)
        self.producers = [
            SimProducer(
                self.site,
                FIRST_PRODUCER + number,
                acks=options.acks,
                idempotent=options.idempotent,
                acknowledged=self._acknowledged,
                acknowledged_alone=self._acknowledged_alone,
            )
            for number, options in enumerate(plan.producers)
        ]
        self.consumers = [
            SimConsumer(
                self.site,
                FIRST_CONSUMER + number,
                TopicPartition(TOPIC, options.partition),
                from_followers=options.from_followers,
                sends_epoch=options.sends_epoch,
                consumed=self._consumed,
                corrupt=self._corrupt,
            )
            for number, options in enumerate(plan.consumers)
        ]
        self.transactors: list[SimTransactor] = []
        self.last_readers: list[SimCommittedReader] = []
        if self.oracle.transactions is not None:
            self._add_transactors(self.oracle.transactions)
        self.faults = Faults(self.site, plan, self.producers, self.admin, self.oracle.transactions)

    def _add_topic(
        self,
        address: Address,
        name: str,
        topic_id: TopicId,
        partitions: int,
        configs: dict[str, str],
        at_ms: int,
    ) -> None:
        """Let an administrator create a topic."""
        copies = self.plan.replication_factor
        topic = CreateTopicReceived(0, name, topic_id, partitions, copies, configs)
        self.world.at(at_ms, SimAdmin(self.site, address, topic).create_topic)

    def _add_key_writer(self) -> None:
        plan = self.plan
        self._add_topic(THIRD_ADMIN, COMPACTED.topic, plan.table_id, 1, plan.table_configs(), 340)
        table = self.oracle.table = TableOracle(COMPACTED, self._report)
        self.key_writer = SimKeyWriter(self.site, KEY_WRITER, table.acknowledged)
        self.world.at(1_000, self.key_writer.write)

    def _add_members(self) -> None:
        for number in range(MEMBERS):
            static = bool(number and self.plan.seed % 2)
            member = SimMember(self.site, FIRST_MEMBER + number, self.shares, static=static)
            self.members.append(member)
            self.world.at(1_000 + 100 * number, member.send_next)

    def _add_transactors(self, transactions: TransactionOracle) -> None:
        """Add transactional producers, and a read-committed consumer of each partition. Others
        begin to read when everything settles."""
        plan = self.plan
        configs, count = plan.transaction_configs(), len(TRANSFER_PARTITIONS)
        state = (TRANSACTIONS_TOPIC, plan.transactions_topic_id, 1, configs, 360)
        self._add_topic(FOURTH_ADMIN, *state)
        self._add_topic(FIFTH_ADMIN, TRANSFERS, plan.transfers_id, count, configs, 380)
        for name in TRANSFER_PARTITIONS:
            self.consumers.append(self._reader(transactions, FIRST_READER, name))
            self.last_readers.append(self._reader(transactions, LAST_READERS, name))
        for number in range(plan.transactional_ids):
            self._start_transactor(transactions, f"id-{number}")

    def _reader(
        self, transactions: TransactionOracle, first_address: Address, name: TopicPartition
    ) -> SimCommittedReader:
        return SimCommittedReader(
            self.site,
            first_address + name.partition,
            name,
            from_followers=first_address == LAST_READERS,
            consumed=self._consumed,
            corrupt=self._corrupt,
            visible=transactions.read,
        )

    def _start_transactor(self, transactions: TransactionOracle, name: str) -> None:
        transactor = SimTransactor(
            self.site,
            FIRST_TRANSACTOR + len(self.transactors),
            name,
            self.plan.transfers_id,
            transactions,
            lambda: self._start_transactor(transactions, name),
        )
        self.transactors.append(transactor)
        self.world.at(1_000, transactor.start)

    # -- the run ---------------------------------------------------------------------------

    def run(self) -> Result:
        """Run both phases; under the shipped policy, stop at the first violation."""
        try:
            self._run_plan()
            self._settle()
        except InvariantBroken:
            pass  # recorded when it was raised
        except Exception:  # noqa: BLE001 - any exception of a broker is a finding
            self._note("no-exceptions", traceback.format_exc(limit=-8))
        self._sum_up()
        return self.result

    def _run_plan(self) -> None:
        for process in self.site.brokers.values():
            process.start()
        self.world.at(300, self.admin.create_topic)
        self.world.at(400, self.id_requester.request_id)
        for consumer in self.consumers:
            self.world.at(1_000, consumer.poll)
        self.faults.plan_all()
        self.world.run_until(self.plan.duration_ms)

    def _settle(self) -> None:
        """Stop all faults, start all brokers, and wait until the cluster has settled."""
        self.faults.stopped = True
        if self.committer is not None:
            self.committer.finish()
        if self.key_writer is not None:
            self.key_writer.finish()
        if self.topic_maker is not None:
            self.topic_maker.finished = True
        if self.brief_topics is not None:
            self.brief_topics.finish()
        for member in self.members:
            member.finish()
        for transactor in self.transactors:
            transactor.finish()
        for reader in self.last_readers:
            self.consumers.append(reader)
            reader.poll()
        self.site.network.heal()
        self.site.store.heal()
        for process in self.site.brokers.values():
            process.disk.heal()
            process.resume()
            self.faults.repair_directories(process)
            process.start()
        begun = self.world.now_ms
        excused = self._await_settled("after the last fault")
        self.result.settled_ms = self.world.now_ms - begun
        self.oracle.check_settled(excused)
        if self.plan.idle_restarts and not excused:
            for number, restarts in enumerate(self.plan.idle_restarts):
                for disturbance in self.plan.idle_disturbances[number : number + 1]:
                    self._disturb(disturbance)
                self._restart_idle(restarts)
            self.oracle.check_settled(excused)

    def _await_settled(self, since: str) -> set[TopicPartition]:
        """Let time pass until the cluster has settled; report it if it does not. Return the
        partitions that can't."""
        begun = moved = self.world.now_ms
        progress = self._progress()
        why = self._why_not_settled()
        end = begun + SETTLE_MAX_MS
        while why is not None and self.world.now_ms < min(moved + STUCK_MS, end):
            self._install_supported()
            self._elect_as_operator(begun)
            self._restart_unregistered(begun)
            self.world.run_until(self.world.now_ms + SETTLE_STEP_MS)
            why = self._why_not_settled()
            if progress != (progress := self._progress()):
                moved = self.world.now_ms
        excused = given_up(self.site, self.oracle.truths) if why is not None else set()
        if excused:
            why = self._why_not_settled(excused)
        if why is not None:
            waited = (self.world.now_ms - begun) / 1000
            self._report("settles", f"not settled {waited:g} s {since}: {why}")
        return excused

    def _disturb(self, disturbances: Sequence[IdleDisturbance]) -> None:
        """Let brokers hang and messages arrive late during a round of idle restarts."""
        for kind, broker, after_ms, for_ms in disturbances:
            self.world.count("disturbed while idle")
            self.world.after(after_ms, self._begin_disturbance, kind, broker, for_ms)

    def _begin_disturbance(self, kind: str, broker: BrokerId, for_ms: int) -> None:
        process = self.site.brokers[broker]
        if kind == "pause":
            process.pause()
            self.world.after(for_ms, process.resume)
        elif kind == "clog":
            self.site.network.clog(broker, broker % self.plan.brokers + 1, for_ms)
        elif kind == "lag-watch":
            self.site.store.lag_watch(broker, for_ms)
        else:
            self.site.store.cut_watch(broker)

    def _restart_idle(self, restarts: Sequence[IdleRestart]) -> None:
        """Restart brokers cleanly while no client writes: no record wakes a partition that rests in
        a fetch session."""
        before = [self.site.brokers[restart.broker].incarnation for restart in restarts]
        for broker, after_ms, down_ms in restarts:
            process = self.site.brokers[broker]
            process.restart_ms = down_ms
            self.world.count("restart while idle")
            self.world.after(after_ms, process.receive, ShutdownRequested)
        end = self.world.now_ms + STUCK_MS
        for (broker, *_), incarnation in zip(restarts, before, strict=True):
            while self.site.brokers[broker].incarnation == incarnation:
                if self.world.now_ms >= end:
                    self._report("settles", f"broker {broker} did not stop")
                self.world.run_until(self.world.now_ms + SETTLE_STEP_MS)
        self._await_settled("after idle restarts")

    def _install_supported(self) -> None:
        """Install the other software where a broker can't start because of the feature level,
        which a request of before the last fault may still change."""
        if self.oracle.features is None:
            return
        levels = self.oracle.features.levels
        versions = [software(*each) for each in self.plan.software]
        for process in self.site.brokers.values():
            if unsupported(levels, process.supported) is not None:
                process.supported = next(v for v in versions if unsupported(levels, v) is None)

    def _elect_as_operator(self, begun_ms: int) -> None:
        """Elect leaders uncleanly, as an operator, where all brokers have been up for long enough
        and none may lead."""
        started = self.site.brokers.items()
        nodes = {broker: process.node for broker, process in started if process.node is not None}
        if len(nodes) < len(self.site.brokers) or not all(n.acting for n in nodes.values()):
            self._all_act_since_ms = None
            return
        if self._all_act_since_ms is None:
            self._all_act_since_ms = self.world.now_ms
        if self.world.now_ms < max(begun_ms, self._all_act_since_ms) + OPERATOR_MS:
            return
        known = [t.registration for t in self.oracle.truths.values() if t.registration is not None]
        damaged = {name for node in nodes.values() for name in node.directory.damaged}
        of = {key: name for name, key in self.partitions.items()}
        waiting = tuple(
            one.key for one in known if one.leader is None and (one.lost or of[one.key] in damaged)
        )
        for key in waiting:
            name = of[key]
            reported = [b for b, node in nodes.items() if name in node.directory.damaged]
            self.oracle.truths[name].check_needs_operator(reported)
        if waiting:
            self.admin.elect(ElectionType.UNCLEAN, waiting)

    def _restart_unregistered(self, begun_ms: int) -> None:
        """Restart brokers that were unregistered while they ran, so that they register again."""
        if (self.world.now_ms - begun_ms) % RESTART_MS:
            return
        for broker in self.oracle.registrations.unregistered():
            self.site.brokers[broker].kill()
            self.site.brokers[broker].start()

    def _progress(self) -> list[int]:
        """Return numbers that change while records move: a slow replica is not stuck."""
        ends = [
            replica.partition.log_end_offset
            for process in self.site.brokers.values()
            if process.node is not None
            for replica in process.node.replicas.values()
        ]
        return ends + [consumer.position for consumer in self.consumers]

    def _why_not_settled(self, excused: Collection[TopicPartition] = ()) -> str | None:
        why = self._why_not_finished()
        if why is not None:
            return why
        why = why_not_settled(self.site, self.oracle.truths, excused)
        if why is None and self.oracle.transactions is not None:
            why = self.oracle.transactions.why_not_settled()
        if why is None and self.oracle.table is not None:
            why = self.oracle.table.why_not_settled(self.site)
        if why is None and self.topic_maker is not None:
            why = self.topic_maker.why_not_settled()
        if why is None and self.brief_topics is not None:
            why = self.brief_topics.why_not_settled()
        if why is None and self.oracle.moves is not None:
            why = self.oracle.moves.why_not_settled()
        if why is not None:
            return why
        for number, consumer in enumerate(self.consumers):
            end = len(self.oracle.truths[consumer.partition].committed)
            if consumer.position < end and consumer.partition not in excused:
                return f"consumer {number} is at offset {consumer.position} of {end} committed ones"
        return None

    def _why_not_finished(self) -> str | None:
        """Return which client has not finished its work yet, or None."""
        for number, producer in enumerate(self.producers):
            if producer.pending:
                return f"producer {number} waits for {producer.pending} batches"
        if self.committer is not None and not self.committer.done:
            return "the committer has not read the committed offset"
        if self.members and (unshared := why_unshared(self.members, self.shares)) is not None:
            return unshared
        for transactor in self.transactors:
            if not transactor.done:
                return f"a producer of {transactor.transactional_id!r} has not ended"
        return None

    # -- violations -----------------------------------------------------------------------

    def _report(self, invariant: str, what: str) -> None:
        """Record a violation and end the run. Runs of historical policies continue, and some
        invariants are not checked there: these policies violate them by design."""
        if not self._shipped and invariant in _OF_SHIPPED_RULES:
            return
        self._note(invariant, what)
        if self._shipped:
            raise InvariantBroken(invariant, what)

    def _note(self, invariant: str, what: str) -> None:
        if all(known.invariant != invariant for known in self.result.violations):
            last = tuple(event_lines(list(self.world.last)[-LAST_EVENTS:]))
            now, event = self.world.now_ms, self.world.events
            self.result.violations.append(Violation(invariant, what, now, event, last))
            self.on_violation(invariant)

    def _acknowledged(self, partition: TopicPartition, base: Offset, crc: int, acks: int) -> None:
        self.oracle.ledger.acknowledged(partition, base, crc)
        if acks == ACKS_ALL:
            self.oracle.truths[partition].acknowledged(base, crc)

    def _acknowledged_alone(self, partition: TopicPartition, broker: BrokerId) -> None:
        self.oracle.truths[partition].acknowledged_alone(broker)

    def _consumed(self, partition: TopicPartition, offset: Offset, entry: Entry) -> None:
        self.oracle.truths[partition].consumed(offset, entry)

    def _corrupt(
        self, partition: TopicPartition, broker: BrokerId, requested_ms: int, what: str
    ) -> None:
        """Report damaged records, unless their broker could not know of the damage yet."""
        if not self.oracle.may_serve_damage(partition, broker, requested_ms):
            what = f"{partition}: broker {broker} sent damaged records: {what}"
            self._report("consumers-see-no-change", what)

    def _commit_lost(self, what: str) -> None:
        if not self.oracle.truths[COORDINATED_BY].lost:
            self._report("commits-survive", what)

    def _assigned_twice(self, what: str) -> None:
        if not self.oracle.truths[COORDINATED_BY].lost:
            self._report("assignments-hold", what)

    def _id_assigned_twice(self, producer_id: int) -> None:
        self._report("producer-ids-unique", f"producer id {producer_id} was assigned twice")

    def _sum_up(self) -> None:
        result = self.result
        result.events = self.world.events
        result.virtual_ms = self.world.now_ms
        result.faults = dict(sorted(self.world.faults.items()))
        result.damages = self.oracle.damages
        result.acked = sum(producer.acked for producer in self.producers)
        result.given_up = sum(producer.given_up for producer in self.producers)
        if self.oracle.table is not None:
            result.cleaned_away = self.oracle.table.cleaned_away
        result.commits = 0 if self.committer is None else self.committer.commits
        if self.oracle.transactions is not None:
            result.transactions = self.oracle.transactions.acknowledged
        result.consumed = sum(consumer.read for consumer in self.consumers)
        for truth in self.oracle.truths.values():
            result.repaired += truth.promise.repaired
            result.committed += len(truth.committed)
            result.lost += sum(map(len, truth.lost.values()))
            if truth.registration is not None:
                result.epochs += truth.registration.leader_epoch
        fingerprint = self.world.fingerprint
        for process in self.site.brokers.values():
            for path, data in process.disk.fingerprint():
                fingerprint = crc32(data, crc32(path.encode(), fingerprint & 0xFFFFFFFF)) + (
                    fingerprint << 1
                )
        result.fingerprint = fingerprint & ((1 << 64) - 1)
