"""Runs the shards of one coordinator on the leaders of an internal topic's partitions.

Each key (a group id, for instance) belongs to one partition of the topic. Its state is in that
partition's log. The shard (core/coordinator/shard.py) decides what to write and answers once it
is committed. When the leader moves, the coordinator moves: requests that wait here fail with
NOT_COORDINATOR, and the new leader reads the log.

Kafka 4 divides the work in the same way: CoordinatorRuntime, CoordinatorShard, CoordinatorLoader,
PartitionWriter.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Set
from typing import Any, ClassVar, Generic, NamedTuple

from tidelog.core.coordinator.lookup import partition_for
from tidelog.core.coordinator.outbox import Answer, Append
from tidelog.core.errors import ErrorCode
from tidelog.core.node.coordinating.coordinator_host import CoordinatorHost
from tidelog.core.node.coordinating.hosted_shard import SLICE_BYTES, HostedShard, S
from tidelog.core.node.coordinating.shard_writer import ShardWriter
from tidelog.core.node.effects import Respond
from tidelog.core.node.events import Peer, RequestHandler
from tidelog.core.node.hosting.hosted_replica import HostedReplica
from tidelog.core.types import LeaderEpoch

COMMIT_CHECK_MS = 10
"""How often a shard that has read its log checks whether it is committed."""
SUSPENDED_MS = 2_000
"""The clock is read several times a second. If more time passes between two readings, the process
was stopped, the machine slept or the clock was set."""


class Requester(NamedTuple):
    """Where to send a response."""

    peer: Peer
    correlation: int


class CoordinatorRuntime(ABC, Generic[S]):
    """The shards of the partitions that this broker leads."""

    topic: ClassVar[str]
    """The internal topic."""

    def __init__(self, host: CoordinatorHost, write_timeout_ms: int) -> None:
        self.shards: dict[int, HostedShard[S]] = {}
        """The shards of this broker, by partition."""
        self._turn = host.turn
        self._image = host.image
        self._replicas = host.replicas
        self._gate = host.gate
        self._writer = ShardWriter(write_timeout_ms, host.turn, host.replicas, host.wake_resting)
        self._active: dict[HostedShard[S], None] = {}
        """Shards with effects to carry out, or with a log to read."""
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
        hosted.shard.handle(Requester(peer, correlation), request, self._turn.now_ms)
        self._active[hosted] = None

    def find(self, key: str) -> HostedShard[S] | ErrorCode:
        """Return the loaded shard of a key, or why it can't be used here."""
        topic = self._image.topics.get(self.topic)
        if topic is None or not self._gate.acting:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        hosted = self.shards.get(partition_for(key, topic.partition_count))
        if hosted is None or not hosted.is_current or self._gate.leaving:
            return ErrorCode.NOT_COORDINATOR
        if hosted.replica in self._replicas.leadership_changed:
            return ErrorCode.NOT_COORDINATOR
        return hosted if hosted.loaded else ErrorCode.COORDINATOR_LOAD_IN_PROGRESS

    def all_shards(self) -> list[S] | ErrorCode:
        """Return the shards of this broker, or an error unless all of them are loaded."""
        if not self._gate.acting:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if not all(hosted.loaded for hosted in self.shards.values()):
            return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        return [hosted.shard for hosted in self.shards.values()]

    # -- leadership ------------------------------------------------------------------------

    def load(self, replica: HostedReplica) -> None:
        """Create the shard of a partition that this broker leads, and begin to read its log."""
        shard = self.make_shard(replica.partition.leader_epoch)
        hosted = HostedShard(shard, replica)
        self.shards[replica.topic_partition.partition] = hosted
        self._active[hosted] = None

    def unload(self, replica: HostedReplica) -> None:
        """Drop the shard of a replica, if there is one. Fail the requests that wait for it."""
        hosted = self.shards.get(replica.topic_partition.partition)
        if hosted is None or hosted.replica is not replica:
            return
        del self.shards[replica.topic_partition.partition]
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
            hosted.shard.loaded(self._turn.now_ms)
            self.on_loaded(hosted.shard)
            self._carry_out(hosted)

    def _carry_out(self, hosted: HostedShard[S]) -> None:
        """Carry out a shard's effects in order. Its appends share one batch; responses that
        depend on it follow with `written`."""
        appends: list[Append] = []
        for effect in hosted.shard.take():
            if isinstance(effect, Answer):
                requester = effect.requester
                assert isinstance(requester, Requester), "all requests come through serve"
                self._turn.emit(Respond(requester.peer, requester.correlation, effect.response))
            elif isinstance(effect, Append):
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
        self._clock_read_ms = now
        self._writer.expire()
        for hosted in self.shards.values():
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
        writer = self._writer.next_ms()
        if self._next_ms is None or (writer is not None and writer < self._next_ms):
            return writer
        return self._next_ms

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
