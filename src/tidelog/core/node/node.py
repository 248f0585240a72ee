"""A complete broker without I/O: `step(event) -> effects`.

The simulator and the broker process run this same code; a host only turns bytes into events and
effects into bytes, files and timers. A step passes the event to the part that handles it (two
tables below), then lets every part continue: long polls are checked, fetches, proposals and
flushes are sent. assembly.py builds the parts; they are in the folders beside this file.

If one of several log directories fails, its replicas are offline and the rest continues. If the
only or last one fails, the broker stops, as Kafka does: requests that wait get an error, nothing
more is acknowledged, and the host is asked to end the process.
"""

from collections.abc import Callable, Collection, Sequence
from typing import Any

from tidelog.core.controller import events as controller_on
from tidelog.core.controller.controller import Controller
from tidelog.core.controller.effects import ElectedUncleanly
from tidelog.core.controller.metadata import features
from tidelog.core.controller.metadata.cluster_image import ImageDelta
from tidelog.core.controller.metadata.metadata_store import Snapshot
from tidelog.core.errors import ErrorCode
from tidelog.core.node import events as on
from tidelog.core.node.assembly import Parts
from tidelog.core.node.config import NodeConfig
from tidelog.core.node.coordinating.coordinators import Coordinators
from tidelog.core.node.deadlines import FAR_MS, WakeTime
from tidelog.core.node.effects import CloseSession, Effect, Halt
from tidelog.core.node.events import RequestHandler
from tidelog.core.node.hosting.hosted_replica import HostedReplica
from tidelog.core.node.measuring.counters import Counters, Losses
from tidelog.core.node.measuring.journal import Journal
from tidelog.core.node.membership.registration import REGISTRATION_TAG
from tidelog.core.node.messages import (
    DeleteRecords,
    Fetch,
    FetchResponse,
    InitProducerId,
    ListOffsets,
    OffsetForLeaderEpoch,
    Produce,
    WriteTxnMarkers,
)
from tidelog.core.node.turn import Timed
from tidelog.core.replication.effects import RefuseTruncation
from tidelog.core.replication.events import LogFailed
from tidelog.core.replication.truncation import LEADER_EPOCH, TruncationPolicy
from tidelog.core.storage import layout
from tidelog.core.storage.disk import Disk, DiskError
from tidelog.core.storage.log import LogOffline
from tidelog.core.storage.log_directories import LogDirectories, LogDisk
from tidelog.core.storage.log_directory import Progress
from tidelog.core.types import BrokerEpoch, BrokerId, Offset, TopicPartition
from tidelog.core.wall_clock import ClockReading

CONTROLLER_TICK_MS = 500
_FREQUENT = (Produce, Fetch, FetchResponse)


class RequestHandlers(dict[type, RequestHandler]):
    """The handler of each request type. Handlers of coordinators are added when the first such
    request arrives (coordinating/coordinators.py)."""

    def __init__(self, load: Callable[[type], dict[type, RequestHandler]]) -> None:
        self._load = load

    def __missing__(self, request_type: type) -> RequestHandler:
        self |= self._load(request_type)
        if request_type not in self:
            raise TypeError(f"no service handles requests of type {request_type.__name__}")
        return self[request_type]


