"""OffsetCommit, TxnOffsetCommit, OffsetFetch and OffsetDelete; offsets that expire or whose topics
are deleted.

Invariants: an offset is committed or deleted when its record is committed, not before. An offset of
a transaction is committed when the transaction's marker is. A group without members, offsets and
open transactions is removed.
"""

from collections.abc import Collection, Iterator
from functools import partial

from tidelog.core.coordinator.shard import (
    OnWritten,
    Outbox,
    TransactionalProducer,
    is_in_doubt,
)
from tidelog.core.errors import ErrorCode
from tidelog.core.groups.config import GroupConfig
from tidelog.core.groups.membership.group import Group, GroupState
from tidelog.core.groups.membership.rebalance import Rebalance
from tidelog.core.groups.messages import (
    CONSUMER,
    NO_MEMBER,
    NO_OFFSET,
    FetchedOffset,
    OffsetCommit,
    OffsetCommitResponse,
    OffsetDelete,
    OffsetDeleteResponse,
    OffsetFetch,
    OffsetToCommit,
    PartitionError,
    TxnOffsetCommit,
    TxnOffsetCommitResponse,
    error_of_offset_append,
    error_of_txn_offset_commit,
    refused,
)
from tidelog.core.groups.records import (
    GroupKey,
    OffsetValue,
    encode_key,
    encode_offset_value,
    offset_keys,
)
from tidelog.core.types import TopicPartition
from tidelog.core.wall_clock import WallClock

_TIMESTAMP_MAX = (1 << 63) - 1
_TOMBSTONE_BYTES_MAX = 128 * 1024
"""Tombstones in one append. A group may have more offsets than fit into a batch."""
_TOMBSTONE_OVERHEAD = 16


