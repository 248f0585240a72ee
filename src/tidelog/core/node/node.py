"""One broker, whole, without I/O: `step(event) -> effects`.

The simulator runs this and the broker runs this; a host only turns bytes into events and
effects into bytes, files and timers. Each step hands the event to the part it concerns,
then lets every part go on as far as it can: long polls are woken, fetches, proposals and
flushes leave. The parts are in the folders beside this file.

A disk that refuses ends the broker, as in Kafka when its last log directory fails: whoever
waits is told, nothing more is promised, the host is asked to end the process.
"""

from collections.abc import Callable
from typing import Any

from tidelog.core.controller import events as controller_on
from tidelog.core.controller.metadata.cluster_image import ClusterImage, ImageDelta
from tidelog.core.node import events as on
from tidelog.core.node.calls import Calls
from tidelog.core.node.config import NodeConfig
from tidelog.core.node.coordinating.coordinators import Coordinators
from tidelog.core.node.coordinating.tenant import CoordinatorHost, Handler
from tidelog.core.node.deadlines import FAR_MS, WakeTime
from tidelog.core.node.effects import CloseSession, Effect, Halt
from tidelog.core.node.following.replica_fetchers import ReplicaFetchers
from tidelog.core.node.measuring.measured import Measured
from tidelog.core.node.membership.acting import Acting
from tidelog.core.node.membership.controller_seat import FROM_BROKERS, FROM_CLIENTS, ControllerSeat
from tidelog.core.node.membership.isr_proposals import IsrProposals
from tidelog.core.node.membership.log_reporter import LogReporter
from tidelog.core.node.membership.metadata import Metadata
from tidelog.core.node.membership.registration import REGISTRATION_TAG, Registration
from tidelog.core.node.membership.store_reading import StoreReading
from tidelog.core.node.messages import (
    DeleteRecords,
    Fetch,
    FetchResponse,
    Forwarded,
    InitProducerId,
    ListOffsets,
    OffsetForLeaderEpoch,
    Produce,
)
from tidelog.core.node.replicas import HostedReplica, Replicas
from tidelog.core.node.serving.fetch import FetchService
from tidelog.core.node.serving.fetch_sessions import FetchSessions
from tidelog.core.node.serving.gate import Gate
from tidelog.core.node.serving.offsets import OffsetService
from tidelog.core.node.serving.produce import ProduceService
from tidelog.core.node.serving.producer_ids import ProducerIds
from tidelog.core.node.surroundings import NodeSurroundings
from tidelog.core.node.turn import Timed, Turn
from tidelog.core.node.upkeep.cleaning import Cleaning
from tidelog.core.node.upkeep.clock_watch import ClockWatch
from tidelog.core.node.upkeep.duties import Duties
from tidelog.core.node.upkeep.flushing import Flushing
from tidelog.core.node.upkeep.losses import Losses
from tidelog.core.node.upkeep.repairs import Repairs
from tidelog.core.node.upkeep.scrubber import Scrubber
from tidelog.core.replication.effects import RefuseTruncation
from tidelog.core.replication.events import LogFailed
from tidelog.core.replication.truncation import LEADER_EPOCH, TruncationPolicy
from tidelog.core.storage import layout
from tidelog.core.storage.disk import Disk, DiskError
from tidelog.core.storage.log import LogOffline
from tidelog.core.storage.log_directory import LogDirectory, Progress
from tidelog.core.types import BrokerEpoch, TopicPartition
from tidelog.core.wall_clock import ClockReading

CONTROLLER_TICK_MS = 500
_FREQUENT = (Produce, Fetch, FetchResponse)


class RequestHandlers(dict[type, Handler]):
    """The handler of each request type. Handlers of coordinators are added when the first such
    request arrives (coordinating/coordinators.py)."""

    def __init__(self, load: Callable[[type], dict[type, Handler]]) -> None:
        self._load = load

    def __missing__(self, request_type: type) -> Handler:
        self |= self._load(request_type)
        if request_type not in self:
            raise TypeError(f"no service handles requests of type {request_type.__name__}")
        return self[request_type]


