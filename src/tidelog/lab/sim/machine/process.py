"""One broker's simulated process: the node, its disk, its clocks, and the process faults.

The process makes no decisions. It passes events to the node, carries out the effects in order,
and wakes the node at its next deadline. The other methods simulate what an operating system
does to a process: kill it, pause it, or let its clock jump.

Invariant: an event reaches the node only while the process runs. A response to a request of
one incarnation never reaches a later incarnation.
"""

from collections.abc import Callable, Sequence
from random import Random
from typing import Any, Protocol

from tidelog.core.controller.effects import StoreTransaction
from tidelog.core.controller.metadata.features import SUPPORTED, FeatureRange
from tidelog.core.errors import ErrorCode
from tidelog.core.history import HistoryEvent
from tidelog.core.node import effects as do
from tidelog.core.node import events as on
from tidelog.core.node.config import NodeConfig
from tidelog.core.node.measuring.journal import Note
from tidelog.core.node.messages import FetchResponse
from tidelog.core.node.node import Node
from tidelog.core.replication.truncation import TruncationPolicy
from tidelog.core.storage.cleaning.plan import CleaningMessage
from tidelog.core.storage.disk import Disk, DiskError, Region, read_region
from tidelog.core.storage.log_copy import CopyLimits
from tidelog.core.storage.log_directories import LogDirectories, LogDisk
from tidelog.core.types import BrokerId, Offset, TopicPartition
from tidelog.core.wall_clock import ClockReading
from tidelog.lab.broker_history import ReplicaSamples, logged, stopped
from tidelog.lab.sim.machine.cleaner import SimCleaner
from tidelog.lab.sim.machine.directory import SimDirectory
from tidelog.lab.sim.machine.disk import STALL_MAX_MS, ProcessDied, SimDisk, Sync
from tidelog.lab.sim.machine.network import Address, Network
from tidelog.lab.sim.machine.store import SimStore, StoreClient
from tidelog.lab.sim.machine.switch_fault import SwitchFault
from tidelog.lab.sim.world import World

READ_MS = 1000


class SimClock:
    """The clocks of one machine: a monotonic clock, and a wall clock that a fault may set.

    The monotonic clock is the world's clock plus a skew that only grows. The wall clock is the
    monotonic clock plus `ahead_ms`. The host reads the wall clock at random intervals of up to
    `READ_MS`; a real host reads it every second.

    `on_reading` is called with each reading of the wall clock. It returns whether to read again.
    """

    def __init__(self, world: World, random: Random, on_reading: Callable[[int], bool]) -> None:
        self.skew_ms = 0
        self.ahead_ms = 0
        """How far the wall clock is ahead of the monotonic one."""
        self.boots = 1
        self._world = world
        self._random = random
        self._on_reading = on_reading

    def now_ms(self) -> int:
        return self._world.now_ms + self.skew_ms

    def reading(self) -> ClockReading:
        """Return the clock reading that a process gets at startup."""
        now = self.now_ms()
        return ClockReading(now + self.ahead_ms, f"boot {self.boots}", now)

    def set(self, ahead_ms: int) -> None:
        """Set the wall clock."""
        self.ahead_ms = ahead_ms
        self.read_soon()

    def read_soon(self) -> None:
        self._world.after(self._random.randint(1, READ_MS), self._read)

    def _read(self) -> None:
        if self._on_reading(self.now_ms() + self.ahead_ms):
            self.read_soon()


RESTART_MS = 300
"""The usual delay before the supervisor restarts a process that halted or shut down."""
SAMPLE_MS = 100
"""The shortest time between two samples of a broker's replicas in a history."""

_HANDLED_TOGETHER = (on.RequestReceived, on.ResponseReceived)
"""Events that a real broker handles in groups before it carries out any effect."""