class Committing:
    """Commits, returns and deletes the offsets of all groups of a shard."""

    def __init__(
        self,
        config: GroupConfig,
        outbox: Outbox,
        rebalance: Rebalance,
        groups: dict[str, Group],
        wall: WallClock,
    ) -> None:
        self._wall = wall
        self._config = config
        self._outbox = outbox
        self._rebalance = rebalance
        self._groups = groups
        self._open: dict[int, dict[str, None]] = {}
        """The groups with offsets in a producer's open transaction, by producer id."""

    # -- OffsetCommit ---------------------------------------------------------------------

    def commit(self, group: Group, requester: object, request: OffsetCommit, now_ms: int) -> None:
        error = _check_commit(group, request)
        if error is ErrorCode.NONE and group.state is not GroupState.EMPTY:
            if group.state is GroupState.COMPLETING_REBALANCE:
                error = ErrorCode.REBALANCE_IN_PROGRESS
            else:
                member = group.members[request.member_id]
                self._rebalance.keep_alive(group, member, now_ms)
        if error is not ErrorCode.NONE:
            self._outbox.answer(requester, refused(request, error))
            return
        fitting = [one for one in request.offsets if self._fits(one)]
        if fitting:
            self._store(group, requester, request, fitting, now_ms)
        else:
            self._outbox.answer(requester, self._commit_response(request, ErrorCode.NONE))

    def _store(
        self,
        group: Group,
        requester: object,
        request: OffsetCommit,
        fitting: list[OffsetToCommit],
        now_ms: int,
    ) -> None:
        committed_ms = self._wall.latest_ms(now_ms)
        expires = None
        if request.retention_time_ms is not None:
            expires = min(committed_ms + request.retention_time_ms, _TIMESTAMP_MAX)
        values = _values(fitting, committed_ms, expires)
        token = self._outbox.next_token

        def written(error: ErrorCode, _now_ms: int) -> None:
            group.offsets.end(values, token, in_doubt=is_in_doubt(error))
            if error is ErrorCode.NONE:
                for (topic, partition), value in values.items():
                    group.offsets.put(topic, partition, value)
            self.drop_if_unused(group)
            self._outbox.answer(
                requester, self._commit_response(request, error_of_offset_append(error))
            )

        group.offsets.begin(values, token)
        self._outbox.append(_records(group, values), written)

    # -- TxnOffsetCommit ------------------------------------------------------------------

    def commit_in_transaction(
        self, group: Group, requester: object, request: TxnOffsetCommit, now_ms: int
    ) -> None:
        """Add offsets to a producer's transaction, which was verified before."""
        error = _check_txn_commit(group, request)
        if error is not ErrorCode.NONE:
            self._outbox.answer(requester, refused(request, error))
            return
        fitting = [one for one in request.offsets if self._fits(one)]
        if not fitting:
            self._outbox.answer(requester, self._txn_commit_response(request, ErrorCode.NONE))
            return
        values = _values(fitting, self._wall.latest_ms(now_ms), None)
        token = self._outbox.next_token

        def written(error: ErrorCode, _now_ms: int) -> None:
            group.offsets.end(values, token)
            if error is ErrorCode.NONE or is_in_doubt(error):
                # If the outcome is unknown, the offsets may be in the log. The marker comes after
                # them, so they are committed when it is.
                for partition, value in values.items():
                    self.put_in_transaction(group, request.producer_id, partition, value)
            self.drop_if_unused(group)
            error = error_of_txn_offset_commit(error, request.version)
            self._outbox.answer(requester, self._txn_commit_response(request, error))

        group.offsets.begin(values, token)
        producer = TransactionalProducer(request.producer_id, request.producer_epoch)
        self._outbox.append(_records(group, values), written, producer)

    def put_in_transaction(
        self, group: Group, producer_id: int, partition: TopicPartition, value: OffsetValue
    ) -> None:
        """Add an offset that is in the log to a transaction."""
        group.offsets.put_in_transaction(producer_id, partition, value)
        self._open.setdefault(producer_id, {})[group.group_id] = None

    def end_transaction(self, producer_id: int, *, committed: bool) -> None:
        """Apply a marker: commit or drop the offsets of a producer's transaction."""
        for group_id in self._open.pop(producer_id, ()):
            group = self._groups.get(group_id)
            if group is not None:
                group.offsets.end_transaction(producer_id, committed=committed)
                self.drop_if_unused(group)

    def _txn_commit_response(
        self, request: TxnOffsetCommit, error: ErrorCode
    ) -> TxnOffsetCommitResponse:
        return TxnOffsetCommitResponse(self._results(request.offsets, error))

    def _fits(self, offset: OffsetToCommit) -> bool:
        return len(offset.committed_metadata) <= self._config.offset_metadata_max_bytes

    def _commit_response(self, request: OffsetCommit, error: ErrorCode) -> OffsetCommitResponse:
        return OffsetCommitResponse(self._results(request.offsets, error))

    def _results(
        self, offsets: list[OffsetToCommit], error: ErrorCode
    ) -> tuple[PartitionError, ...]:
        too_large = ErrorCode.OFFSET_METADATA_TOO_LARGE
        return tuple(
            PartitionError(one.topic, one.partition, error if self._fits(one) else too_large)
            for one in offsets
        )

    # -- OffsetFetch ----------------------------------------------------------------------

    def fetch(self, group: Group | None, request: OffsetFetch) -> tuple[FetchedOffset, ...]:
        """Return committed offsets. An unknown group has none; that is not an error."""
        wanted = request.partitions
        if group is None:
            return tuple(_no_offset(one, ErrorCode.NONE) for one in wanted or ())
        return tuple(
            _no_offset(one, ErrorCode.UNSTABLE_OFFSET_COMMIT)
            if request.require_stable and group.offsets.is_pending(one)
            else _fetched(group, one)
            for one in (group.offsets if wanted is None else wanted)
        )

    # -- deletion -------------------------------------------------------------------------

    def delete(self, group: Group, requester: object, request: OffsetDelete, now_ms: int) -> None:
        """Delete offsets; of a group with members, only for topics that no member subscribes to."""
        if group.state is GroupState.DEAD:
            error = ErrorCode.GROUP_ID_NOT_FOUND
            self._outbox.answer(requester, OffsetDeleteResponse(error))
            return
        if group.state is not GroupState.EMPTY and group.protocol_type != CONSUMER:
            self._outbox.answer(requester, OffsetDeleteResponse(ErrorCode.NON_EMPTY_GROUP))
            return
        in_use = {one for one in request.partitions if _is_subscribed(group, one.topic)}
        results = tuple(
            PartitionError(
                *one, ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if one in in_use else ErrorCode.NONE
            )
            for one in request.partitions
        )

        def written(error: ErrorCode, _now_ms: int) -> None:
            error = error_of_offset_append(error)
            done = results if error is ErrorCode.NONE else ()
            self._outbox.answer(requester, OffsetDeleteResponse(error, done))

        removed = group.offsets.known_of(one for one in request.partitions if one not in in_use)
        if removed:
            self._remove(group, removed, written, now_ms)
        else:
            written(ErrorCode.NONE, now_ms)

    def forget(self, group: Group, removed: list[TopicPartition], now_ms: int) -> None:
        """Delete offsets of deleted topics."""
        if removed and group.state is not GroupState.DEAD:
            self._remove(group, removed, _ignore_outcome, now_ms)

    def delete_all(self, group: Group, on_written: OnWritten, now_ms: int) -> None:
        """Delete an Empty group and its offsets."""
        self._remove(group, group.offsets.all_known(), on_written, now_ms)

    def expire(self, group: Group, now_ms: int) -> None:
        """Delete expired offsets, and the group with its last offset."""
        removed = self._expired(group, self._wall.earliest_ms(now_ms))
        useless = group.state is GroupState.EMPTY and group.offsets.is_empty
        if (removed or useless) and not group.pending_members:
            self._remove(group, removed, _ignore_outcome, now_ms)

    def _expired(self, group: Group, wall_ms: int) -> list[TopicPartition]:
        """Return the offsets whose retention time is over.

        For a group without members it runs from when the group became Empty. It runs from the
        commit for topics that no live consumer subscribes to, and for a group that never had
        members.
        """
        retention_ms = self._config.offsets_retention_ms
        kept: Collection[str] = ()
        since_ms = None
        if group.protocol_type is not None:
            if group.state is GroupState.EMPTY:
                since_ms = group.state_since_ms
            elif group.state is GroupState.STABLE and group.subscribed_topics is not None:
                kept = group.subscribed_topics
            else:
                return []
        elif group.state is GroupState.DEAD:
            return []
        if since_ms is None:
            return group.offsets.expired(wall_ms, _committed_at, retention_ms, kept)
        return group.offsets.expired(wall_ms, lambda _value: since_ms, retention_ms, kept)

    def _remove(
        self, group: Group, removed: list[TopicPartition], on_written: OnWritten, now_ms: int
    ) -> None:
        """Write tombstones. An Empty group is removed with its last offset; until that is
        committed it is Dead, and refuses joins and commits."""
        dies = group.state is GroupState.EMPTY and group.offsets.are_all(removed)
        if dies:
            group.state = GroupState.DEAD
        left = 1
        failed = ErrorCode.NONE

        def written(some: list[TopicPartition], error: ErrorCode, now_ms: int) -> None:
            nonlocal left, failed
            left -= 1
            if error is ErrorCode.NONE or is_in_doubt(error):
                group.offsets.remove(some)
            if failed is ErrorCode.NONE:
                failed = error
            if left:
                return
            if dies and failed is ErrorCode.NONE:
                self._forget(group)
            else:
                group.state = GroupState.EMPTY if dies else group.state
                self.drop_if_unused(group)
            on_written(failed, now_ms)

        for some, tombstones in _in_batches(group, removed):
            left += 1
            self._outbox.append(tombstones, partial(written, some))
        if dies and group.generation_id > 0:
            left += 1
            group_key = encode_key(GroupKey(group.group_id))
            self._outbox.append([(group_key, None)], partial(written, []))
        written([], ErrorCode.NONE, now_ms)

    def drop_if_unused(self, group: Group) -> None:
        """Remove a group that was created for a request that failed."""
        if group.is_unused:
            self._forget(group)

    def _forget(self, group: Group) -> None:
        if self._groups.get(group.group_id) is group:
            del self._groups[group.group_id]


