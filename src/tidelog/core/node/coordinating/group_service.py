"""The group coordinator: requests about groups, served by whoever leads their partition.

A group belongs to one partition of `__consumer_offsets` (groups/partitioning.py). Its state is
in that partition's log; the state machine (groups/shard.py) says what to write and answers
once it is committed. When the leader moves, so does the coordinator: whoever waits here is
told to ask elsewhere, and the new leader reads the log.
"""

from collections.abc import Iterable
from typing import NamedTuple

from tidelog.core.controller.metadata.cluster_image import ClusterImage
from tidelog.core.errors import ErrorCode
from tidelog.core.groups.membership.member_memory import MemberMemory
from tidelog.core.groups.messages import (
    Answer,
    Append,
    FindCoordinator,
    FindCoordinatorResponse,
    ListedGroup,
    ListGroups,
    ListGroupsResponse,
    Request,
)
from tidelog.core.groups.partitioning import OFFSETS_TOPIC, partition_for
from tidelog.core.groups.refusals import refused
from tidelog.core.groups.shard import GroupShard
from tidelog.core.node.config import NodeConfig
from tidelog.core.node.coordinating.hosted_shard import SLICE_BYTES, HostedShard
from tidelog.core.node.coordinating.shard_writer import ShardWriter
from tidelog.core.node.effects import Respond
from tidelog.core.node.events import Peer
from tidelog.core.node.membership.registration import CLIENT_LISTENER
from tidelog.core.node.replicas import Replicas
from tidelog.core.node.serving.gate import Gate
from tidelog.core.node.turn import Turn
from tidelog.core.types import TopicId, TopicPartition

LOOK_AGAIN_MS = 10
"""Until what was read is committed."""
HELD_UP_MS = 2_000
"""Between two looks at the clock, of which there are some in a second. If more time went by, the
process was stopped, the machine slept or the clock was set."""


class Asker(NamedTuple):
    """Who is to be answered."""

    peer: Peer
    correlation: int