class Observer(Protocol):
    """The oracle or recorder that processes and faults notify and query."""

    def started(self, process: "Process") -> None: ...

    def stepped(self, process: "Process") -> None: ...

    def stopped(self, process: "Process", *, clean: bool) -> None: ...

    def emptied(self, process: "Process", partition: TopicPartition) -> None: ...

    def is_damaged(self, partition: TopicPartition) -> bool: ...

    def may_damage(self, process: "Process", partition: TopicPartition) -> bool: ...

    def damaged(self, process: "Process", partition: TopicPartition) -> None: ...

    def log_end(self, process: "Process", partition: TopicPartition) -> Offset: ...

    def may_put_back(
        self, process: "Process", partition: TopicPartition, log_end_offset: Offset
    ) -> bool: ...

    def outdated(self, process: "Process", partition: TopicPartition) -> None: ...

    def noted(self, process: "Process", notes: Sequence[Note]) -> None: ...


class Client(Protocol):
    """A client that sends requests to brokers and receives their responses."""

    def answered(self, correlation: int, response: object) -> None: ...

    def refused(self, correlation: int) -> None: ...


class Site:
    """The brokers and clients by address, and the parts of the simulation that they share."""

    def __init__(self, world: World, network: Network, store: SimStore) -> None:
        self.world = world
        self.network = network
        self.store = store
        self.brokers: dict[BrokerId, Process] = {}
        self.clients: dict[Address, Client] = {}
        self.observer: Observer
        self.listener: Callable[[Process, type, tuple[Any, ...]], None] | None = None
        """Called with every event before a node handles it; only a recorder uses it."""
        self.history: list[HistoryEvent] | None = None
        """The log events of all brokers, or None if the run keeps no history."""