def _check_commit(group: Group, request: OffsetCommit) -> ErrorCode:
    """Check whether a commit is allowed.

    A commit without a generation is from a consumer that assigns itself partitions, or from an
    operator. It is allowed while the group has no members.
    """
    if group.state is GroupState.DEAD:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    if request.generation_id < 0:
        if group.state is GroupState.EMPTY:
            return ErrorCode.NONE
        if request.member_id == NO_MEMBER and request.group_instance_id is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
    error = group.check_member(request.member_id, request.group_instance_id)
    if error is ErrorCode.NONE and request.generation_id != group.generation_id:
        return ErrorCode.ILLEGAL_GENERATION
    return error


def _check_txn_commit(group: Group, request: TxnOffsetCommit) -> ErrorCode:
    """Check whether a commit in a transaction is allowed (KIP-447).

    A request that names a member must be of the group's generation; so a consumer that lost its
    partitions in a rebalance cannot commit. Older clients name no member: only the epoch of their
    producer fences them. The state of the rebalance does not matter.
    """
    if group.state is GroupState.DEAD:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    anonymous = request.member_id == NO_MEMBER and request.group_instance_id is None
    if request.generation_id < 0 and (anonymous or group.state is GroupState.EMPTY):
        return ErrorCode.NONE
    error = group.check_member(request.member_id, request.group_instance_id)
    if error is ErrorCode.NONE and request.generation_id != group.generation_id:
        return ErrorCode.ILLEGAL_GENERATION
    return error


