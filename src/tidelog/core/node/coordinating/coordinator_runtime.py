"""Runs the shards of one coordinator on the leaders of an internal topic's partitions.

Each key (a group id, for instance) belongs to one partition of the topic. Its state is in that
partition's log. The shard (core/coordinator/shard.py) decides what to write and answers once it
is committed. When the leader moves, the coordinator moves: requests that wait here fail with
NOT_COORDINATOR, and the new leader reads the log.

Kafka 4 divides the work in the same way: CoordinatorRuntime, CoordinatorShard, CoordinatorLoader
(here HostedShard), PartitionWriter (here ShardWriter).
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Set
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

from tidelog.core.coordinator.lookup import partition_for
from tidelog.core.coordinator.shard import (
    Answer,
    Append,
    AppendMarker,
    CoordinatorShard,
    DamagedRecord,
    EndMarker,
)
from tidelog.core.errors import ErrorCode
from tidelog.core.node.coordinating.coordinator_host import CoordinatorHost
from tidelog.core.node.deadlines import Deadlines
from tidelog.core.node.effects import Respond
from tidelog.core.node.events import Peer, RequestHandler
from tidelog.core.node.hosting.gate import Gate
from tidelog.core.node.hosting.hosted_replica import HostedReplica
from tidelog.core.node.hosting.replicas import Replicas
from tidelog.core.node.measuring.load_times import LoadTimes
from tidelog.core.node.messages import ProducePartitionResponse
from tidelog.core.node.turn import Turn
from tidelog.core.node.waiters import Part, Pending
from tidelog.core.record.control import ControlType
from tidelog.core.record.decoder import decode, decode_marker
from tidelog.core.record.encoder import Producer, encode_batch, encode_marker
from tidelog.core.record.record import Record
from tidelog.core.record.record_batch import (
    TRANSACTIONAL,
    CorruptRecord,
    RecordBatch,
    batches,
    parse,
)
from tidelog.core.replication.events import ACKS_ALL, ProduceReceived
from tidelog.core.storage.segment.damage import DamagedRecords
from tidelog.core.types import LeaderEpoch, Offset

SLICE_BYTES = 128 * 1024
SLICE_RECORDS = 5_000
SLICE_UNPACKED_BYTES = 4 * 1024 * 1024
"""Limits of one step, about ten milliseconds of work. A client may write to the topic itself, and
send batches that decompress to many bytes."""

S = TypeVar("S", bound=CoordinatorShard[Any])


class HostedShard(Generic[S]):
    """A shard, its replica, and the progress of its loading.

    A new leader knows nothing of the shard's state. It reads the log up to the log end offset, one
    slice in each step so that other requests do not wait long. It serves once everything it has
    read is committed: a response to a client must stay true after the next election.

    Invariant: a shard never outlives the leader epoch in which it was created.
    """

    __slots__ = (
        "_position",
        "began_ms",
        "damaged",
        "leader_epoch",
        "loaded",
        "replica",
        "shard",
        "target",
        "unloaded",
    )

    def __init__(self, shard: S, replica: HostedReplica, began_ms: int = 0) -> None:
        self.began_ms = began_ms
        """The time at which loading began."""
        self.shard = shard
        self.replica = replica
        self.leader_epoch: LeaderEpoch = replica.partition.leader_epoch
        self.target: Offset = replica.log.log_end_offset
        """The end of the log when this broker became leader."""
        self.loaded = False
        self.unloaded = False
        self.damaged = 0
        """Batches and records that could not be decoded. They are skipped, as in Kafka."""
        self._position: Offset = replica.log.log_start_offset

    @property
    def is_current(self) -> bool:
        """Whether this broker still leads in the leader epoch of the shard, with this shard: a
        broker that stopped to serve for a while loads another one in the same leader epoch."""
        partition = self.replica.partition
        leads = partition.is_leader and partition.leader_epoch == self.leader_epoch
        return leads and not self.unloaded

    @property
    def has_read_all(self) -> bool:
        """Whether the log was read up to `target`."""
        return self._position >= self.target

    def read_slice(self) -> int:
        """Replay one slice of the log. Return its size in bytes, compressed or not."""
        log = self.replica.log
        self._position = max(self._position, log.log_start_offset)
        if self.has_read_all:
            return 0
        try:
            region = log.read(self._position, SLICE_BYTES, self.target)
            with log.reading():
                data = log.read_bytes(region)
        except DamagedRecords:
            if len(self.replica.isr) > 1:
                return 0  # an intact in-sync replica is about to lead, and will read everything
            self._skip_segment()
            return 1
        if not region.length:
            self._position = self.target  # compaction left nothing more
            return 0
        before = self._position
        records = unpacked = 0
        try:
            for batch in batches(data):
                self._position = batch.next_offset
                unpacked += self._replay(batch)
                records += batch.count
                if records >= SLICE_RECORDS or unpacked >= SLICE_UNPACKED_BYTES:
                    break
        except CorruptRecord:
            self._skip_segment()
        if self._position <= before:
            self._skip_segment()
        return max(region.length, unpacked)

    def _skip_segment(self) -> None:
        """Skip a segment with a damaged header: the start of the next batch is unknown."""
        self.damaged += 1
        segments = self.replica.log.segments
        here = next(segments.from_offset(self._position))
        following = segments.end_of(here)
        self._position = self.target if following is None else min(following, self.target)

    def _replay(self, batch: RecordBatch) -> int:
        """Replay a batch. Return its approximate uncompressed size."""
        size = 0
        try:
            if batch.is_control:
                self._replay_marker(batch)
                return 0
            writer = batch if batch.is_transactional else None
            for record in decode(batch):
                size += len(record.key or b"") + len(record.value or b"")
                if record.key is not None:
                    self._replay_one(writer, record.key, record.value)
        except CorruptRecord as corrupt:
            self.damaged += 1
            return corrupt.unpacked_bytes
        return size

    def _replay_one(self, writer: RecordBatch | None, key: bytes, value: bytes | None) -> None:
        """Replay a record; with `writer` it belongs to a transaction of that batch's producer."""
        try:
            if writer is None:
                self.shard.replay(key, value)
            else:
                producer = (writer.producer_id, writer.producer_epoch)
                self.shard.replay_transactional(*producer, key, value)
        except DamagedRecord:
            self.damaged += 1

    def _replay_marker(self, batch: RecordBatch) -> None:
        marker = decode_marker(batch)
        if marker is not None:
            producer = (batch.producer_id, batch.producer_epoch)
            self.shard.replay_marker(*producer, committed=not marker.is_abort)