class Process:
    """One broker, which is running, paused or down."""

    def __init__(
        self, site: Site, config: NodeConfig, disk: SimDisk, policy: TruncationPolicy
    ) -> None:
        self.id = config.broker_id
        self.disk = disk
        self.directories: list[SimDirectory] = []
        """The two log directories; empty if the broker has one."""
        self.switch_fault = SwitchFault(site.world, disk)
        self.node: Node | None = None
        self.incarnation = 0
        self.paused = False
        self.down_until_ms = 0
        """The process does not start before this time."""
        self.supported: tuple[FeatureRange, ...] = SUPPORTED
        """The feature levels of the software that the next start runs."""
        self.copy_limits = CopyLimits()
        self.restart_ms = RESTART_MS
        """The delay before the supervisor restarts a process that halted or shut down."""
        self.flush_max_ms = 3
        """The longest time a flush takes while the disk has no fault."""
        self.halted: str | None = None
        """Why the last incarnation halted, or None if it did not halt."""
        self._site = site
        self._world = site.world
        self._network = site.network
        self._config = config
        self._policy = policy
        self._random = site.world.random(f"process/{self.id}")
        random = site.world.random(f"clock/{self.id}")
        self.clocks = SimClock(site.world, random, self._read_clock)
        self.clock = self.clocks.now_ms
        self._store_client: StoreClient
        self._samples = ReplicaSamples(SAMPLE_MS)
        self._inbox: list[tuple[type, tuple[Any, ...]]] = []
        self._busy = False
        """Whether the process waits for its disk before it carries out the last step's effects."""
        self._wake_ms: int | None = None
        self._cleaner = SimCleaner(
            site.world, disk, self._disk_of, self._random, self._cleaned, self.die_and_return
        )
        self._carry_out: dict[type, Callable[[Any], None]] = {
            do.Send: self._send,
            do.Respond: self._respond,
            do.Close: self._close,
            do.OpenSession: self._open_session,
            do.CloseSession: self._close_session,
            do.ReadStore: self._read_store,
            do.WatchStore: self._watch_store,
            StoreTransaction: self._transact,
            do.Flush: self._flush,
            do.CleanLog: self._cleaner.clean,
            do.StopCleaning: self._cleaner.stop,
            do.Halt: self._halt,
        }

    # -- life ------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the node from the files on disk; retry later if the disk fails."""
        if self.node is not None:
            return
        if self._world.now_ms < self.down_until_ms:
            self._world.at(self.down_until_ms, self.start)
            return
        self.incarnation += 1
        self.paused = False
        self._inbox.clear()
        self._wake_ms = None
        self._busy = False
        client = StoreClient(self.id, self.receive, self.clock)
        self.disk.restarted()
        try:
            node = Node(
                self._config,
                self._log_disks(),
                incarnation=self.incarnation,
                now_ms=self.clock(),
                policy=self._policy,
                clock=self.clocks.reading(),
                supported=self.supported,
            )
        except (DiskError, ProcessDied) as error:
            if type(error) is ProcessDied:
                self._lose_power_if_failed()
            self._world.after(RESTART_MS, self.start)
            return
        if isinstance(node.directory, LogDirectories):
            node.directory.copy_limits = self.copy_limits
        self.node = node
        self.halted = None
        self._store_client = client
        self._site.store.join(client)
        self._site.observer.started(self)
        self.receive(on.Started)
        if node.clock.doubt_ms:
            self.clocks.read_soon()

    def split_disk(self) -> None:
        """Give the broker two log directories."""
        fault = self.switch_fault
        one, two = [SimDirectory(self._world, self.disk, number, fault) for number in (0, 1)]
        one.other, two.other = two, one
        self.directories = [one, two]

    def move(self, name: TopicPartition, *, stay: bool = False) -> bool:
        """Move a replica to the broker's other log directory, as an administrator does, or end its
        move. Return whether the broker accepts that."""
        if self.node is None or self.paused or self._busy or name not in self.node.replicas:
            return False
        place = self.node.directory.place_of(name)
        try:
            error = self.node.move_log(name, place if stay else 1 - place)
        except ProcessDied:
            self.die_and_return()
            return False
        self._site.observer.stepped(self)
        self._plan_wake()
        return error is ErrorCode.NONE

    def _log_disks(self) -> Disk | list[LogDisk]:
        if not self.directories:
            return self.disk
        return [LogDisk(f"disk-{n}", one) for n, one in enumerate(self.directories)]

    def kill(self) -> None:
        """End the process at once. The operating system keeps everything that was written."""
        self._stop(clean=False)

    def lose_power(self) -> None:
        """End the process at once; unsynced data may be lost."""
        self._stop(clean=False)
        self.clocks.boots += 1
        self.disk.lose_power()

    def _stop(self, *, clean: bool) -> None:
        if self.node is not None:
            self._store_client.dead = True
            self._site.observer.stopped(self, clean=clean)
            if self._site.history is not None:
                self._site.history.append(stopped(self.id, self._world.now_ms, clean=clean))
            self.node = None
            self._inbox.clear()
            self._cleaner.stop_all()

    def pause(self) -> None:
        """Pause the process, as SIGSTOP does: all events wait."""
        if self.node is not None:
            self.paused = self._store_client.frozen = True

    def resume(self) -> None:
        """Continue the process, as SIGCONT does: handle the events that wait, in order."""
        if self.node is not None and self.paused:
            self.paused = self._store_client.frozen = False
            self._take_waiting(self.incarnation)
            self._plan_wake()

    def jump(self, by_ms: int) -> None:
        """Move both clocks forward."""
        if self.node is not None:
            self.clocks.skew_ms += by_ms
            self._wake_ms = None
            self._plan_wake()

    def _read_clock(self, wall_ms: int) -> bool:
        """Pass a wall clock reading to the node; return whether to read again soon."""
        node = self.node
        if node is None:
            return False
        if self.paused or self._busy or self._inbox:
            return True
        self.receive(on.WallClockRead, wall_ms)
        return node.clock.doubt_ms != 0

    # -- events ----------------------------------------------------------------------------

    def receive(self, kind: type, *fields: Any) -> None:
        """Pass an event of this class to the node, or queue it; the time is added later."""
        node = self.node
        if node is None:
            return
        if self.paused or self._busy or self._inbox:
            self._inbox.append((kind, fields))
            return
        self._step(node, kind, fields)

    def _step(self, node: Node, kind: type, fields: tuple[Any, ...]) -> None:
        world = self._world
        if self._site.listener is not None:
            self._site.listener(self, kind, fields)
        try:
            effects = node.step(kind(*fields, self.clock()))
        except ProcessDied:
            self.die_and_return()
            return
        self._site.observer.stepped(self)
        journal = node.journal
        if journal.notes:
            self._log(journal.take()[0])
        if self._site.history is not None:
            self._site.history += self._samples.take(self.id, world.now_ms, node)
        if self.disk.stall_ms:
            self._busy = True
            world.after(self.disk.stall_ms, self._carry_out_late, self.incarnation, effects)
            self.disk.stall_ms = 0
        else:
            for effect in effects:
                self._carry_out[type(effect)](effect)
        self._plan_wake()

    def _log(self, notes: list[Note]) -> None:
        self._site.observer.noted(self, notes)
        if self._site.history is not None:
            self._site.history += logged(self.id, self._world.now_ms, notes)

    def _take(self, node: Node, kind: type, fields: tuple[Any, ...]) -> None:
        """Handle an event but delay its effects, as a real broker does with several messages."""
        if self._site.listener is not None:
            self._site.listener(self, kind, fields)
        try:
            node.take(kind(*fields, self.clock()))
        except ProcessDied:
            self.die_and_return()

    def _take_waiting(self, incarnation: int) -> None:
        """Handle, in order, the events that arrived during a pause or a disk stall."""
        while self._inbox and self.incarnation == incarnation and self.node is not None:
            if self.paused or self._busy:
                return
            kind, fields = self._inbox.pop(0)
            # Send pending responses before the next event replaces log files.
            swaps = bool(self._inbox) and self._inbox[0][0] is on.LogCleaned
            if self._inbox and kind in _HANDLED_TOGETHER and not swaps:
                self._take(self.node, kind, fields)
            else:
                self._step(self.node, kind, fields)

    def die_and_return(self) -> None:
        """Kill the process in the middle of a write and let the supervisor restart it."""
        self.kill()
        self._lose_power_if_failed()
        self._world.after(RESTART_MS, self.start)

    def _lose_power_if_failed(self) -> None:
        if self.disk.died_of_power:
            self.disk.died_of_power = False
            self._world.count("power lost")
            self.lose_power()

    def _carry_out_late(self, incarnation: int, effects: list[do.Effect]) -> None:
        if self.incarnation != incarnation or self.node is None:
            return
        if self.paused:
            self._world.after(STALL_MAX_MS, self._carry_out_late, incarnation, effects)
            return
        self._busy = False
        for effect in effects:
            self._carry_out[type(effect)](effect)
        self._take_waiting(incarnation)

    def _plan_wake(self) -> None:
        if self.node is None:
            return
        wake_ms, deadline = self.node.wake_ms(), self.node.next_deadline_ms()
        if deadline is not None:
            assert (wake_ms or 0) <= deadline, "a host that trusts `wake_ms` sleeps too long"
            at = max(deadline - self.clocks.skew_ms, self._world.now_ms + 1)
            if self._wake_ms is None or at < self._wake_ms:
                self._wake_ms = at
                self._world.at(at, self._wake, self.incarnation, at)

    def _wake(self, incarnation: int, at_ms: int) -> None:
        if self.incarnation != incarnation or self._wake_ms != at_ms or self.node is None:
            return
        self._wake_ms = None
        if self.paused:
            return
        deadline = self.node.next_deadline_ms()
        if deadline is not None and deadline <= self.clock():
            self.receive(on.Ticked)
        else:
            self._plan_wake()

    # -- messages --------------------------------------------------------------------------

    def request(self, source: Address, incarnation: int, correlation: int, request: object) -> None:
        """Receive a request from a client or broker; refuse it while the process is down."""
        if self.node is None:
            self._network.send(self.id, source, self._refuse, source, incarnation, correlation)
        else:
            self.receive(on.RequestReceived, (source, incarnation), correlation, request)

    def _refuse(self, source: Address, incarnation: int, correlation: int) -> None:
        """Notify the sender that its connection was refused or closed."""
        client = self._site.clients.get(source)
        if client is not None:
            client.refused(correlation)
        else:
            self._site.brokers[source].receive_for(incarnation, on.RequestFailed, correlation)

    def receive_for(self, incarnation: int, kind: type, *fields: Any) -> None:
        """Receive an event for one incarnation; discard it if that incarnation has ended."""
        if self.incarnation == incarnation:
            self.receive(kind, *fields)

    def _send(self, effect: do.Send) -> None:
        target = self._site.brokers[effect.broker]
        self._network.send(
            self.id,
            effect.broker,
            target.request,
            self.id,
            self.incarnation,
            effect.correlation,
            effect.request,
        )

    def _respond(self, effect: do.Respond) -> None:
        assert isinstance(effect.peer, tuple)
        address, incarnation = effect.peer
        response = effect.response
        if type(response) is FetchResponse and not self._read_records(response):
            # A real broker closes the connection: it announced bytes that it can't send.
            self._network.send(self.id, address, self._refuse, *effect.peer, effect.correlation)
            return
        client = self._site.clients.get(address)
        if client is not None:
            self._network.send(self.id, address, client.answered, effect.correlation, response)
        else:
            self._network.send(
                self.id,
                address,
                self._site.brokers[address].receive_for,
                incarnation,
                on.ResponseReceived,
                effect.correlation,
                response,
            )

    def _read_records(self, response: FetchResponse) -> bool:
        """Read the response's records from disk; return whether all reads succeeded."""
        for part in response.partitions:
            if type(part.records) is Region:
                try:
                    records = read_region(self.disk, part.records)
                except DiskError:
                    return False
                if len(records) < part.records.length:
                    return False
                part.records = records
        return True

    def _close(self, effect: do.Close) -> None:
        """Do nothing: a simulated client that expects no response needs no notification."""

    # -- the store -------------------------------------------------------------------------

    def _open_session(self, effect: do.OpenSession) -> None:
        self._site.store.open_session(self._store_client, effect.ttl_ms)

    def _close_session(self, _effect: do.CloseSession) -> None:
        self._site.store.close_session(self._store_client)

    def _read_store(self, effect: do.ReadStore) -> None:
        self._site.store.read(self._store_client, effect.earlier)

    def _watch_store(self, effect: do.WatchStore) -> None:
        self._site.store.watch(self._store_client, effect.after)

    def _transact(self, effect: StoreTransaction) -> None:
        self._site.store.transact(self._store_client, effect)

    # -- the disk --------------------------------------------------------------------------

    def _flush(self, effect: do.Flush) -> None:
        begun = [self.disk.begin_sync(self._place(effect, path)) for path in effect.files]
        syncs = [sync for sync in begun if sync is not None]
        takes = 1 + int(self._random.random() * self.flush_max_ms)
        if self.disk.slow():
            takes += self._random.randint(1, STALL_MAX_MS)
        self._world.after(takes, self._flushed, self.incarnation, effect, syncs)

    def _flushed(self, incarnation: int, effect: do.Flush, syncs: list[Sync]) -> None:
        if self.incarnation != incarnation or self.node is None:
            return
        error = None
        failed = bool(self.directories) and self.directories[effect.place].broken
        if self.disk.broken() or failed:
            error = "input/output error"
        else:
            for sync in syncs:
                self.disk.finish_sync(sync)
            for path in effect.directories:
                self.disk.finish_sync_dir(self._place(effect, path))
        self.receive(on.FlushCompleted, effect.flush, error)

    def _place(self, effect: do.Flush, path: str) -> str:
        return self.directories[effect.place].place(path) if self.directories else path

    def _disk_of(self, effect: do.CleanLog) -> Disk:
        return self.directories[effect.place] if self.directories else self.disk

    def _cleaned(self, number: int, message: CleaningMessage) -> None:
        self.receive(on.LogCleaned, number, message)

    def _halt(self, effect: do.Halt) -> None:
        self.halted = effect.reason
        self._stop(clean=effect.clean)
        self._world.after(self.restart_ms, self.start)
