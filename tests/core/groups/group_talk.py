"""A shard with a log that confirms writes at once, later or never, and helpers for requests."""

from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from tidelog.core.coordinator.shard import (
    Answer,
    Append,
    AppendMarker,
    EndMarker,
    TransactionalProducer,
)
from tidelog.core.errors import ErrorCode
from tidelog.core.groups import messages as on
from tidelog.core.groups.config import GroupConfig
from tidelog.core.groups.shard import GroupShard
from tidelog.core.types import TopicPartition
from tidelog.core.wall_clock import WallClock

GROUP = "orders"
EVENTS = ("events", 0)
OTHER = ("other", 3)
SESSION_MS = 10_000
REBALANCE_MS = 30_000
CONFIG = GroupConfig(group_initial_rebalance_delay_ms=0)
T = TypeVar("T")


def subscription(*topics: str, version: int = 1) -> bytes:
    """The metadata of a consumer."""
    raw = [one.encode() for one in topics]
    names = b"".join(len(one).to_bytes(2, "big") + one for one in raw)
    return version.to_bytes(2, "big") + len(topics).to_bytes(4, "big") + names + bytes(8)


RANGE = [("range", subscription("events"))]


class Talk:
    """A dialogue with a shard. Time passes only with `pass_ms`."""

    def __init__(self, config: GroupConfig = CONFIG) -> None:
        self.config = config
        self.now = 1_000_000
        self.wall = WallClock(hold_ms=86_400_000)
        self.shard = GroupShard(config, self.now, self.wall)
        self.answers: dict[object, on.Response] = {}
        self.log: list[tuple[bytes, bytes | None]] = []
        self.producers: dict[int, TransactionalProducer] = {}
        """The producers of the records of transactions, by index in the log."""
        self.markers: list[tuple[int, EndMarker]] = []
        """The markers of transactions, and how many records are before each."""
        self.unwritten: list[Append | AppendMarker] = []
        self.completions: dict[int, ErrorCode] = {}
        """The outcomes of `end_transaction`."""
        self.holds = False
        """Whether appends wait until `write` is called."""
        self._asked = 0

    # -- time and the log -----------------------------------------------------------------

    def settle(self) -> None:
        while effects := self.shard.take():
            for effect in effects:
                if isinstance(effect, Answer):
                    assert effect.requester not in self.answers, "answered twice"
                    self.answers[effect.requester] = effect.response
                elif self.holds:
                    self.unwritten.append(effect)
                else:
                    self._written(effect, ErrorCode.NONE)

    def write(self, error: ErrorCode = ErrorCode.NONE) -> None:
        """Commit the oldest waiting append, or fail it."""
        self._written(self.unwritten.pop(0), error)
        self.settle()

    def store(self, append: Append | AppendMarker) -> None:
        """Add an append to the log."""
        if isinstance(append, AppendMarker):
            self.markers.append((len(self.log), append.marker))
            return
        if append.producer is not None:
            indexes = range(len(self.log), len(self.log) + len(append.records))
            self.producers.update(dict.fromkeys(indexes, append.producer))
        self.log += append.records

    def entries(self) -> Iterator[tuple[bytes, bytes | None, int | None] | EndMarker]:
        """The contents of the log: records, with their producers if they are of a transaction,
        and markers."""
        markers = iter([*self.markers, (len(self.log) + 1, None)])
        at, marker = next(markers)
        for index in range(len(self.log) + 1):
            while at == index and marker is not None:
                yield marker
                at, marker = next(markers)
            if index < len(self.log):
                producer = self.producers.get(index)
                yield (*self.log[index], None if producer is None else producer.id)

    def _written(self, append: Append | AppendMarker, error: ErrorCode) -> None:
        if error is ErrorCode.NONE:
            self.store(append)
        self.shard.written(append.token, error, self.now)

    def pass_ms(self, ms: int) -> None:
        """Let time pass; timers fire at their time."""
        until = self.now + ms
        while (due := self.shard.next_ms()) is not None and due <= until:
            self.now = max(self.now, due)
            self.shard.tick(self.now)
            self.settle()
        self.now = until

    def reload(self) -> "Talk":
        """Load another coordinator from the same log."""
        other = Talk(self.config)
        other.now = self.now
        for entry in self.entries():
            if isinstance(entry, EndMarker):
                other.shard.replay_marker(*entry.producer, committed=entry.committed)
                continue
            key, value, producer_id = entry
            if producer_id is None:
                other.shard.replay(key, value)
            else:
                other.shard.replay_transactional(producer_id, 0, key, value)
        other.shard.loaded(self.now)
        other.log = list(self.log)
        other.producers = dict(self.producers)
        other.markers = list(self.markers)
        other.settle()
        return other

    # -- requests -------------------------------------------------------------------------

    def ask(self, request: on.Request) -> int:
        self._asked += 1
        self.shard.handle(self._asked, request, self.now)
        self.settle()
        return self._asked

    def answer(self, requester: int, kind: type[T]) -> T:
        response = self.answers[requester]
        assert isinstance(response, kind)
        return response

    def get(self, request: on.Request, kind: type[T]) -> T:
        """Send a request that is answered at once."""
        return self.answer(self.ask(request), kind)

    def joining(self, member: str = "", **fields: Any) -> int:
        """Join; the response may arrive later."""
        options: dict[str, Any] = {
            "group_id": GROUP,
            "session_timeout_ms": SESSION_MS,
            "rebalance_timeout_ms": REBALANCE_MS,
            "member_id": member,
            "group_instance_id": None,
            "protocol_type": on.CONSUMER,
            "protocols": RANGE,
            "client_id": "app",
            "client_host": "/127.0.0.1",
            "fresh_id": f"id{self._asked + 1}",
            "version": 3,
        }
        return self.ask(on.JoinGroup(**(options | fields)))

    def joined(self, requester: int) -> on.JoinGroupResponse:
        return self.answer(requester, on.JoinGroupResponse)

    def join(self, member: str = "", **fields: Any) -> on.JoinGroupResponse:
        return self.joined(self.joining(member, **fields))

    def syncing(
        self,
        member: str,
        generation: int,
        assignments: dict[str, bytes] | None = None,
        **fields: Any,
    ) -> int:
        options: dict[str, Any] = {
            "group_id": GROUP,
            "generation_id": generation,
            "member_id": member,
            "group_instance_id": None,
            "protocol_type": None,
            "protocol_name": None,
            "assignments": list((assignments or {}).items()),
        }
        return self.ask(on.SyncGroup(**(options | fields)))

    def synced(self, requester: int) -> on.SyncGroupResponse:
        return self.answer(requester, on.SyncGroupResponse)

    def sync(
        self,
        member: str,
        generation: int,
        assignments: dict[str, bytes] | None = None,
        **fields: Any,
    ) -> on.SyncGroupResponse:
        return self.synced(self.syncing(member, generation, assignments, **fields))

    def beat(self, member: str, generation: int, instance: str | None = None) -> ErrorCode:
        request = on.Heartbeat(GROUP, generation, member, instance)
        return self.get(request, on.HeartbeatResponse).error_code

    def leave(self, *members: str | on.LeavingMember) -> list[ErrorCode]:
        leaving = [on.LeavingMember(one) if isinstance(one, str) else one for one in members]
        response = self.get(on.LeaveGroup(GROUP, leaving), on.LeaveGroupResponse)
        assert response.error_code is ErrorCode.NONE
        return [one.error_code for one in response.members]

    def committing(
        self,
        offset: int,
        member: str = "",
        generation: int = -1,
        partition: tuple[str, int] = EVENTS,
        **fields: Any,
    ) -> int:
        options: dict[str, Any] = {
            "group_id": GROUP,
            "generation_id": generation,
            "member_id": member,
            "group_instance_id": None,
            "offsets": [on.OffsetToCommit(*partition, offset)],
        }
        return self.ask(on.OffsetCommit(**(options | fields)))

    def commit(self, offset: int, *args: Any, **fields: Any) -> ErrorCode:
        requester = self.committing(offset, *args, **fields)
        return self.commit_error(requester)

    def commit_error(self, requester: int) -> ErrorCode:
        (error,) = {
            one.error_code for one in self.answer(requester, on.OffsetCommitResponse).partitions
        }
        return error

    def committing_in_transaction(
        self,
        offset: int,
        producer_id: int = 1,
        member: str = "",
        generation: int = -1,
        partition: tuple[str, int] = EVENTS,
        **fields: Any,
    ) -> int:
        options: dict[str, Any] = {
            "transactional_id": f"t{producer_id}",
            "group_id": GROUP,
            "producer_id": producer_id,
            "producer_epoch": 0,
            "generation_id": generation,
            "member_id": member,
            "group_instance_id": None,
            "offsets": [on.OffsetToCommit(*partition, offset)],
        }
        return self.ask(on.TxnOffsetCommit(**(options | fields)))

    def commit_in_transaction(self, offset: int, *args: Any, **fields: Any) -> ErrorCode:
        requester = self.committing_in_transaction(offset, *args, **fields)
        return self.txn_commit_error(requester)

    def txn_commit_error(self, requester: int) -> ErrorCode:
        (error,) = {
            one.error_code for one in self.answer(requester, on.TxnOffsetCommitResponse).partitions
        }
        return error

    def end_transaction(self, producer_id: int = 1, *, committed: bool) -> int:
        """Write a marker. Its outcome is in `completions`, under the returned number."""
        self._asked += 1
        number = self._asked
        marker = EndMarker(TransactionalProducer(producer_id, 0), committed, 0)

        def written(error: ErrorCode, _now_ms: int) -> None:
            assert number not in self.completions, "completed twice"
            self.completions[number] = error

        self.shard.complete_transaction(marker, written, self.now)
        self.settle()
        return number

    def stable_fetch(self, *partitions: tuple[str, int]) -> dict[tuple[str, int], int | ErrorCode]:
        """Return committed offsets, or errors, with `require_stable`."""
        wanted = [TopicPartition(*one) for one in partitions]
        response = self.get(on.OffsetFetch(GROUP, wanted, True), on.OffsetFetchResponse)
        return {
            (one.topic, one.partition): one.error_code or one.committed_offset
            for one in response.partitions
        }

    def fetch(
        self, *partitions: tuple[str, int], stable: bool = False
    ) -> dict[tuple[str, int], int]:
        """Return committed offsets by partition; all, if none is named."""
        wanted = [TopicPartition(*one) for one in partitions] or None
        request = on.OffsetFetch(GROUP, wanted, stable)
        found = self.get(request, on.OffsetFetchResponse).partitions
        return {(one.topic, one.partition): one.committed_offset for one in found}

    def describe(self, version: int = 5) -> on.DescribeGroupResponse:
        return self.get(on.DescribeGroup(GROUP, version), on.DescribeGroupResponse)

    @property
    def state(self) -> str:
        return self.describe().group_state

    def delete(self) -> ErrorCode:
        return self.get(on.DeleteGroup(GROUP), on.DeleteGroupResponse).error_code

    # -- whole groups ---------------------------------------------------------------------

    def stable(self, count: int = 1, **fields: Any) -> tuple[int, list[str]]:
        """Return the generation and the member ids of a new stable group, the leader first.

        Each member is assigned its own id.
        """
        members = [self.join(**fields).member_id]
        for _ in range(count - 1):
            requester = self.joining(**fields)
            again = [self.joining(one, **fields) for one in members]
            members.append(self.joined(requester).member_id)
            assert all(self.joined(one).error_code is ErrorCode.NONE for one in again)
        generation = self.spread(members)
        return generation, members

    def spread(self, members: list[str]) -> int:
        """Let the leader assign and all members sync."""
        generation = self._generation()
        mine = {one: one.encode() for one in members}
        requesters = [self.syncing(one, generation) for one in members[1:]]
        requesters.append(self.syncing(members[0], generation, mine))
        for requester in requesters:
            assert self.synced(requester).error_code is ErrorCode.NONE
        assert self.state == "Stable"
        return generation

    def _generation(self) -> int:
        told = [one for one in self.answers.values() if isinstance(one, on.JoinGroupResponse)]
        return max(one.generation_id for one in told)


def static(instance: str, talk: Talk) -> Callable[..., on.JoinGroupResponse]:
    """Return a function that joins with this instance id."""

    def join(member: str = "", **fields: Any) -> on.JoinGroupResponse:
        return talk.join(member, group_instance_id=instance, **fields)

    return join