class Node:
    """A broker. Its constructor recovers the logs; `step(Started)` begins its work."""

    def __init__(
        self,
        config: NodeConfig,
        disk: Disk | Sequence[LogDisk],
        incarnation: int,
        now_ms: int,
        policy: TruncationPolicy = LEADER_EPOCH,
        progress: Progress | None = None,
        clock: ClockReading | None = None,
        supported: tuple[features.FeatureRange, ...] = features.SUPPORTED,
    ) -> None:
        parts = Parts(config, disk, incarnation, now_ms, policy, progress, clock, supported)
        self.supported = supported
        self.config = config
        self.image = parts.image
        self.client_quotas = parts.client_quotas
        self.directory = parts.directory
        self.clock = parts.clock
        self.cleaning = parts.cleaning
        self.scrubber = parts.scrubber
        self.halted: Halt | None = None
        self._turn = parts.turn
        self._replicas = parts.replicas
        self._gate = parts.gate
        self._calls = parts.calls
        self._controller = parts.controller
        self._fetchers = parts.fetchers
        self._proposals = parts.proposals
        self._reporter = parts.reporter
        self._applier = parts.applier
        self._registration = parts.registration
        self._store = parts.store
        self._fetches = parts.fetches
        self._produces = parts.produces
        self._markers = parts.markers
        self._verification = parts.verification
        self._offsets = parts.offsets
        self._producer_ids = parts.producer_ids
        self._coordinators = parts.coordinators
        self._flushing = parts.flushing
        self._duties = parts.duties
        self._moves = parts.moves
        self._activation = parts.activation
        self._timed: tuple[Timed, ...] = (
            parts.store,
            parts.calls,
            parts.produces,
            parts.fetches,
            parts.offsets,
            parts.markers,
            self._verification,
            parts.producer_ids,
            parts.coordinators,
            parts.cleaning,
            parts.clock,
            parts.scrubber,
            parts.repairs,
            parts.moves,
        )
        self._wake = WakeTime(
            clocks=(
                self._own_next_ms,
                parts.registration.next_ms,
                parts.applier.next_ms,
                parts.controller.next_ms,
                *(part.next_ms for part in self._timed),
            ),
            # Deadlines that every produce, fetch and follower fetch adds to.
            often=(
                parts.calls.deadlines,
                parts.produces.deadlines,
                parts.fetches.deadlines,
                parts.verification.deadlines,
            ),
            next_send_ms=self._next_send_ms,
        )
        self._controller_tick_ms = now_ms
        self._stop_by_ms = FAR_MS
        self._stopping = False
        self._handlers = self._event_handlers()
        self._services = self._request_handlers()

    def _event_handlers(self) -> dict[type, Callable[[Any], None]]:
        """The handler of each event type except requests and responses."""
        return {
            on.Started: self._on_started,
            on.RequestFailed: self._on_request_failed,
            on.SessionOpened: self._on_session_opened,
            on.SessionRenewed: self._on_session_renewed,
            on.SessionLost: self._on_session_lost,
            on.StoreRead: self._on_store_read,
            on.StoreChanged: self._on_store_changed,
            on.WatchLost: self._on_watch_lost,
            on.TransactionAnswered: self._on_transaction_answered,
            on.FlushCompleted: self._on_flush_completed,
            on.LogCleaned: self._on_log_cleaned,
            on.BrokerDied: self._on_broker_died,
            on.Ticked: self._on_ticked,
            on.WallClockRead: self.clock.read,
            on.ShutdownRequested: self._on_shutdown_requested,
        }

    def _request_handlers(self) -> RequestHandlers:
        handlers = RequestHandlers(self._coordinators.handlers_of)
        handlers |= {
            Produce: self._produces.produce,
            Fetch: self._fetches.fetch,
            ListOffsets: self._offsets.list_offsets,
            OffsetForLeaderEpoch: self._offsets.epoch_ends,
            DeleteRecords: self._offsets.delete_records,
            WriteTxnMarkers: self._markers.write_txn_markers,
            InitProducerId: self._producer_ids.init_producer_id,
            **self._controller.handlers(),
            **self._coordinators.handlers(),
        }
        return handlers

    # -- state for tools, metrics and tests ------------------------------------------------

    @property
    def now_ms(self) -> int:
        """The time of the latest event."""
        return self._turn.now_ms

    @property
    def wall_ms(self) -> int:
        """The wall clock time of the latest event."""
        return self._turn.wall_ms

    @property
    def replicas(self) -> dict[TopicPartition, HostedReplica]:
        """The replicas on this broker, by name."""
        return self._replicas.hosted

    def move_log(self, name: TopicPartition, number: int) -> ErrorCode:
        """Move a replica's log to another log directory of this broker, in the background."""
        self._wake.forget()
        return self._moves.move(name, number)

    @property
    def losses(self) -> Losses:
        """Records that replicas on this broker dropped by truncation."""
        return self._replicas.losses

    @property
    def refused(self) -> dict[TopicPartition, RefuseTruncation]:
        """Replicas that stopped fetching because their leader lacks committed records."""
        return self._replicas.refused

    @property
    def controller(self) -> Controller:
        """This broker's controller, active or not."""
        return self._controller.controller

    @property
    def unclean_elections(self) -> Collection[ElectedUncleanly]:
        """The latest unclean elections that this broker's controller made."""
        return self._controller.unclean_elections

    @property
    def coordinators(self) -> Coordinators:
        """The coordinators of this broker: of consumer groups and of transactions."""
        return self._coordinators

    @property
    def broker_epoch(self) -> BrokerEpoch | None:
        """The epoch of the current registration; None while unregistered."""
        return self._registration.broker_epoch

    @property
    def session_deadline_ms(self) -> int | None:
        """When the store session ends unless it is renewed; None without a session."""
        return self._registration.deadline_ms

    @property
    def acting(self) -> bool:
        """Whether this broker serves and leads."""
        return self._gate.acting

    @property
    def detached(self) -> bool:
        """Whether this broker serves without the store, only partitions that followers confirm."""
        return self._gate.detached

    @property
    def counters(self) -> Counters:
        """The counters of this broker."""
        return self._turn.counters

    @property
    def journal(self) -> Journal:
        """Events for the broker's log that the host has not taken yet."""
        return self._turn.journal

    def purgatory(self) -> dict[str, int]:
        """How many requests wait, under Kafka's names for them."""
        return {
            "Produce": self._produces.waiting,
            "Fetch": self._fetches.waiting,
            "DeleteRecords": self._offsets.waiting,
        }

    def waiting_fetch(self, replica: HostedReplica, follower: BrokerId) -> Offset | None:
        """Return the offset from which a follower's fetch waits here; None without such a fetch."""
        return self._fetches.waiting_from(replica, follower)

    def distrust(self, path: str) -> None:
        """Verify a segment's file before its next read, because sending the file failed."""
        name = layout.parse_dir(path.partition("/")[0])
        replica = None if name is None else self._replicas.hosted.get(name)
        if replica is not None:
            replica.log.require_verification(path)

    # -- the step --------------------------------------------------------------------------

    def step(self, event: on.Event) -> list[Effect]:
        """Handle one event; the effects are to be carried out in order."""
        self.take(event)
        return self.take_answers() + self.settle()

    def take(self, event: on.Event) -> None:
        """Handle one event; its consequences wait for `settle`. A host that has several events
        passes all of them first, so that long polls are checked once."""
        if self.halted is not None:
            return
        if event.now_ms > self._turn.now_ms:
            self._turn.now_ms = event.now_ms
        try:
            if self._registration.lapsed:
                self._registration.withdraw_candidacy()
                self._activation.update()
                self._wake.forget()
            if isinstance(event, on.RequestReceived):
                message = event.request
                self._services[type(message)](event.peer, event.correlation, message)
            elif isinstance(event, on.ResponseReceived):
                message = event.response
                self._calls.answer(event.correlation, message)
            else:
                message = None
                self._handlers[type(event)](event)
                self._activation.update()
            if type(message) not in _FREQUENT:
                self._wake.forget()
        except (DiskError, LogOffline) as error:
            self._fail(error)

    def take_answers(self) -> list[Effect]:
        """The responses with which `settle` would begin, if they depend on nothing that is still
        to be written: clients need not wait for the rest of the step."""
        if self._replicas.unwritten or self._stopping or self._registration.may_stop:
            return []
        if self.directory.newly_failed:
            return []
        return self._turn.take_answers()

    def settle(self) -> list[Effect]:
        """Let all parts continue; return the effects of all events, to be carried out in order."""
        while self.halted is None:
            try:
                if self.directory.newly_failed:
                    self._directories_failed()
                self._settle()
            except (DiskError, LogOffline) as error:
                self._fail(error)
            if not self.directory.newly_failed:
                break
        return self._turn.take()

    def _settle(self) -> None:
        while True:
            progress = self._coordinators.pump()
            if progress:
                self._wake.forget()
            self._fetches.wake()
            self._flushing.pump()
            epoch = self._registration.broker_epoch
            if self._proposals.pump(epoch, acting=self._gate.acting):
                self._wake.forget()  # this broker may itself be the controller
            self._fetchers.pump(epoch)
            if not (self._replicas.touched or self._replicas.deposed or progress):
                break
        self._replicas.write_epochs()
        if self._reporter.pending:
            self._reporter.pump(epoch)
            self._wake.forget()
        if self._replicas.repairing or self.directory.moves:
            # A follower's step may end a repair, for which the move of the log waits.
            self._wake.forget()
        self.directory.save_damage()
        if self._replicas.truncated:
            self._replicas.truncated = False
            self.directory.write_recovery_points()
            self.directory.write_high_watermarks(self._duties.high_watermarks())
        if self._stopping or self._registration.may_stop:
            self._stop()

    def next_deadline_ms(self) -> int | None:
        """When to step with Ticked, if nothing else happens; None once halted."""
        return self._wake.exact() if self.halted is None else None

    def wake_ms(self) -> int | None:
        """Return that time or an earlier one, at a fraction of the cost, for use in every turn."""
        return self._wake.bound(self._turn.now_ms) if self.halted is None else None

    def _own_next_ms(self) -> int:
        return min(self._duties.next_ms, self._controller_tick_ms, self._stop_by_ms)

    def _next_send_ms(self) -> int:
        """When the next request to another broker that waits now may be sent."""
        epoch, reporter, soonest = self.broker_epoch, self._reporter, FAR_MS
        for at in (
            self._fetchers.next_ms() if epoch is not None else None,
            self._proposals.next_ms() if self._gate.acting else None,
            reporter.next_ms(epoch) if reporter.pending else None,
        ):
            if at is not None and at < soonest:
                soonest = at
        return soonest

    # -- the store and the session ---------------------------------------------------------

    def _on_started(self, _event: on.Started) -> None:
        """Read the store before anything is written to it: it may be behind this broker."""
        self._store.read()

    def _on_session_opened(self, event: on.SessionOpened) -> None:
        self._registration.session_opened(event.session, event.deadline_ms)

    def _on_session_renewed(self, event: on.SessionRenewed) -> None:
        self._registration.session_renewed(event.deadline_ms)

    def _on_session_lost(self, _event: on.SessionLost) -> None:
        self._registration.session_lost()

    def _on_store_read(self, event: on.StoreRead) -> None:
        snapshot = event.answer
        if not isinstance(snapshot, Snapshot):
            self._store.read_again_later()
            return
        if not self._store.accepted:
            reason = self._store.accept(snapshot)
            if reason is not None:
                self._halt(Halt(reason, clean=False))
                return
            self._registration.start()
        delta = self._store.load(snapshot)
        if delta is not None:
            self._image_changed(delta)
            if self.halted is not None:
                return
            self._applier.set_aside_strays()
        self._store.watch()

    def _on_store_changed(self, event: on.StoreChanged) -> None:
        self._image_changed(self.image.apply(event.batch))

    def _on_watch_lost(self, _event: on.WatchLost) -> None:
        self._store.read()

    def _image_changed(self, delta: ImageDelta) -> None:
        """Apply a change of the image: first to the replicas, then to coordinators, requests to the
        controller, heartbeats and this broker's own controller."""
        if delta.features:
            reason = features.refusal(self.image.features, self.supported)
            if reason is not None:
                self._halt(Halt(reason, clean=False))
                return
        self._activation.stop_if_unregistered()
        self._applier.apply(delta)
        self._coordinators.image_advanced({name for name, _ in delta.deleted_topics})
        if delta.controller:
            self._proposals.controller_changed()
            self._controller.controller_changed()
        self._registration.image_advanced(controller=delta.controller)
        self._controller.step(controller_on.StoreChanged(delta))
        self._registration.tick()

    def _on_transaction_answered(self, event: on.TransactionAnswered) -> None:
        if event.tag == REGISTRATION_TAG:
            self._registration.transaction_answered(event.answer)
            self._registration.tick()
        else:
            self._controller.transaction_answered(event.tag, event.answer)

    # -- other events ----------------------------------------------------------------------

    def _on_request_failed(self, event: on.RequestFailed) -> None:
        self._calls.fail(event.correlation)

    def _on_flush_completed(self, event: on.FlushCompleted) -> None:
        self._flushing.completed(event.flush, event.error)

    def _on_log_cleaned(self, event: on.LogCleaned) -> None:
        self.cleaning.progressed(event.cleaning, event.message)

    def _on_broker_died(self, event: on.BrokerDied) -> None:
        self._controller.step(controller_on.BrokerDied(event.broker, event.broker_epoch))

    def _on_ticked(self, _event: on.Ticked) -> None:
        now = self._turn.now_ms
        self._registration.tick()
        if self._applier.tick():
            self._registration.image_advanced(controller=False)
        for part in self._timed:
            part.tick()
        self._duties.tick()
        if now >= self._controller_tick_ms:
            self._controller_tick_ms = now + CONTROLLER_TICK_MS
            self._controller.step(controller_on.Ticked(now))
        else:
            self._controller.continue_upkeep()
        if now >= self._stop_by_ms or (
            # Other brokers replace a broker without a session, or can do nothing either.
            self._gate.leaving and not self._registration.session_valid
        ):
            self._stopping = True

    def _on_shutdown_requested(self, _event: on.ShutdownRequested) -> None:
        """Stop at the end of this step, or once the controller has moved the leaders away."""
        if self.broker_epoch is None or not self.config.controlled_shutdown_enable:
            self._stopping = True
            return
        self._stop_by_ms = self._turn.now_ms + self.config.controlled_shutdown_timeout_ms
        self._gate.leaving = True
        self._registration.shut_down()

    # -- the end ---------------------------------------------------------------------------

    def _stop(self) -> None:
        """Write everything to disk, then the mark of a clean stop, then leave the cluster.

        At the end of a step: nothing may be written after the mark.
        """
        epoch = self.broker_epoch
        self._activation.stop()
        self._coordinators.pump()
        self._fetches.wake()
        self._duties.note_metadata()
        self.clock.close()
        # A stop with a loss that is not stored yet must not count as clean.
        proved = epoch is not None and not self._reporter.undecided
        self.directory.close(self._duties.high_watermarks(), *((epoch,) if proved else ()))
        self._halt(Halt("shut down", clean=True))

    def _directories_failed(self) -> None:
        """Take the replicas of failed directories offline, and report them to the controller."""
        directory = self.directory
        assert isinstance(directory, LogDirectories), "one directory fails with the broker"
        failed: list[TopicPartition] = []
        for number in list(directory.newly_failed):
            names = self._replicas.directory_failed(number)
            path, reason = directory.paths[number], directory.offline[number]
            self._turn.journal.note("directory_failed", path, reason, len(names))
            failed += names
        directory.newly_failed.clear()
        self._turn.fail_answers(set(failed))
        self._reporter.directory_failed(failed)
        self._wake.forget()

    def _fail(self, error: Exception) -> None:
        """Stop because the disk failed, unless another log directory is left. Not even the
        responses of this step are sent."""
        if self.directory.failed(error):
            return
        self._turn.take_back_answers()
        for replica in self._replicas.hosted.values():
            self._replicas.step(replica, LogFailed())
        self._gate.acting = self._gate.detached = False
        self._fetches.wake()
        self._halt(Halt(f"log directory offline: {error}", clean=False))

    def _halt(self, halt: Halt) -> None:
        self._turn.emit(CloseSession())
        self._turn.emit(halt)
        self.halted = halt
