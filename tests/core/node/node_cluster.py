"""A few nodes with one store, a network of one millisecond delay, and virtual time.

The network is a list of timed deliveries; links can be cut, and requests held and released later.
This module makes no decision of a broker.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import Any, TypeVar

from tidelog.core.controller.effects import StoreTransaction, TopicAnswer
from tidelog.core.controller.events import CreateTopicReceived
from tidelog.core.controller.metadata.features import SUPPORTED, FeatureRange
from tidelog.core.controller.metadata.metadata_store import Compacted, TxnAnswer, Unavailable
from tidelog.core.controller.metadata.mvcc import Mvcc
from tidelog.core.errors import ErrorCode
from tidelog.core.node import effects as do
from tidelog.core.node import events as on
from tidelog.core.node.config import NodeConfig
from tidelog.core.node.hosting.hosted_replica import HostedReplica
from tidelog.core.node.messages import (
    Fetch,
    FetchPartition,
    FetchResponse,
    Produce,
    ProducePartition,
    ProducePartitionResponse,
    ProduceResponse,
)
from tidelog.core.node.node import Node
from tidelog.core.record.decoder import decode
from tidelog.core.record.encoder import encode_value
from tidelog.core.record.record_batch import batches
from tidelog.core.replication.truncation import LEADER_EPOCH, TruncationPolicy
from tidelog.core.storage.cleaning.cleaner import clean
from tidelog.core.storage.disk import Region, read_region
from tidelog.core.types import BrokerId, TopicPartition
from tidelog.core.wall_clock import ClockReading
from tidelog.lab.disk_pair import DiskPair
from tidelog.lab.memory_disk import MemoryDisk

ORDERS = TopicPartition("orders", 0)
TTL_MS = 9000
DELAY_MS = 1

Response = TypeVar("Response")


@dataclass(slots=True)
class Lease:
    """A store session, as the host of its owner sees it."""

    session: int
    deadline_ms: int


@dataclass
class Cluster:
    """Nodes, their disks, the store between them, and a client."""

    brokers: tuple[BrokerId, ...] = (1, 2, 3)
    settings: dict[str, Any] = field(default_factory=dict)
    policy: TruncationPolicy = LEADER_EPOCH
    now_ms: int = 0
    """Monotonic."""
    wall_ahead_ms: int = 0
    boot_id: str = "first boot"
    supported: tuple[FeatureRange, ...] = SUPPORTED
    """The feature levels of the software that the next start runs."""
    store: Mvcc = field(default_factory=Mvcc)
    nodes: dict[BrokerId, Node] = field(default_factory=dict)
    disks: dict[BrokerId, Any] = field(default_factory=dict)
    halted: dict[BrokerId, do.Halt] = field(default_factory=dict)
    cut: set[tuple[Any, Any]] = field(default_factory=set)
    """Directed links that drop everything."""
    storeless: set[BrokerId] = field(default_factory=set)
    """Brokers that can't reach the store."""
    store_away: bool = False
    """The store responds to no broker and ends no session."""
    unrenewed: set[BrokerId] = field(default_factory=set)
    """Brokers whose sessions are not renewed, though they hear from the store."""
    turn_ms: int = 0
    """How long a broker's turn takes at least: between two ticks others get theirs."""
    flush_held: bool = False
    cleanings: list[tuple[BrokerId, Node, do.CleanLog]] = field(default_factory=list)
    """Held back while `cleaning_held`."""
    cleaning_held: bool = False
    stopped_cleanings: list[int] = field(default_factory=list)
    answers: dict[int, Any] = field(default_factory=dict)
    closed: list[Any] = field(default_factory=list)
    sent: list[tuple[BrokerId, BrokerId, Any]] = field(default_factory=list)
    on_send: Callable[[BrokerId, BrokerId, Any], None] = lambda *_: None
    tamper: Callable[[BrokerId, BrokerId, Any], Any] | None = None
    """Changes a response on its way from one broker to another; None drops it."""
    _queue: list[tuple[int, int, Callable[[], None]]] = field(default_factory=list)
    _order: int = 0
    _watching: dict[BrokerId, int] = field(default_factory=dict)
    _leases: dict[BrokerId, Lease] = field(default_factory=dict)
    _flushes: list[tuple[BrokerId, Node, do.Flush]] = field(default_factory=list)
    _next_turn_ms: dict[BrokerId, int] = field(default_factory=dict)
    _starts: int = 0
    _idle: int = 0
    _correlation: int = 0

    # -- processes -------------------------------------------------------------------------

    def start(self, *brokers: BrokerId, **settings: Any) -> None:
        for broker in brokers or self.brokers:
            self._starts += 1
            at_once = {"high_watermark_linger_ms": 0}
            config = NodeConfig(broker, **{**at_once, **self.settings, **settings})
            disk = self.disks.setdefault(broker, MemoryDisk())
            wall_ms = self.now_ms + self.wall_ahead_ms
            clock = ClockReading(wall_ms, self.boot_id, self.now_ms)
            disks = disk.log_disks if isinstance(disk, DiskPair) else disk
            node = Node(
                config,
                disks,
                self._starts,
                self.now_ms,
                self.policy,
                clock=clock,
                supported=self.supported,
            )
            self.nodes[broker] = node
            self.halted.pop(broker, None)
            self.step(broker, on.Started(self.now_ms))

    def set_clock(self, ahead_ms: int) -> None:
        """Set the wall clock of all brokers this far ahead of the monotonic clock."""
        self.wall_ahead_ms = ahead_ms
        self.read_clock()

    def read_clock(self) -> None:
        """Read the wall clock, as every host does each second."""
        ahead_ms = self.wall_ahead_ms
        for broker in list(self.nodes):
            self.step(broker, on.WallClockRead(self.now_ms + ahead_ms, self.now_ms))

    def crash(self, broker: BrokerId, *, proof: bool = False) -> None:
        """Kill the process; calls to it fail; with `proof` its death is known at once."""
        node = self.nodes.pop(broker)
        self._watching.pop(broker, None)
        lease = self._leases.pop(broker, None)
        epoch = node.broker_epoch
        if lease is not None:
            self.at(lease.deadline_ms, lambda: self._expire(lease.session))
        if proof and epoch is not None:
            died = (broker, epoch)
            for other in list(self.nodes):
                self.step(other, on.BrokerDied(*died, self.now_ms))

    def step(self, broker: BrokerId, event: on.Event) -> None:
        node = self.nodes.get(broker)
        if node is None:
            return
        for effect in node.step(event):
            self._carry_out(broker, node, effect)

    # -- time ------------------------------------------------------------------------------

    def at(self, when_ms: int, act: Callable[[], None]) -> None:
        self._order += 1
        heappush(self._queue, (when_ms, self._order, act))

    def soon(self, act: Callable[[], None]) -> None:
        self.at(self.now_ms + DELAY_MS, act)

    def run(self, for_ms: int) -> None:
        """Let virtual time pass."""
        end = self.now_ms + for_ms
        while self._happen(end):
            pass
        self.now_ms = end

    def run_until(self, done: Callable[[], bool], within_ms: int = 60_000) -> None:
        """Let virtual time pass until a condition is true."""
        end = self.now_ms + within_ms
        while not done():
            assert self._happen(end), "it never came true"

    def _happen(self, end_ms: int) -> bool:
        """Run the next event, if it is due by then."""
        due = [(n.next_deadline_ms(), b) for b, n in self.nodes.items()]
        turns = [(max(at, self._next_turn_ms.get(b, 0)), b) for at, b in due if at is not None]
        tick, broker = min(turns, default=(end_ms + 1, -1))
        message = self._queue[0][0] if self._queue else end_ms + 1
        if min(tick, message) > end_ms:
            return False
        self._idle = 0 if self.now_ms < min(tick, message) else self._idle + 1
        assert self._idle < 10_000, "time stands still"
        if message <= tick:
            when, _, act = heappop(self._queue)
            self.now_ms = max(self.now_ms, when)
            act()
        else:
            self.now_ms = max(self.now_ms, tick)
            self._next_turn_ms[broker] = self.now_ms + self.turn_ms
            self.step(broker, on.Ticked(self.now_ms))
        return True

    # -- effects ---------------------------------------------------------------------------

    def _carry_out(self, broker: BrokerId, node: Node, effect: do.Effect) -> None:
        match effect:
            case do.Send(target, correlation, request):
                self.sent.append((broker, target, request))
                self.on_send(broker, target, request)
                self.soon(lambda: self._deliver(broker, node, target, correlation, request))
            case do.Respond(peer, correlation, response):
                self._respond(broker, peer, correlation, response)
            case do.Close(peer):
                self.closed.append(peer)
            case do.Halt():
                self.halted[broker] = effect
                self.nodes.pop(broker, None)
                self._watching.pop(broker, None)
                self._leases.pop(broker, None)
            case do.Flush():
                self._flushes.append((broker, node, effect))
                if not self.flush_held:
                    self.soon(self.release_flushes)
            case do.CleanLog():
                self.cleanings.append((broker, node, effect))
                if not self.cleaning_held:
                    self.soon(self.release_cleanings)
            case do.StopCleaning():
                self.stopped_cleanings.append(effect.cleaning)
            case _:
                self._use_store(broker, node, effect)

    def _deliver(
        self, sender: BrokerId, node: Node, target: BrokerId, correlation: int, request: Any
    ) -> None:
        if (sender, target) in self.cut:
            return
        if target not in self.nodes:
            if self.nodes.get(sender) is node:
                self.step(sender, on.RequestFailed(correlation, self.now_ms))
            return
        peer = (sender, node)
        self.step(target, on.RequestReceived(peer, correlation, request, self.now_ms))

    def _respond(self, broker: BrokerId, peer: Any, correlation: int, response: Any) -> None:
        resolve_records(self.disks[broker], response)
        if peer == "client":
            self.answers[correlation] = response
            return
        asker, node = peer
        if self.tamper is not None:
            response = self.tamper(broker, asker, response)
            if response is None:
                return

        def arrive() -> None:
            if self.nodes.get(asker) is node and (broker, asker) not in self.cut:
                self.step(asker, on.ResponseReceived(correlation, response, self.now_ms))

        self.soon(arrive)

    def release_flushes(self) -> None:
        flushes, self._flushes = self._flushes, []
        for broker, node, flush in flushes:
            if self.nodes.get(broker) is node:
                for path in filter(self.disks[broker].exists, flush.files):
                    self.disks[broker].sync(path)
                self.step(broker, on.FlushCompleted(flush.flush, None, self.now_ms))

    def release_cleanings(self) -> None:
        cleanings, self.cleanings = self.cleanings, []
        for broker, node, effect in cleanings:
            if self.nodes.get(broker) is node:
                for told in clean(self.disks[broker], effect.plan):
                    self.step(broker, on.LogCleaned(effect.cleaning, told, self.now_ms))

    # -- the store -------------------------------------------------------------------------

    def _use_store(self, broker: BrokerId, node: Node, effect: do.Effect) -> None:
        match effect:
            case do.OpenSession():
                self.soon(lambda: self._open_session(broker, node))
            case do.CloseSession():
                lease = self._leases.pop(broker, None)
                if lease is not None:
                    self._expire(lease.session)
            case do.ReadStore(earlier):
                snapshot = self.store.range("", earlier)
                self._tell(broker, node, lambda: on.StoreRead(snapshot, self.now_ms))
            case do.WatchStore(after):
                self._watching[broker] = after
                self._notify()
            case StoreTransaction(tag, guards, ops):
                answer: TxnAnswer = Unavailable()
                if broker not in self.storeless and not self.store_away:
                    answer = self.store.txn(guards, ops)
                self._tell(broker, node, lambda: on.TransactionAnswered(tag, answer, self.now_ms))
                self._notify()

    def _tell(self, broker: BrokerId, node: Node, event: Callable[[], on.Event]) -> None:
        def arrive() -> None:
            if self.nodes.get(broker) is node:
                self.step(broker, event())

        delay = 100 if broker in self.storeless else DELAY_MS
        self.at(self.now_ms + delay, arrive)

    def _open_session(self, broker: BrokerId, node: Node) -> None:
        if self.nodes.get(broker) is not node:
            return
        lease = Lease(self.store.open_session(), self.now_ms + TTL_MS)
        self._leases[broker] = lease
        self.step(broker, on.SessionOpened(lease.session, lease.deadline_ms, self.now_ms))
        self.at(self.now_ms + TTL_MS // 3, lambda: self._renew(broker, node, lease))

    def _renew(self, broker: BrokerId, node: Node, lease: Lease) -> None:
        if self.nodes.get(broker) is not node or self._leases.get(broker) is not lease:
            return
        if self.store_away:
            self.at(self.now_ms + TTL_MS // 3, lambda: self._renew(broker, node, lease))
            return
        if self.now_ms >= lease.deadline_ms:
            self._expire(lease.session)
            del self._leases[broker]
            self.step(broker, on.SessionLost(self.now_ms))
            return
        if broker not in self.storeless | self.unrenewed:
            lease.deadline_ms = self.now_ms + TTL_MS
            self.step(broker, on.SessionRenewed(lease.deadline_ms, self.now_ms))
        self.at(self.now_ms + TTL_MS // 3, lambda: self._renew(broker, node, lease))

    def return_store(self) -> None:
        """End an outage of the store; all sessions get their full time again."""
        self.store_away = False
        for lease in self._leases.values():
            lease.deadline_ms = self.now_ms + TTL_MS

    def lose_session(self, broker: BrokerId) -> None:
        self._expire(self._leases.pop(broker).session)
        self.step(broker, on.SessionLost(self.now_ms))

    def _expire(self, session: int) -> None:
        self.store.expire(session)
        self._notify()

    def _notify(self) -> None:
        for broker, after in list(self._watching.items()):
            batches_after = self.store.watch("", after)
            assert not isinstance(batches_after, Compacted)
            if broker in self.storeless:
                continue
            for batch in batches_after:
                self._watching[broker] = batch.rev
                node = self.nodes[broker]
                self._tell(broker, node, lambda b=batch: on.StoreChanged(b, self.now_ms))  # type: ignore[misc]

    # -- a client --------------------------------------------------------------------------

    def ask(self, broker: BrokerId, request: Any) -> int:
        """Send a request at once; return its number in `answers`."""
        self._correlation += 1
        event = on.RequestReceived("client", self._correlation, request, self.now_ms)
        self.step(broker, event)
        return self._correlation

    def call(self, broker: BrokerId, request: Any, within_ms: int = 60_000) -> Any:
        """Send a request and wait for the response."""
        correlation = self.ask(broker, request)
        self.run_until(lambda: correlation in self.answers, within_ms)
        return self.answers.pop(correlation)

    def create_topic(
        self,
        name: str = "orders",
        replicas: tuple[BrokerId, ...] = (1, 2, 3),
        topic_id: bytes = b"t" * 16,
        wait: bool = True,
        **configs: str,
    ) -> None:
        self.run_until(lambda: all(self.nodes[broker].acting for broker in replicas))
        controller = self.controller()
        request = CreateTopicReceived(
            0,
            name,
            topic_id,
            1,
            len(replicas),
            {key.replace("_", "."): value for key, value in configs.items()},
            (replicas,),
        )
        answer: TopicAnswer = self.call(controller, request)
        assert answer.error is ErrorCode.NONE, answer
        if not wait:
            return
        self.run_until(
            lambda: all(TopicPartition(name, 0) in self.nodes[r].replicas for r in replicas)
        )
        self.run_until(lambda: self.leader(TopicPartition(name, 0)) is not None)

    def controller(self) -> BrokerId:
        def is_active() -> list[BrokerId]:
            return [b for b, n in self.nodes.items() if n.controller.is_active]

        self.run_until(lambda: bool(is_active()))
        return is_active()[0]

    def leader(self, name: TopicPartition = ORDERS) -> BrokerId | None:
        for broker, node in self.nodes.items():
            replica = node.replicas.get(name)
            if replica is not None and replica.partition.is_leader and node.acting:
                return broker
        return None

    def replica(self, broker: BrokerId, name: TopicPartition = ORDERS) -> HostedReplica:
        return self.nodes[broker].replicas[name]

    def produce(
        self, broker: BrokerId, *values: bytes, acks: int = -1, timeout_ms: int = 30_000
    ) -> list[ProducePartitionResponse]:
        """Produce each value in a separate request; return the responses in order."""
        answers = []
        for value in values:
            response: ProduceResponse = self.call(broker, produce(value, acks, timeout_ms))
            answers += response.partitions
        return answers

    def consume(self, broker: BrokerId, name: TopicPartition = ORDERS) -> list[bytes]:
        """Return all committed records from the log start on."""
        offset = self.nodes[broker].replicas[name].partition.log_start_offset
        found: list[bytes] = []
        while True:
            response: FetchResponse = self.call(broker, fetch(offset, name=name))
            part = response.partitions[0]
            assert part.error is ErrorCode.NONE, part
            if part.records is None:
                return found
            assert isinstance(part.records, bytes)
            for batch in batches(part.records):
                found += [record.value or b"" for record in decode(batch)]
                offset = batch.next_offset

    def log(self, broker: BrokerId, name: TopicPartition = ORDERS) -> list[tuple[int, int]]:
        """Return (offset, leader epoch) of every batch in a replica's log."""
        log = self.nodes[broker].replicas[name].log
        found: list[tuple[int, int]] = []
        offset = log.log_start_offset
        while offset < log.log_end_offset:
            for batch in batches(log.read_bytes(log.read(offset, 1 << 20))):
                found.append((batch.base_offset, batch.leader_epoch))
                offset = batch.next_offset
        return found


def produce(value: bytes, acks: int = -1, timeout_ms: int = 30_000) -> Produce:
    return Produce(acks, timeout_ms, [ProducePartition(ORDERS, encode_value(value))])


def fetch(
    offset: int,
    max_wait_ms: int = 0,
    min_bytes: int = 1,
    name: TopicPartition = ORDERS,
    **settings: Any,
) -> Fetch:
    partition = FetchPartition(name, None, offset, 1 << 20)
    return Fetch(None, None, max_wait_ms, min_bytes, 1 << 20, [partition], **settings)


def resolve_records(disk: MemoryDisk, response: Any) -> None:
    """Replace regions by their bytes, as a host does before it sends a response."""
    if isinstance(response, FetchResponse):
        for part in response.partitions:
            if isinstance(part.records, Region):
                part.records = read_region(disk, part.records)