SHARED_BYTES_MAX = 256 * 1024
"""Appends share a batch up to this size; a larger append gets a batch of its own."""


class ShardWriter:
    """Appends the records of shards to their partitions, as a producer with acks=all would.

    Several appends of one shard in one turn share a batch, if they follow each other and belong to
    the same transaction or to none. The outcome is reported once for each append: committed,
    refused, or unknown because the write timed out.
    """

    def __init__(
        self,
        timeout_ms: int,
        turn: Turn,
        gate: Gate,
        replicas: Replicas,
        wake_resting: Callable[[HostedReplica], None],
        *,
        verifies: bool,
    ) -> None:
        self.done: list[tuple[HostedShard[Any], int, ErrorCode]] = []
        """Outcomes of appends by their tokens, for `take_done`."""
        self._timeout_ms = timeout_ms
        self._turn = turn
        self._gate = gate
        self._replicas = replicas
        self._wake_resting = wake_resting
        self._verifies = verifies
        """Whether a transactional append may begin a transaction only if it was verified."""
        self._waiting: Deadlines[Pending] = Deadlines()

    def write(self, hosted: HostedShard[Any], appends: list[Append | AppendMarker]) -> None:
        """Write appends in their order, in as few batches as possible."""
        group: list[Append] = []
        size = 0
        for append in appends:
            if isinstance(append, AppendMarker):
                self._write_group(hosted, group)
                group, size = [], 0
                batch = _marker_of(append.marker, self._turn.wall_ms)
                version = append.marker.transaction_version
                self._append(hosted, batch, [append.token], transaction_version=version)
                continue
            more = sum(len(key) + len(value or b"") for key, value in append.records)
            if group and (group[0].producer != append.producer or size + more > SHARED_BYTES_MAX):
                self._write_group(hosted, group)
                group, size = [], 0
            group.append(append)
            size += more
        self._write_group(hosted, group)

    def _write_group(self, hosted: HostedShard[Any], appends: list[Append]) -> None:
        if not appends:
            return
        replica = hosted.replica
        batch = _batch_of(appends, self._turn.wall_ms)
        too_large = batch.size > min(
            replica.rules.max_message_bytes, replica.log.config.segment_bytes
        )
        if too_large and len(appends) > 1:
            # One of them is too large, or only their sum is: each gets its own outcome.
            for append in appends:
                self._write_group(hosted, [append])
            return
        self._append(hosted, batch, [append.token for append in appends], too_large=too_large)

    def _append(
        self,
        hosted: HostedShard[Any],
        batch: RecordBatch,
        tokens: list[int],
        *,
        too_large: bool = False,
        transaction_version: int = 0,
    ) -> None:
        replica = hosted.replica
        error = ErrorCode.NOT_LEADER_OR_FOLLOWER
        if self._gate.serves(replica):
            error = replica.partition.produce_error(ACKS_ALL)
        if error is ErrorCode.NONE and too_large:
            error = ErrorCode.MESSAGE_TOO_LARGE
        if error is not ErrorCode.NONE:
            self.done += [(hosted, token, error) for token in tokens]
            return
        pending = self._pending(hosted, tokens)
        if replica.resting:
            self._wake_resting(replica)
        if not replica.acks_seen & 1:
            self._replicas.note_acks(replica, ACKS_ALL)
        event = ProduceReceived(
            Part(pending, 0),
            batch,
            ACKS_ALL,
            self._turn.now_ms,
            # A marker that was appended since the verification has removed it.
            verified=not self._verifies or batch.producer_id in replica.log.producers.verifications,
            transaction_version=transaction_version,
        )
        self._replicas.step(replica, event)
        if not pending.done:
            self._waiting.add(pending, pending.deadline_ms)

    def _pending(self, hosted: HostedShard[Any], tokens: list[int]) -> Pending:
        preset = ErrorCode.REQUEST_TIMED_OUT
        answers = [ProducePartitionResponse(hosted.replica.topic_partition, preset)]

        def finish(pending: Pending) -> None:
            self._waiting.remove(pending, pending.deadline_ms)
            error = pending.answers[0].error
            self.done += [(hosted, token, error) for token in tokens]

        deadline_ms = self._turn.now_ms + self._timeout_ms
        return Pending(hosted, 0, answers, 1, deadline_ms, finish)

    def take_done(self) -> list[tuple[HostedShard[Any], int, ErrorCode]]:
        """Remove and return the outcomes."""
        done, self.done = self.done, []
        return done

    def forget(self, hosted: HostedShard[Any]) -> None:
        """Drop the outcomes of a shard that was unloaded."""
        self.done = [entry for entry in self.done if entry[0] is not hosted]

    def expire(self) -> None:
        """Time out appends that were not committed in time: their outcome is unknown."""
        for pending in self._waiting.due(self._turn.now_ms):
            pending.time_out()
            pending.peer.replica.commits.forget_done()  # type: ignore[attr-defined]

    def next_ms(self) -> int | None:
        """Return when `expire` has something to do."""
        return self._waiting.next_ms()