def _values(
    offsets: list[OffsetToCommit], committed_ms: int, expires: int | None
) -> dict[TopicPartition, OffsetValue]:
    return {
        TopicPartition(one.topic, one.partition): OffsetValue(
            one.committed_offset,
            one.committed_leader_epoch,
            one.committed_metadata,
            committed_ms,
            expires,
            one.topic_id,
        )
        for one in offsets
    }


def _records(
    group: Group, values: dict[TopicPartition, OffsetValue]
) -> list[tuple[bytes, bytes | None]]:
    keys = offset_keys(group.group_id, values)
    return [
        (key, encode_offset_value(value)) for key, value in zip(keys, values.values(), strict=True)
    ]


def _is_subscribed(group: Group, topic: str) -> bool:
    """Whether a member subscribes to the topic. If that is unknown, assume it."""
    if group.state is GroupState.EMPTY:
        return False
    return group.subscribed_topics is None or topic in group.subscribed_topics


def _fetched(group: Group, partition: TopicPartition) -> FetchedOffset:
    value = group.offsets.get(*partition)
    if value is None:
        return _no_offset(partition, ErrorCode.NONE)
    return FetchedOffset(
        *partition, value.offset, value.leader_epoch, value.metadata, ErrorCode.NONE
    )


def _no_offset(partition: TopicPartition, error: ErrorCode) -> FetchedOffset:
    return FetchedOffset(*partition, NO_OFFSET, None, "", error)


def _in_batches(
    group: Group, removed: list[TopicPartition]
) -> Iterator[tuple[list[TopicPartition], list[tuple[bytes, bytes | None]]]]:
    """Yield some of the offsets with their tombstones, as many as fit into one append."""
    some: list[TopicPartition] = []
    tombstones: list[tuple[bytes, bytes | None]] = []
    room = _TOMBSTONE_BYTES_MAX
    for partition, key in zip(removed, offset_keys(group.group_id, removed), strict=True):
        room -= len(key) + _TOMBSTONE_OVERHEAD
        if room < 0 and some:
            yield some, tombstones
            some, tombstones = [], []
            room = _TOMBSTONE_BYTES_MAX - len(key) - _TOMBSTONE_OVERHEAD
        some.append(partition)
        tombstones.append((key, None))
    if some:
        yield some, tombstones


def _committed_at(value: OffsetValue) -> int:
    return value.commit_timestamp


def _ignore_outcome(_error: ErrorCode, _now_ms: int) -> None:
    """Offsets that could not be removed are found again at the next clean-up."""