class Node:
    """A broker. Making one recovers its logs; `step(Started)` sets it going."""

    def __init__(
        self,
        config: NodeConfig,
        disk: Disk,
        incarnation: int,
        now_ms: int,
        policy: TruncationPolicy = LEADER_EPOCH,
        progress: Progress | None = None,
        clock: ClockReading | None = None,
    ) -> None:
        self.config = config
        self.image = ClusterImage()
        self.halted: Halt | None = None
        self._turn = turn = Turn(now_ms)
        self.directory = LogDirectory.open(disk, now_ms, lambda _: config.log, progress)
        self.clock = ClockWatch(config, turn, self.directory, clock)
        self._replicas = Replicas(turn, self.directory)
        self._calls = Calls(turn)
        self._seat = ControllerSeat(config, turn, self.image, self._calls)
        self._fetchers = ReplicaFetchers(config, turn, self._calls, self._replicas)
        self._proposals = IsrProposals(config, turn, self._seat, self._replicas)
        self._gate = Gate(self._replicas, self.image)
        self._reporter = LogReporter(config, turn, self.image, self._seat, self._replicas)
        self._metadata = Metadata(
            config, turn, self._gate, self._replicas, self._fetchers, self._reporter, policy
        )
        life = (self._reporter, str(incarnation), self.directory.broker_epoch)
        self._registration = Registration(
            config, turn, self.image, self._seat, *life, lambda: self._metadata.applied_revision
        )
        self._registration.stop = self._prepare_to_stop
        sessions = FetchSessions(config.max_incremental_fetch_session_cache_slots, incarnation)
        self._fetches = FetchService(config, turn, self.image, self._replicas, self._gate, sessions)
        self._producer_ids = ProducerIds(config, turn, self._seat, self._registration)
        self._produces = ProduceService(turn, self._replicas, self._gate, self._fetches.rouse)
        rouse = self._fetches.rouse
        self._coordinators = Coordinators(
            CoordinatorHost(config, turn, self.image, self._replicas, self._gate, rouse)
        )
        self._offsets = OffsetService(turn, self._replicas, self._gate)
        served = (self._produces, self._fetches, self._offsets)
        self.measured = Measured(turn.counters, turn.journal, self._registration, *served)
        self._flushing = Flushing(turn, self._replicas, self._gate)
        around = NodeSurroundings(self._fetchers, self._proposals, self._flushing, self._fetches)
        self._replicas.surroundings = around
        seen = (self._registration, self._metadata, self._flushing)
        self._acting = Acting(turn, self._gate, self._replicas, *seen)
        self._duties = Duties(config, turn, self._replicas, self._flushing, self._gate)
        self.cleaning = Cleaning(config, turn, self.image, self._replicas)
        self.scrubber = Scrubber(config, turn, self._replicas)
        self._repairs = Repairs(turn, self._replicas, self.cleaning)
        self._store = self._store_reading()
        parts = (self._producer_ids, self._coordinators, self.cleaning, self.clock, self.scrubber)
        self._timed: tuple[Timed, ...] = (
            self._store,
            self._calls,
            *served,
            *parts,
            self._repairs,
        )
        self._wake = self._wake_time()
        self._controller_tick_ms = now_ms
        self._stop_by_ms = FAR_MS
        self._stopping = False
        self._handlers = self._handlers_by_event()
        self._serve = self._services_by_request()

    def _store_reading(self) -> StoreReading:
        follow = (self._advance, self._metadata.set_aside_strays)
        judged = (self._registration.start, lambda why: self._halt(Halt(why, clean=False)))
        return StoreReading(self._turn, self.image, self.directory, *follow, *judged)

    def _wake_time(self) -> WakeTime:
        # What is added to with every produce and every fetch, each way.
        often = (self._calls.deadlines, self._produces.deadlines, self._fetches.deadlines)
        slices = (self._metadata.next_ms, self._seat.next_ms)
        own = (self._own_next_ms, self._registration.next_ms, *slices)
        clocks = (*own, *(part.next_ms for part in self._timed))
        return WakeTime(clocks, often, self._ask_next_ms)

    def _handlers_by_event(self) -> dict[type, Callable[[Any], None]]:
        return {
            on.Started: self._on_started,
            on.ResponseReceived: lambda e: self._calls.answer(e.correlation, e.response),
            on.RequestFailed: lambda e: self._calls.fail(e.correlation),
            on.SessionOpened: self._on_session_opened,
            on.SessionRenewed: self._on_session_renewed,
            on.SessionLost: self._on_session_lost,
            on.StoreRead: self._store.store_read,
            on.StoreChanged: self._store.store_changed,
            on.WatchLost: self._store.read,
            on.TransactionAnswered: self._on_transaction,
            on.FlushCompleted: lambda e: self._flushing.completed(e.flush, e.error),
            on.LogCleaned: lambda e: self.cleaning.told(e.cleaning, e.told),
            on.BrokerDied: lambda e: self._seat.step(
                controller_on.BrokerDied(e.broker, e.broker_epoch)
            ),
            on.Ticked: self._on_ticked,
            on.WallClockRead: self.clock.read,
            on.ShutdownRequested: self._on_shutdown_requested,
        }

    def _services_by_request(self) -> RequestHandlers:
        handlers = RequestHandlers(self._coordinators.handlers_of)
        handlers |= {
            Produce: self._produces.produce,
            Fetch: self._fetches.fetch,
            ListOffsets: self._offsets.list_offsets,
            OffsetForLeaderEpoch: self._offsets.epoch_ends,
            DeleteRecords: self._offsets.delete_records,
            InitProducerId: self._producer_ids.init_producer_id,
            Forwarded: self._seat.receive_forwarded,
            **dict.fromkeys(FROM_BROKERS, self._seat.receive),
            **dict.fromkeys(FROM_CLIENTS, self._seat.receive_from_client),
            **self._coordinators.handlers(),
        }
        return handlers

    # -- what can be seen ------------------------------------------------------------------

    @property
    def replicas(self) -> dict[TopicPartition, HostedReplica]:
        """The replicas on this broker, by name."""
        return self._replicas.hosted

    @property
    def losses(self) -> Losses:
        """What was truncated here."""
        return self._replicas.losses

    @property
    def refused(self) -> dict[TopicPartition, RefuseTruncation]:
        """Replicas that stopped fetching because their leader lacks committed records."""
        return self._replicas.refused

    @property
    def seat(self) -> ControllerSeat:
        """This broker's controller, in office or not."""
        return self._seat

    @property
    def coordinators(self) -> Coordinators:
        """The coordinators of this broker: of consumer groups."""
        return self._coordinators

    @property
    def broker_epoch(self) -> BrokerEpoch | None:
        """Of this registration; None while there is none."""
        return self._registration.broker_epoch

    @property
    def acting(self) -> bool:
        """Whether this broker serves and leads."""
        return self._gate.acting

    def distrust(self, path: str) -> None:
        """Check a segment's file before it is read again: it could not be sent."""
        name = layout.parse_dir(path.partition("/")[0])
        replica = None if name is None else self._replicas.hosted.get(name)
        if replica is not None:
            replica.log.require_verification(path)

    def describe(self, topic: str | None = None, partition: int | None = None) -> dict[str, Any]:
        """What this broker knows of itself and its replicas, for people."""
        from tidelog.core.node.serving.description import describe

        return describe(self, self._turn.now_ms, topic, partition)

    # -- the step --------------------------------------------------------------------------

    def step(self, event: on.Event) -> list[Effect]:
        """Take in what happened; the effects are to be carried out in order."""
        self.take(event)
        return self.take_answers() + self.settle()

    def take(self, event: on.Event) -> None:
        """Half a step: what follows from it waits for `settle`. A host that has several
        events at hand takes them all first, so that whoever polls is woken once."""
        if self.halted is not None:
            return
        if event.now_ms > self._turn.now_ms:
            self._turn.now_ms = event.now_ms
        try:
            if self._registration.lapsed:
                self._registration.step_back()
                self._acting.reconsider()
                self._wake.forget()
            if isinstance(event, on.RequestReceived):
                said = event.request
                self._serve[type(said)](event.peer, event.correlation, said)
            else:
                said = event.response if isinstance(event, on.ResponseReceived) else None
                self._handlers[type(event)](event)
            if type(said) not in _FREQUENT:
                self._wake.forget()
        except (DiskError, LogOffline) as error:
            self._fail(error)

    def take_answers(self) -> list[Effect]:
        """What `settle` would begin with, if that is answers which rest on nothing that is
        still to be written: whoever waits for them need not wait for the rest."""
        return [] if self._replicas.unwritten or self._stopping else self._turn.take_answers()

    def settle(self) -> list[Effect]:
        """The other half: the effects of all that was taken in, to be carried out in order."""
        if self.halted is None:
            try:
                self._settle()
            except (DiskError, LogOffline) as error:
                self._fail(error)
        return self._turn.take()

    def _settle(self) -> None:
        """Let every part go on as far as it can."""
        while True:
            stirred = self._coordinators.pump()
            if stirred:
                self._wake.forget()
            self._fetches.wake()
            self._flushing.pump()
            epoch = self._registration.broker_epoch
            if self._proposals.pump(epoch, acting=self._gate.acting):
                self._wake.forget()  # the controller may be this very broker's
            self._fetchers.pump(epoch)
            if not (self._replicas.touched or self._replicas.deposed or stirred):
                break
        self._replicas.write_epochs()
        if self._reporter.pending:
            self._reporter.pump(epoch)
            self._wake.forget()
        if self._replicas.repairing:
            self._wake.forget()
        self.directory.save_damage()
        if self._replicas.truncated:
            self._replicas.truncated = False
            self.directory.write_recovery_points()
            self.directory.write_high_watermarks(self._duties.high_watermarks())
        if self._stopping:
            self._stop()

    def next_deadline_ms(self) -> int | None:
        """When to step with Ticked, if nothing else happens; None once halted."""
        return self._wake.exact() if self.halted is None else None

    def wake_ms(self) -> int | None:
        """The same or earlier, at a fraction of the price: for who asks in every turn."""
        return self._wake.bound(self._turn.now_ms) if self.halted is None else None

    def _own_next_ms(self) -> int:
        return min(self._duties.next_ms, self._controller_tick_ms, self._stop_by_ms)

    def _ask_next_ms(self) -> int:
        """When another broker is to be asked something that waits now."""
        epoch, reporter, soonest = self.broker_epoch, self._reporter, FAR_MS
        for at in (
            self._fetchers.next_ms() if epoch is not None else None,
            self._proposals.next_ms() if self._gate.acting else None,
            reporter.next_ms(epoch) if reporter.pending else None,
        ):
            if at is not None and at < soonest:
                soonest = at
        return soonest

    # -- the store -------------------------------------------------------------------------

    def _on_started(self, _event: on.Started) -> None:
        """Nothing is written to the store before it is read: it may be behind this broker."""
        self._store.read()

    def _on_session_opened(self, event: on.SessionOpened) -> None:
        self._registration.session_opened(event.session, event.deadline_ms)
        self._acting.reconsider()

    def _on_session_renewed(self, event: on.SessionRenewed) -> None:
        self._registration.session_renewed(event.deadline_ms)
        self._acting.reconsider()

    def _on_session_lost(self, _event: on.SessionLost) -> None:
        self._registration.session_lost()
        self._acting.reconsider()

    def _advance(self, delta: ImageDelta) -> None:
        """The image moved on: this broker's own standing first, then its replicas."""
        self._acting.hold_back()
        self._metadata.apply(delta)
        self._acting.reconsider()
        self._coordinators.image_advanced({name for name, _ in delta.deleted_topics})
        if delta.controller:
            self._proposals.controller_changed()
            self._seat.controller_changed()
        self._registration.image_advanced(controller=delta.controller)
        self._seat.step(controller_on.StoreChanged(delta))
        self._registration.tick()

    def _on_transaction(self, event: on.TransactionAnswered) -> None:
        if event.tag == REGISTRATION_TAG:
            self._registration.transaction_answered(event.answer)
            self._registration.tick()
            self._acting.reconsider()
        else:
            self._seat.transaction_answered(event.tag, event.answer)

    # -- the clock -------------------------------------------------------------------------

    def _on_ticked(self, _event: on.Ticked) -> None:
        now = self._turn.now_ms
        self._registration.tick()
        self._acting.reconsider()
        if self._metadata.tick():
            self._acting.reconsider()
            self._registration.image_advanced(controller=False)
        for part in self._timed:
            part.tick()
        self._duties.tick()
        if now >= self._controller_tick_ms:
            self._controller_tick_ms = now + CONTROLLER_TICK_MS
            self._seat.step(controller_on.Ticked(now))
        else:
            self._seat.go_on()
        if now >= self._stop_by_ms:
            self._prepare_to_stop()

    def _on_shutdown_requested(self, _event: on.ShutdownRequested) -> None:
        if self.broker_epoch is None or not self.config.controlled_shutdown_enable:
            self._prepare_to_stop()
            return
        self._stop_by_ms = self._turn.now_ms + self.config.controlled_shutdown_timeout_ms
        self._gate.leaving = True
        self._registration.shut_down()

    def _prepare_to_stop(self) -> None:
        """Stop at the end of this step: nothing may be written after the mark."""
        self._stopping = True

    def _stop(self) -> None:
        """Everything on disk, then the mark of a clean stop, then out of the cluster."""
        epoch = self.broker_epoch
        self._acting.cease()
        self._coordinators.pump()
        self._fetches.wake()
        self._duties.note_metadata()
        self.clock.close()
        # A loss that is not stored yet must not pass for a clean stop.
        proved = epoch is not None and not self._reporter.undecided
        self.directory.close(self._duties.high_watermarks(), *((epoch,) if proved else ()))
        self._halt(Halt("shut down", clean=True))

    def _fail(self, error: Exception) -> None:
        self._turn.take_back_answers()  # not even what this very step would have promised
        for replica in self._replicas.hosted.values():
            self._replicas.step(replica, LogFailed())
        self._gate.acting = False
        self._fetches.wake()
        self._halt(Halt(f"log directory offline: {error}", clean=False))

    def _halt(self, halt: Halt) -> None:
        self._turn.emit(CloseSession())
        self._turn.emit(halt)
        self.halted = halt