def _batch_of(appends: list[Append], wall_ms: int) -> RecordBatch:
    records = [Record(key, value, wall_ms) for append in appends for key, value in append.records]
    producer = appends[0].producer
    if producer is None:
        return parse(encode_batch(records))
    writer = Producer(producer.id, producer.epoch)
    return parse(encode_batch(records, attributes=TRANSACTIONAL, producer=writer))


def _marker_of(marker: EndMarker, wall_ms: int) -> RecordBatch:
    kind = ControlType.COMMIT if marker.committed else ControlType.ABORT
    writer = Producer(marker.producer.id, marker.producer.epoch)
    return parse(encode_marker(kind, writer, marker.coordinator_epoch, wall_ms))


COMMIT_CHECK_MS = 10
"""How often a shard that has read its log checks whether it is committed."""
CONFIRM_CHECK_MS = 10
"""How often a detached broker checks whether its followers confirmed that it still leads."""
SUSPENDED_MS = 2_000
"""The clock is read several times a second. If more time passes between two readings, the process
was stopped, the machine slept or the clock was set."""


class Requester(NamedTuple):
    """The peer and the request that a response is for."""

    peer: Peer
    correlation: int


class LocalRequester(NamedTuple):
    """A part of this broker that gets the response."""

    answered: Callable[[Any], None]