class GroupService:
    """The shards of the partitions that this broker leads."""

    def __init__(
        self,
        config: NodeConfig,
        turn: Turn,
        image: ClusterImage,
        replicas: Replicas,
        gate: Gate,
        writer: ShardWriter,
    ) -> None:
        self.shards: dict[int, HostedShard] = {}
        self._config = config.groups
        self._turn = turn
        self._image = image
        self._replicas = replicas
        self._gate = gate
        self._writer = writer
        self._memory = MemberMemory()
        self._stirred: dict[HostedShard, None] = {}
        """Shards with something to say, or to read."""
        self._next_ms: int | None = None
        """No shard has anything due before; to know it exactly, all would have to be asked."""
        self._awake_ms = turn.now_ms

    # -- requests --------------------------------------------------------------------------

    def serve(self, peer: Peer, correlation: int, request: Request | FindCoordinator) -> None:
        """Any request about groups."""
        if isinstance(request, FindCoordinator):
            self._turn.emit(Respond(peer, correlation, self._coordinator_of(request.key)))
            return
        if isinstance(request, ListGroups):
            self._turn.emit(Respond(peer, correlation, self._list(request)))
            return
        hosted = self._find(request.group_id)
        if isinstance(hosted, ErrorCode):
            self._turn.emit(Respond(peer, correlation, refused(request, hosted)))
            return
        self._excuse_if_held_up()
        hosted.shard.handle(Asker(peer, correlation), request, self._turn.now_ms)
        self._stirred[hosted] = None

    def _find(self, group_id: str) -> HostedShard | ErrorCode:
        topic = self._image.topics.get(OFFSETS_TOPIC)
        if topic is None or not self._gate.acting:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        hosted = self.shards.get(partition_for(group_id, topic.partition_count))
        if hosted is None or not hosted.is_current or self._gate.leaving:
            return ErrorCode.NOT_COORDINATOR
        return hosted if hosted.loaded else ErrorCode.COORDINATOR_LOAD_IN_PROGRESS

    def _coordinator_of(self, group_id: str) -> FindCoordinatorResponse:
        """Whoever leads the group's partition; any broker can tell."""
        topic = self._image.topics.get(OFFSETS_TOPIC)
        if topic is None:
            return _nobody(f"{OFFSETS_TOPIC} is being made; ask again.")
        index = partition_for(group_id, topic.partition_count)
        known = self._image.partition(OFFSETS_TOPIC, index)
        leader = (
            self._image.brokers.get(known.leader) if known and known.leader is not None else None
        )
        for listener, host, port in leader.endpoints if leader and not leader.fenced else ():
            if leader is not None and listener == CLIENT_LISTENER:
                return FindCoordinatorResponse(ErrorCode.NONE, leader.id, host, port)
        return _nobody(f"{OFFSETS_TOPIC}-{index} has no leader; ask again.")

    def _list(self, request: ListGroups) -> ListGroupsResponse:
        """All groups of this broker; an error if it does not know all of them yet."""
        if not self._gate.acting:
            return ListGroupsResponse(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        found: list[ListedGroup] = []
        for hosted in self.shards.values():
            if not hosted.loaded:
                return ListGroupsResponse(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
            found += hosted.shard.list_groups(request)
        return ListGroupsResponse(ErrorCode.NONE, tuple(found))

    # -- the shards come and go --------------------------------------------------------------

    def reconsider(self) -> None:
        """Have a shard for each partition that is led here, and no other."""
        topic = self._image.topics.get(OFFSETS_TOPIC)
        if topic is None and not self.shards:
            return
        for index, hosted in list(self.shards.items()):
            name = hosted.replica.topic_partition
            still = self._replicas.hosted.get(name) is hosted.replica
            if not self._gate.acting or not still or not hosted.is_current:
                self._unload(index)
        if topic is None or not self._gate.acting:
            return
        for index in range(topic.partition_count):
            replica = self._replicas.hosted.get(TopicPartition(OFFSETS_TOPIC, index))
            if replica is not None and index not in self.shards and replica.partition.is_leader:
                turn = self._turn
                shard = GroupShard(self._config, turn.now_ms, turn.wall, self._memory)
                self.shards[index] = hosted = HostedShard(shard, replica)
                self._stirred[hosted] = None

    def image_advanced(self, deleted_topics: set[str]) -> None:
        """Leaders may have moved; offsets of deleted topics go."""
        self.reconsider()
        if deleted_topics:
            self._topics_deleted(deleted_topics)

    def _topics_deleted(self, names: set[str]) -> None:
        for hosted in self.shards.values():
            if hosted.loaded:
                hosted.shard.topic_deleted(sorted(names), self._turn.now_ms, self._id_of)
                self._stirred[hosted] = None

    def _unload(self, index: int) -> None:
        hosted = self.shards.pop(index)
        self._stirred.pop(hosted, None)
        self._writer.forget(hosted)
        hosted.shard.unload(ErrorCode.NOT_COORDINATOR)
        self._carry_out(hosted)

    # -- going on ----------------------------------------------------------------------------

    @property
    def is_stirred(self) -> bool:
        """Whether `pump` has something to do."""
        return bool(self._stirred) or bool(self._writer.done)

    def pump(self) -> None:
        """Tell shards what was written; carry out what they ask for; read on."""
        self._excuse_if_held_up()
        for hosted, token, error in self._writer.take_done():
            if hosted.is_current:
                hosted.shard.written(token, error, self._turn.now_ms)
                self._stirred[hosted] = None
        stirred, self._stirred = self._stirred, {}
        room = SLICE_BYTES
        for hosted in stirred:
            if hosted.loaded:
                self._carry_out(hosted)
            elif room > 0:
                room -= hosted.read_on()
                self._open(hosted)
        self._next_ms = self._soonest(stirred, self._next_ms)

    def _open(self, hosted: HostedShard) -> None:
        """Serve its groups, once all that was read is committed."""
        if hosted.has_read_all and hosted.replica.partition.high_watermark >= hosted.target:
            hosted.loaded = True
            now = self._turn.now_ms
            hosted.shard.loaded(now)
            hosted.shard.forget_old_topics(self._id_of, now)
            self._carry_out(hosted)

    def _id_of(self, topic: str) -> TopicId | None:
        known = self._image.topics.get(topic)
        return None if known is None else known.topic_id

    def _carry_out(self, hosted: HostedShard) -> None:
        """In order; all that is to be written goes into one batch, and answers that wait for
        it come with `written`."""
        appends: list[Append] = []
        for effect in hosted.shard.take():
            if isinstance(effect, Answer):
                asker = effect.asker
                assert isinstance(asker, Asker), "whoever asks comes through serve"
                self._turn.emit(Respond(asker.peer, asker.correlation, effect.response))
            else:
                appends.append(effect)
        if appends:
            self._writer.write(hosted, appends)

    # -- the clock ---------------------------------------------------------------------------

    def tick(self) -> None:
        now = self._turn.now_ms
        self._excuse_if_held_up()
        self._awake_ms = now
        self._writer.expire()
        for hosted in self.shards.values():
            due = hosted.shard.next_ms() if hosted.loaded else now
            if due is not None and due <= now:
                if hosted.loaded:
                    hosted.shard.tick(now)
                self._stirred[hosted] = None
        self._next_ms = self._soonest(self.shards.values(), None)

    def _excuse_if_held_up(self) -> None:
        """Members are not late if it was this broker that did not listen: what they said waits
        in its sockets."""
        late_ms = self._turn.now_ms - self._awake_ms
        if late_ms > HELD_UP_MS:
            self._awake_ms = self._turn.now_ms
            for hosted in self.shards.values():
                hosted.shard.postpone(late_ms)
                self._stirred[hosted] = None

    def next_ms(self) -> int | None:
        """When `tick` has something to do."""
        writer = self._writer.next_ms()
        if self._next_ms is None or (writer is not None and writer < self._next_ms):
            return writer
        return self._next_ms

    def _soonest(self, shards: Iterable[HostedShard], soonest: int | None) -> int | None:
        """A shard that still reads goes on at once; one that waits to be committed, soon."""
        for hosted in shards:
            if hosted.loaded:
                due = hosted.shard.next_ms()
            else:
                due = self._turn.now_ms + (LOOK_AGAIN_MS if hosted.has_read_all else 0)
            if due is not None and (soonest is None or due < soonest):
                soonest = due
        return soonest


def _nobody(why: str) -> FindCoordinatorResponse:
    return FindCoordinatorResponse(ErrorCode.COORDINATOR_NOT_AVAILABLE, error_message=why)
