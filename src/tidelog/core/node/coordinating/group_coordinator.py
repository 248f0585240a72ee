"""The group coordinator: consumer groups and committed offsets on `__consumer_offsets`."""

from collections.abc import Set
from typing import get_args

from tidelog.core.coordinator.lookup import OFFSETS_TOPIC
from tidelog.core.errors import ErrorCode
from tidelog.core.groups import messages as on
from tidelog.core.groups.membership.member import MemberMemory
from tidelog.core.groups.messages import error_of_txn_offset_commit, refused
from tidelog.core.groups.shard import GroupShard
from tidelog.core.node.coordinating.coordinator_host import CoordinatorHost
from tidelog.core.node.coordinating.coordinator_runtime import CoordinatorRuntime
from tidelog.core.node.effects import Respond
from tidelog.core.node.events import Peer, RequestHandler
from tidelog.core.types import LeaderEpoch, TopicId

_ADDS_PARTITION_SINCE = 5
"""The version of TxnOffsetCommit whose clients do not send AddOffsetsToTxn first."""


class GroupCoordinator(CoordinatorRuntime[GroupShard]):
    """The groups that this broker coordinates."""

    topic = OFFSETS_TOPIC
    fresh_reads = (on.OffsetFetch,)

    def __init__(self, host: CoordinatorHost) -> None:
        super().__init__(host, host.config.offsets_commit_timeout_ms)
        self._config = host.config.groups
        self._verify_transaction = host.verify_transaction
        self._memory = MemberMemory()

    def handlers(self) -> dict[type, RequestHandler]:
        of_one_group = dict.fromkeys(get_args(on.GroupRequest), self._serve)
        return {
            **of_one_group,
            on.TxnOffsetCommit: self._commit_in_transaction,
            on.ListGroups: self._list,
        }

    def make_shard(self, _leader_epoch: LeaderEpoch) -> GroupShard:
        return GroupShard(self._config, self._turn.now_ms, self._turn.wall, self._memory)

    def refused(self, request: on.Request, error: ErrorCode) -> on.Response:
        return refused(request, error)

    def on_loaded(self, shard: GroupShard) -> None:
        shard.delete_old_topics(self._id_of, self._turn.now_ms)

    def on_topics_deleted(self, shard: GroupShard, names: Set[str]) -> None:
        shard.topic_deleted(sorted(names), self._turn.now_ms, self._id_of)

    def _id_of(self, topic: str) -> TopicId | None:
        known = self._image.topics.get(topic)
        return None if known is None else known.topic_id

    def _serve(self, peer: Peer, correlation: int, request: on.GroupRequest) -> None:
        self.serve(request.group_id, peer, correlation, request)

    def _commit_in_transaction(
        self, peer: Peer, correlation: int, request: on.TxnOffsetCommit
    ) -> None:
        """Verify the transaction with its coordinator, then commit the offsets in it (KIP-890)."""
        hosted = self.find(request.group_id)
        if isinstance(hosted, ErrorCode) or not request.group_id:
            self._serve(peer, correlation, request)  # refuses it
            return

        def verified(error: ErrorCode) -> None:
            if error is ErrorCode.NONE:
                self._serve(peer, correlation, request)
                return
            error = error_of_txn_offset_commit(error, request.version)
            self._turn.emit(Respond(peer, correlation, refused(request, error)))

        self._verify_transaction(
            hosted.replica.topic_partition,
            request.transactional_id,
            request.producer_id,
            request.producer_epoch,
            request.version >= _ADDS_PARTITION_SINCE,
            verified,
        )

    def _list(self, peer: Peer, correlation: int, request: on.ListGroups) -> None:
        """List the groups of this broker."""
        shards = self.all_shards()
        if isinstance(shards, ErrorCode):
            response = on.ListGroupsResponse(shards)
        else:
            found = tuple(group for shard in shards for group in shard.list_groups(request))
            response = on.ListGroupsResponse(ErrorCode.NONE, found)
        self._turn.emit(Respond(peer, correlation, response))