class UnconfirmedRead(NamedTuple):
    """A read that waits until the followers confirm that this broker led when it arrived."""

    arrived_ms: int
    key: str
    requester: Requester
    request: Any


class CoordinatorRuntime(ABC, Generic[S]):
    """The shards of the partitions that this broker leads."""

    topic: ClassVar[str]
    """The internal topic."""
    fresh_reads: ClassVar[tuple[type, ...]] = ()
    """Reads that must return every write that was acknowledged before, also by another broker that
    leads by now. While this broker is detached, they wait for its followers."""

    def __init__(self, host: CoordinatorHost, write_timeout_ms: int) -> None:
        self.load_times = LoadTimes()
        self.shards: dict[int, HostedShard[S]] = {}
        """The shards of this broker, by partition."""
        self._turn = host.turn
        self._image = host.image
        self._replicas = host.replicas
        self._gate = host.gate
        self._writer = ShardWriter(
            write_timeout_ms,
            host.turn,
            host.gate,
            host.replicas,
            host.wake_resting,
            verifies=host.config.transaction_partition_verification_enable,
        )
        self._active: dict[HostedShard[S], None] = {}
        """Shards with effects to carry out, or with a log to read."""
        self._unconfirmed: list[UnconfirmedRead] = []
        self._confirm_check_ms = 0
        """When `tick` checks the unconfirmed reads again."""
        self._next_ms: int | None = None
        """No shard has a timer that is due earlier. A lower bound: the exact time would need a loop
        over all shards."""
        self._clock_read_ms = host.turn.now_ms

    # -- methods of each coordinator -------------------------------------------------------

    @abstractmethod
    def handlers(self) -> dict[type, RequestHandler]:
        """Return the handler of each request type."""

    @abstractmethod
    def make_shard(self, leader_epoch: LeaderEpoch) -> S:
        """Return an empty shard for a partition that this broker begins to lead."""

    @abstractmethod
    def refused(self, request: Any, error: ErrorCode) -> object:
        """Return the response to a request that no shard here can serve."""

    def on_loaded(self, shard: S) -> None:
        """A shard begins to serve: compare its state with the cluster's metadata."""

    def on_topics_deleted(self, shard: S, names: Set[str]) -> None:
        """Topics were deleted."""

    def carry_out(self, _hosted: HostedShard[S], effect: Any) -> None:
        """Carry out an effect that is neither an Answer nor an Append."""
        raise TypeError(f"{type(self).__name__} does not know the effect {effect!r}")

    # -- requests --------------------------------------------------------------------------

    def serve(self, key: str, peer: Peer, correlation: int, request: Any) -> None:
        """Let the shard of a key serve a request."""
        hosted = self.find(key)
        if isinstance(hosted, ErrorCode):
            self._turn.emit(Respond(peer, correlation, self.refused(request, hosted)))
            return
        self._postpone_if_suspended()
        requester = Requester(peer, correlation)
        if self._gate.detached and isinstance(request, self.fresh_reads):
            # With the lease alone, a replaced coordinator could return older offsets for a while.
            now = self._turn.now_ms
            if not self._unconfirmed:
                self._confirm_check_ms = now + CONFIRM_CHECK_MS
            self._unconfirmed.append(UnconfirmedRead(now, key, requester, request))
            return
        hosted.shard.handle(requester, request, self._turn.now_ms)
        self._active[hosted] = None

    def serve_locally(self, key: str, request: Any, answered: Callable[[Any], None]) -> None:
        """Let the shard of a key serve a request of this broker itself."""
        hosted = self.find(key)
        if isinstance(hosted, ErrorCode):
            answered(self.refused(request, hosted))
            return
        self._postpone_if_suspended()
        hosted.shard.handle(LocalRequester(answered), request, self._turn.now_ms)
        self._active[hosted] = None

    def _serve_confirmed(self) -> None:
        """Serve the reads that are confirmed; refuse those that this broker may not serve now."""
        now = self._turn.now_ms
        if now < self._confirm_check_ms or not self._unconfirmed:
            return
        self._confirm_check_ms = now + CONFIRM_CHECK_MS
        waiting, self._unconfirmed = self._unconfirmed, []
        for read in waiting:
            hosted = self.find(read.key)
            if isinstance(hosted, ErrorCode):
                response = self.refused(read.request, hosted)
                self._turn.emit(Respond(read.requester.peer, read.requester.correlation, response))
            elif self._gate.led_at(hosted.replica, read.arrived_ms):
                hosted.shard.handle(read.requester, read.request, now)
                self._active[hosted] = None
            else:
                self._unconfirmed.append(read)

    def find(self, key: str) -> HostedShard[S] | ErrorCode:
        """Return the loaded shard of a key, or why it can't be used here."""
        topic = self._image.topics.get(self.topic)
        if topic is None or not self._gate.serving:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        return self._find(partition_for(key, topic.partition_count))

    def _find(self, partition: int) -> HostedShard[S] | ErrorCode:
        hosted = self.shards.get(partition)
        if hosted is None or not hosted.is_current or self._gate.leaving:
            return ErrorCode.NOT_COORDINATOR
        if hosted.replica in self._replicas.leadership_changed:
            return ErrorCode.NOT_COORDINATOR
        if not self._gate.serves(hosted.replica):
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        return hosted if hosted.loaded else ErrorCode.COORDINATOR_LOAD_IN_PROGRESS

    def complete_transaction(
        self, partition: int, marker: EndMarker, then: Callable[[ErrorCode], None]
    ) -> None:
        """Write the marker of a transaction into a shard's partition, after the appends before it.

        `then` gets the outcome: NONE when the marker is committed and the shard has applied it.
        """
        hosted = (
            self._find(partition) if self._gate.serving else ErrorCode.COORDINATOR_NOT_AVAILABLE
        )
        if isinstance(hosted, ErrorCode):
            then(hosted)
            return
        now_ms = self._turn.now_ms
        hosted.shard.complete_transaction(marker, lambda error, _now_ms: then(error), now_ms)
        self._active[hosted] = None

    def all_shards(self) -> list[S] | ErrorCode:
        """Return the shards of this broker, or an error unless all of them are loaded."""
        if not self._gate.serving:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if not all(hosted.loaded for hosted in self.shards.values()):
            return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        return [hosted.shard for hosted in self.shards.values()]

    # -- leadership ------------------------------------------------------------------------

    def load(self, replica: HostedReplica) -> None:
        """Create the shard of a partition that this broker leads, and begin to read its log."""
        shard = self.make_shard(replica.partition.leader_epoch)
        hosted = HostedShard(shard, replica, self._turn.now_ms)
        self.shards[replica.topic_partition.partition] = hosted
        self._active[hosted] = None

    def unload(self, replica: HostedReplica) -> None:
        """Drop the shard of a replica, if there is one. Fail the requests that wait for it."""
        hosted = self.shards.get(replica.topic_partition.partition)
        if hosted is None or hosted.replica is not replica:
            return
        del self.shards[replica.topic_partition.partition]
        hosted.unloaded = True
        self._active.pop(hosted, None)
        self._writer.forget(hosted)
        hosted.shard.unload(ErrorCode.NOT_COORDINATOR)
        self._carry_out(hosted)

    def topics_deleted(self, names: Set[str]) -> None:
        """Let every loaded shard know of deleted topics."""
        for hosted in self.shards.values():
            if hosted.loaded:
                self.on_topics_deleted(hosted.shard, names)
                self._active[hosted] = None

    # -- progress --------------------------------------------------------------------------

    @property
    def is_active(self) -> bool:
        """Whether `pump` has something to do."""
        return bool(self._active) or bool(self._writer.done)

    def pump(self) -> None:
        """Report outcomes of appends to shards; carry out effects; read logs of new shards."""
        self._postpone_if_suspended()
        for hosted, token, error in self._writer.take_done():
            if hosted.is_current:
                hosted.shard.written(token, error, self._turn.now_ms)
                self._active[hosted] = None
        active, self._active = self._active, {}
        room = SLICE_BYTES
        for hosted in active:
            if hosted.loaded:
                self._carry_out(hosted)
            elif room > 0:
                room -= hosted.read_slice()
                self._serve_if_committed(hosted)
        self._next_ms = self._soonest(active, self._next_ms)

    def _serve_if_committed(self, hosted: HostedShard[S]) -> None:
        """Begin to serve if everything in the log is read and committed."""
        if hosted.has_read_all and hosted.replica.partition.high_watermark >= hosted.target:
            hosted.loaded = True
            self.load_times.note(self._turn.now_ms, self._turn.now_ms - hosted.began_ms)
            hosted.shard.loaded(self._turn.now_ms)
            self.on_loaded(hosted.shard)
            self._carry_out(hosted)

    def _carry_out(self, hosted: HostedShard[S]) -> None:
        """Carry out a shard's effects in order. Responses that depend on an append follow with
        `written`."""
        appends: list[Append | AppendMarker] = []
        for effect in hosted.shard.take():
            if isinstance(effect, Answer):
                requester = effect.requester
                if isinstance(requester, LocalRequester):
                    requester.answered(effect.response)
                    continue
                assert isinstance(requester, Requester), "all requests come through serve"
                self._turn.emit(Respond(requester.peer, requester.correlation, effect.response))
            elif isinstance(effect, (Append, AppendMarker)):
                appends.append(effect)
            else:
                self.carry_out(hosted, effect)
        if appends:
            self._writer.write(hosted, appends)

    # -- the clock -------------------------------------------------------------------------

    def tick(self) -> None:
        """Time out appends, fire timers and continue loading, as far as they are due."""
        now = self._turn.now_ms
        self._postpone_if_suspended()
        passed_ms, self._clock_read_ms = now - self._clock_read_ms, now
        self._writer.expire()
        self._serve_confirmed()
        for hosted in self.shards.values():
            if hosted.loaded and self._gate.detached and not self._gate.serves(hosted.replica):
                # While members get COORDINATOR_NOT_AVAILABLE, they do not count as late.
                hosted.shard.postpone(passed_ms)
                continue
            due = hosted.shard.next_ms() if hosted.loaded else now
            if due is not None and due <= now:
                if hosted.loaded:
                    hosted.shard.tick(now)
                self._active[hosted] = None
        self._next_ms = self._soonest(self.shards.values(), None)

    def _postpone_if_suspended(self) -> None:
        """Postpone timers if this broker was suspended: requests of clients wait in its sockets,
        so the clients are not late."""
        late_ms = self._turn.now_ms - self._clock_read_ms
        if late_ms > SUSPENDED_MS:
            self._clock_read_ms = self._turn.now_ms
            for hosted in self.shards.values():
                hosted.shard.postpone(late_ms)
                self._active[hosted] = None

    def next_ms(self) -> int | None:
        """Return when `tick` has something to do."""
        soonest = self._writer.next_ms()
        if soonest is None or (self._next_ms is not None and self._next_ms < soonest):
            soonest = self._next_ms
        if self._unconfirmed and (soonest is None or self._confirm_check_ms < soonest):
            soonest = self._confirm_check_ms
        return soonest

    def _soonest(self, shards: Iterable[HostedShard[S]], soonest: int | None) -> int | None:
        """Return the earliest timer. A shard that still reads its log continues at once."""
        for hosted in shards:
            if hosted.loaded:
                due = hosted.shard.next_ms()
            else:
                due = self._turn.now_ms + (COMMIT_CHECK_MS if hosted.has_read_all else 0)
            if due is not None and (soonest is None or due < soonest):
                soonest = due
        return soonest
