"""The cluster of a story: brokers, controller and clients, and a clock that the story drives.

This module carries out the effects of the nodes. It runs registrations, reads of the metadata
store and flushes at once. It delivers requests to other brokers and ISR proposals only when
the story says so (network.py, and the command `ask-isr`). A metadata change reaches every
broker that the controller can reach, unless the story withholds it from a broker.

Invariants between two commands: `visible` of each broker is its current visible state, and
`history.committed` contains every record that a leader committed while its epoch was current.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from tidelog.core.controller.effects import HeartbeatAnswer, StoreTransaction
from tidelog.core.controller.election import UncleanRecovery
from tidelog.core.controller.events import (
    AllocateProducerIdsReceived,
    AlterPartitionReceived,
    HeartbeatReceived,
    LogReportsReceived,
)
from tidelog.core.errors import ErrorCode
from tidelog.core.history import HistoryEvent
from tidelog.core.node import effects as do
from tidelog.core.node import events as on
from tidelog.core.node.config import NodeConfig
from tidelog.core.node.messages import AddPartitionsToTxn, WriteTxnMarkers
from tidelog.core.replication.truncation import TruncationPolicy
from tidelog.core.storage.cleaning.cleaner import clean
from tidelog.core.types import BrokerId, TopicPartition
from tidelog.lab.broker_history import ReplicaSamples, logged, stopped
from tidelog.lab.spec.snapshot import ClusterSnapshot, ControllerSnapshot, History
from tidelog.lab.story.grammar import StoryError, known_name
from tidelog.lab.story.stage.broker import NOT_VISIBLE, Sent, StoryBroker, as_recovered
from tidelog.lab.story.stage.controller import (
    CONTROLLER_ID,
    KEY,
    OTHER,
    PARTITION,
    StoryController,
)
from tidelog.lab.story.stage.coordinator_log import OFFSETS, TRANSACTIONS, transactions_in
from tidelog.lab.story.stage.disk import StoryDisk
from tidelog.lab.story.stage.narration import (
    CLIENT,
    CONTROLLER,
    Line,
    describe_changes,
    describe_writes,
    format_offsets,
    message,
    report_text,
)

SESSION_MS = 9_000
SLICE_MS = 2_000
"""Time passes in slices of at least this length, so that periodic work runs in time."""
SLICES_MAX = 500
"""The most slices in one call of `pass_time`."""
PIECES_MAX = 100


@dataclass(slots=True)
class Setup:
    """The arguments and options of the `cluster` command."""

    brokers: tuple[str, ...]
    spares: tuple[str, ...] = ()
    down: tuple[str, ...] = ()
    """Brokers that register, and crash before the partition is created."""
    min_insync_replicas: int = 1
    unclean: bool = False
    drop_unclean_stops: bool = False
    recovery: UncleanRecovery | None = None
    """How the controller elects when no replica is eligible. With None it does not elect by
    itself, and ignores reports about logs."""
    disks: int = 1
    """How many log directories each broker has; the partition is in the first."""
    coordinators: tuple[str, ...] = ()
    """Brokers with the internal topics of transactions and groups; the first leads them."""
    groups: tuple[str, ...] = ()
    """Brokers with the internal topic of groups, if these are not the coordinators."""
    other: str = ""
    """The broker with the only replica of a second partition."""
    transaction_version: int | None = None
    """The level of `transaction.version`; None is the newest."""
    config: NodeConfig = field(default_factory=lambda: NodeConfig(0))

    @property
    def everyone(self) -> tuple[str, ...]:
        """All brokers, in the order of their ids."""
        other = (self.other,) if self.other else ()
        return (*self.brokers, *self.spares, *other, *self.coordinators, *self.groups)

    @property
    def internal(self) -> dict[TopicPartition, tuple[str, ...]]:
        """The replicas of each internal topic."""
        return {TRANSACTIONS: self.coordinators, OFFSETS: self.groups or self.coordinators}


class World:
    """A cluster with one partition."""

    def __init__(self, setup: Setup, policy: TruncationPolicy) -> None:
        self.setup = setup
        self.now_ms = 0
        self.lines: list[Line] = []
        self.history = History()
        self.events: list[HistoryEvent] = []
        """The events that brokers and controller logged, and samples of the replicas, with the time
        of the story."""
        self._samples: defaultdict[BrokerId, ReplicaSamples] = defaultdict(ReplicaSamples)
        self.controller = StoryController(
            setup.min_insync_replicas, setup.unclean, setup.recovery, setup.transaction_version
        )
        self.controller.on_note = lambda note: self.events.extend(logged(None, self.now_ms, [note]))
        self.proposals: list[Sent] = []
        self._reports: list[Sent] = []
        """Reports about logs, on their way to the controller."""
        self.calls: list[Sent] = []
        """Requests of and to coordinators that were sent, and are not delivered yet."""
        self.cuts: set[frozenset[str]] = set()
        self.answers: dict[object, object] = {}
        """Responses to brokers, by (receiver, correlation id)."""
        self.on_answer: Callable[[int, object], None] = lambda _correlation, _response: None
        """Called with the correlation id and response of each client request."""
        self.last_error = ErrorCode.NONE
        self._why = ""
        self._read_at: int | None = None
        """The revision that a read of the store returns; None means the newest."""
        self.labels = dict(enumerate(setup.everyone, start=1))
        self.brokers = {
            name: StoryBroker(name, replace(setup.config, broker_id=index), policy, self.labels)
            for index, name in self.labels.items()
        }
        for broker in self.brokers.values():
            broker.other_disks = [StoryDisk() for _ in range(setup.disks - 1)]
            broker.shown = OTHER if broker.name == setup.other else PARTITION
            for partition, replicas in reversed(setup.internal.items()):
                if broker.name in replicas:
                    broker.shown, broker.coordinates = partition, True
            broker.shows_transactions = bool(setup.coordinators) and not broker.coordinates
            self.start(broker, quiet=True)
        for name in setup.down:
            self._end(self.brokers[name], clean=False)
            self.controller.store.expire(self.brokers[name].session)
        self.controller.create_topic(self._ids(setup.brokers))
        if setup.other:
            self.controller.create_topic(self._ids((setup.other,)), OTHER.topic)
        if setup.coordinators:
            for partition, replicas in setup.internal.items():
                self.controller.create_topic(
                    self._ids(replicas), partition.topic, **{"cleanup.policy": "compact"}
                )
        self.send_changes_to_all()
        self.lines.clear()

    def _ids(self, names: Iterable[str]) -> tuple[BrokerId, ...]:
        return tuple(self.brokers[name].id for name in names)

    # -- look-ups --------------------------------------------------------------------------

    def broker(self, name: str) -> StoryBroker:
        """Return a broker by its name."""
        known_name("broker", name, self.brokers)
        return self.brokers[name]

    def live(self, name: str) -> StoryBroker:
        """Return a broker by its name; StoryError if it is down."""
        broker = self.broker(name)
        if not broker.alive:
            raise StoryError(f"{name} is down; start it first")
        return broker

    def leader(self) -> StoryBroker | None:
        """Return the leader in the controller's registration, if any."""
        leader = self.controller.partition.leader
        return None if leader is None else self.brokers[self.labels[leader]]

    def coordinator(self) -> StoryBroker | None:
        """Return the broker that coordinates transactions, if any."""
        return self._leader_of(TRANSACTIONS)

    def group_coordinator(self) -> StoryBroker | None:
        """Return the broker that coordinates groups, if any."""
        return self._leader_of(OFFSETS)

    def _leader_of(self, partition: TopicPartition) -> StoryBroker | None:
        leader = self.controller.leader_of(partition)
        return None if leader is None else self.brokers[self.labels[leader]]

    def reachable(self, one: str, other: str) -> bool:
        """Return whether messages can pass between two brokers, clients or the controller."""
        return frozenset((one, other)) not in self.cuts

    def able(self) -> frozenset[BrokerId]:
        """Return the brokers that may lead: up, reachable by the controller, not fenced."""
        active = self.controller.image.active
        return frozenset(
            broker.id
            for broker in self.brokers.values()
            if broker.alive and broker.id in active and self.reachable(broker.name, CONTROLLER)
        )

    # -- output ----------------------------------------------------------------------------

    def add_line(self, text: str) -> None:
        """Print a line about an event."""
        self.lines.append(Line(text))

    def observe(self, broker: StoryBroker) -> None:
        """Print what changed on a broker since the last call; record newly committed records."""
        before, after = broker.visible, broker.visible_state()
        if after in (before, NOT_VISIBLE):
            return
        broker.visible = after
        if before is not NOT_VISIBLE:
            if broker.coordinates:
                texts = describe_writes(broker.name, before, broker.visible)
            else:
                texts = describe_changes(broker.name, before, broker.visible, self._why)
            for text in texts:
                self.add_line(text)
        partition = self.controller.image.partitions and self.controller.partition
        if not partition or broker.visible.leader_epoch != partition.leader_epoch:
            return
        if broker.shown != PARTITION:
            return
        if broker.visible.leads:
            for entry in broker.visible.log:
                if entry.offset < broker.visible.high_watermark:
                    self.history.committed.setdefault(entry.offset, entry)

    # -- events and effects ----------------------------------------------------------------

    def step(self, broker: StoryBroker, event: on.Event, why: str = "") -> None:
        """Apply an event to a node; `why` explains a truncation that results from it."""
        if broker.node is None:
            return
        outer, self._why = self._why, why or self._why
        if PARTITION in broker.node.directory.damaged:
            self._why = "damaged"
        effects = broker.node.step(event)
        self.events += logged(broker.id, self.now_ms, broker.node.journal.take()[0])
        self.events += self._samples[broker.id].take(broker.id, self.now_ms, broker.node)
        self.observe(broker)
        for effect in effects:
            self._carry_out(broker, effect)
        self._why = outer

    def _carry_out(self, broker: StoryBroker, effect: do.Effect) -> None:
        match effect:
            case do.Send():
                self._send(broker, effect)
            case do.Respond():
                if effect.peer == CLIENT:
                    self.on_answer(effect.correlation, effect.response)
                else:
                    self.answers[effect.peer, effect.correlation] = effect.response
            case do.Flush():
                # A rolled segment may have been deleted in the meantime. It has no index
                # of aborted transactions if no transaction was aborted.
                for file in filter(broker.disk.exists, effect.files):
                    broker.disk.sync(file)
                for directory in effect.directories:
                    broker.disk.sync_dir(directory)
                self.step(broker, on.FlushCompleted(effect.flush, None, self.now_ms))
            case do.CleanLog():
                for progress in clean(broker.disk, effect.plan):
                    self.step(broker, on.LogCleaned(effect.cleaning, progress, self.now_ms))
            case do.Halt():
                self.add_line(f"{broker.name} stops")
                self._end(broker, clean=effect.clean)
            case do.Close():
                self.add_line(f"{broker.name} closes the connection")
            case _:
                self._store(broker, effect)

    def _store(self, broker: StoryBroker, effect: Any) -> None:
        """Carry out an effect on the metadata store, which responds at once."""
        store = self.controller.store
        match effect:
            case do.OpenSession():
                broker.session = store.open_session()
                deadline = self.now_ms + SESSION_MS
                self.step(broker, on.SessionOpened(broker.session, deadline, self.now_ms))
            case do.CloseSession():
                store.expire(broker.session)
            case do.ReadStore():
                read = self.controller.as_of(self._read_at, effect.earlier)
                self.step(broker, on.StoreRead(read, self.now_ms))
            case do.WatchStore():
                broker.watches = effect.after
            case StoreTransaction():
                answer = store.txn(effect.guards, effect.ops)
                self.step(broker, on.TransactionAnswered(effect.tag, answer, self.now_ms))

    def _send(self, broker: StoryBroker, effect: do.Send) -> None:
        partition = broker.partition
        epoch = -1 if partition is None else partition.leader_epoch
        sent = Sent(
            broker, effect.broker, effect.correlation, effect.request, epoch, broker.incarnation
        )
        if effect.broker != CONTROLLER_ID:
            coordination = isinstance(effect.request, WriteTxnMarkers | AddPartitionsToTxn)
            internal = coordination or broker.coordinates
            (self.calls if internal else broker.outbox).append(sent)
        elif isinstance(effect.request, AllocateProducerIdsReceived):
            self._answer_at_once(sent, self.controller.serve(effect.request))
        elif isinstance(effect.request, AlterPartitionReceived):
            if any(proposal.key != KEY for proposal in effect.request.proposals):
                self._answer_at_once(sent, self.controller.alter(effect.request))
            else:
                self.proposals.append(sent)
        elif isinstance(effect.request, HeartbeatReceived):
            self._heartbeat(sent, effect.request)
        elif isinstance(effect.request, LogReportsReceived) and self.setup.recovery is not None:
            self._reports.append(sent)

    def _answer_at_once(self, sent: Sent, answer: object) -> None:
        """Deliver the controller's response to a request that stories do not show."""
        self.send_changes_to_all()
        self.step(sent.sender, on.ResponseReceived(sent.correlation, answer, self.now_ms))

    def _heartbeat(self, sent: Sent, request: HeartbeatReceived) -> None:
        """Respond to the heartbeat of a reachable broker; it may shut down whenever it wants."""
        if not self.reachable(sent.sender.name, CONTROLLER):
            return
        if self.setup.recovery is not None:
            self._admit(sent.sender, request.want_fence)
        answer = HeartbeatAnswer(
            ErrorCode.NONE,
            caught_up=True,
            fenced=sent.sender.id not in self.controller.image.active,
            should_shut_down=request.want_shut_down,
        )
        self.step(sent.sender, on.ResponseReceived(sent.correlation, answer, self.now_ms))

    # -- reports about logs ----------------------------------------------------------------

    def deliver_reports(self) -> None:
        """Let the controller handle the brokers' reports, and elect a leader if they suffice."""
        if self.setup.recovery is None:
            return
        while True:
            self.controller.reports.due(self.now_ms)
            while self._reports:
                self._deliver_report(self._reports.pop(0))
            if not self._recover():
                return

    def _deliver_report(self, sent: Sent) -> None:
        sender, request = sent.sender, sent.request
        assert isinstance(request, LogReportsReceived), "reports are nothing else"
        if sent.incarnation != sender.incarnation or not sender.alive:
            return
        if not self.reachable(sender.name, CONTROLLER):
            self.step(sender, on.RequestFailed(sent.correlation, self.now_ms))
            return
        line = message(sender.name, CONTROLLER, report_text(request))
        if line not in self.lines:  # the broker resends it whenever the cluster changes
            self.lines.append(line)
        answer = self.controller.serve(request)
        self.send_changes_to_all()
        self.step(sender, on.ResponseReceived(sent.correlation, answer, self.now_ms))

    def _recover(self) -> bool:
        """Elect a leader by the reports, if the partition has no leader and the rules allow it."""
        before = self.controller.partition
        changed = self.controller.reelected(self.able())
        if before.leader is not None or changed.leader is None:
            return False
        if changed.unclean_election != before.unclean_election:
            self.add_line(f"controller: {self.labels[changed.leader]} has the most records")
        self.controller.commit(changed)
        self.send_changes_to_all()
        return True

    def elect_others(self, without: BrokerId | None = None) -> None:
        """Elect leaders of the partitions that stories do not show, which needs no command."""
        before = self.coordinator()
        self.controller.elect_others(self.able() - {without})
        after = self.coordinator()
        if after is not before and after is not None:
            self.add_line(f"controller: {after.name} coordinates transactions")

    # -- metadata --------------------------------------------------------------------------

    def send_changes_to_all(self, unseen: Iterable[str] = ()) -> None:
        """Send metadata changes to all reachable brokers from which they are not withheld.

        From now on, changes are withheld from the brokers in `unseen`.
        """
        for name in unseen:
            self.broker(name).metadata_withheld = True
        for broker in self.brokers.values():
            if not broker.metadata_withheld and self.reachable(broker.name, CONTROLLER):
                self.send_changes(broker)

    def send_changes(
        self, broker: StoryBroker, newest_only: bool = False, changes: int | None = None
    ) -> None:
        """Send one broker all metadata changes it missed, or with `newest_only` the last state.

        With `changes` it receives only this number of changes to the partition. It does not
        receive the rest until another call.
        """
        broker.metadata_withheld = False
        if broker.node is None or broker.watches is None:
            return
        end = self.controller.store.revision
        if changes is not None and broker.partition is not None:
            end = self.controller.last_before(broker.partition.partition_epoch + changes + 1)
            broker.metadata_withheld = end < self.controller.store.revision
        if newest_only:
            self._read_at, outer = end, self._read_at
            self.step(broker, on.WatchLost(self.now_ms), "its own HW")
            self._read_at = outer
            return
        for batch in self.controller.changes_after(broker.watches):
            if broker.watches < batch.rev <= end:
                broker.watches = batch.rev
                self.step(broker, on.StoreChanged(batch, self.now_ms), "its own HW")

    # -- start, crash and time -------------------------------------------------------------

    def start(self, broker: StoryBroker, quiet: bool = False, unseen: Iterable[str] = ()) -> None:
        """Start a broker's process and register it; it loses any earlier leadership."""
        self.controller.store.expire(broker.session)
        snapshot = broker.snapshot(self.now_ms)
        node = broker.boot(self.now_ms)
        if not quiet:
            broker.visible = as_recovered(snapshot)
            self.add_line(f"{broker.name} is up, {format_offsets(snapshot)}")
        self.step(broker, on.Started(self.now_ms), "its own HW")
        self.controller.catch_up()
        broker.metadata_withheld = False
        for name in unseen:
            self.broker(name).metadata_withheld = True
        self._register_and_admit(broker)
        assert node.broker_epoch is not None, "it has registered"
        self.send_changes_to_all()
        if self.controller.image.partitions:
            self.deliver_reports()

    def _register_and_admit(self, broker: StoryBroker) -> None:
        """Register a broker: it loses leadership, its reports are handled, then it is unfenced."""
        controller = self.controller
        if controller.image.partitions:
            self.elect_others(without=broker.id)
            others = self.able() - {broker.id}
            if controller.partition.leader == broker.id:
                controller.commit(controller.reelected(others))
            drop = self.setup.drop_unclean_stops or self.setup.recovery is not None
            if drop and controller.stopped_uncleanly(broker.id):
                controller.commit(controller.without(broker.id, others, lost_data=True))
            self.deliver_reports()
        broker.registered = True
        if self.setup.recovery is None or broker.may_join:
            controller.admit(broker.id)
            self.elect_others()

    def _admit(self, broker: StoryBroker, want_fence: bool) -> None:
        """Unfence a registered broker once it has sent all required reports."""
        joins = broker.registered and not broker.may_join and not want_fence
        broker.may_join = not want_fence
        if joins:
            self.controller.admit(broker.id)
            self.send_changes_to_all()

    def crash(self, broker: StoryBroker) -> None:
        """Kill the process; its unflushed writes stay in the machine's page cache."""
        self._end(broker, clean=False)
        self.proposals = [sent for sent in self.proposals if sent.sender is not broker]
        self.add_line(f"{broker.name} is down")

    def _end(self, broker: StoryBroker, *, clean: bool) -> None:
        if broker.alive:
            self.events.append(stopped(broker.id, self.now_ms, clean=clean))
        broker.die()

    def pass_time(self, elapsed_ms: int) -> None:
        """Let time pass for all brokers; those that reach the controller keep their session."""
        end = self.now_ms + elapsed_ms
        slice_ms = max(SLICE_MS, elapsed_ms // SLICES_MAX)
        while self.now_ms < end:
            before = self.now_ms
            renewed = min(end, before + slice_ms) + SESSION_MS
            for broker in self.brokers.values():
                if self.reachable(broker.name, CONTROLLER):
                    self.step(broker, on.SessionRenewed(renewed, before))
            self.now_ms = min(end, before + slice_ms)
            for broker in self.brokers.values():
                self.read_clock(broker)
                self._tick(broker)
            self.deliver_reports()

    def _tick(self, broker: StoryBroker) -> None:
        """Let a broker do its due work, and all pieces of work that it splits up."""
        for _ in range(PIECES_MAX):
            self.step(broker, on.Ticked(self.now_ms))
            due_ms = None if broker.node is None else broker.node.next_deadline_ms()
            if due_ms is None or due_ms > self.now_ms:
                return

    def read_clock(self, broker: StoryBroker) -> None:
        """Send a broker the current time of its wall clock."""
        wall_ms = self.now_ms + broker.clock_ahead_ms
        self.step(broker, on.WallClockRead(wall_ms, self.now_ms))

    # -- snapshot --------------------------------------------------------------------------

    def snapshot(self) -> ClusterSnapshot:
        """Return a snapshot of the cluster, for the invariants."""
        partition = self.controller.partition
        return ClusterSnapshot(
            {
                broker.id: broker.snapshot(self.now_ms)
                for broker in self.brokers.values()
                if broker.id in partition.replicas
            },
            ControllerSnapshot(
                partition.leader,
                partition.leader_epoch,
                frozenset(partition.isr),
                frozenset(partition.elr),
            ),
            self.history,
            self._unfinished(),
        )

    def _unfinished(self) -> frozenset[int] | None:
        """Return the producers whose transaction in the partition has not ended, by the
        coordinator's log; None if there is no coordinator."""
        coordinator = self.coordinator()
        log = None if coordinator is None else coordinator.log
        if log is None:
            return None
        return frozenset(
            known.producer_id
            for known in transactions_in(log).values()
            if not known.state.is_idle and PARTITION in known.partitions
        )
