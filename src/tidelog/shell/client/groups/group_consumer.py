"""A member of a consumer group: it joins, reads its partitions, commits, and leaves.

It uses the classic protocol with the range assignor. It has no thread: heartbeats are sent
between polls. A member that does not poll for a session timeout is removed from the group, and
joins again with the next poll.

Invariant: before partitions are revoked, the offsets marked as written are committed; no other
offsets are ever committed.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeAlias

from tidelog.core.api_table import (
    HEARTBEAT,
    JOIN_GROUP,
    LEAVE_GROUP,
    SYNC_GROUP,
    api_name,
)
from tidelog.core.errors import ErrorCode
from tidelog.core.groups.membership.subscription import subscribed_topics
from tidelog.core.types import BrokerId, LeaderEpoch, Offset, TopicPartition
from tidelog.core.wire.codec import Struct
from tidelog.core.wire.primitives import MalformedRequest
from tidelog.shell.client.client_errors import (
    BrokerError,
    CannotConnect,
    ClientError,
    Unresolved,
)
from tidelog.shell.client.consumer import Chunk, Consumer, Span
from tidelog.shell.client.coordinators import MOVED, find_coordinator
from tidelog.shell.client.groups.consumer_protocol import (
    PROTOCOL_TYPE,
    RANGE,
    assign_ranges,
    decode_assignment,
    encode_assignment,
    encode_subscription,
)
from tidelog.shell.client.groups.group_admin import (
    Committed,
    commit_offsets,
    committed_offsets,
)
from tidelog.shell.client.retry import Retry, retriable_codes

SESSION_TIMEOUT_MS = 30_000
REBALANCE_TIMEOUT_MS = 60_000
HEARTBEAT_S = 3.0
COMMIT_S = 5.0
LOOK_S = 10.0
JOIN_S = 60.0
"""How long failures to join are retried."""
NEWEST = {JOIN_GROUP: 5, HEARTBEAT: 3, LEAVE_GROUP: 2, SYNC_GROUP: 3}
"""Later versions add nothing that is needed here, and librdkafka's mock can't read them."""
NOT_YET = -1
_REJOIN = (
    *MOVED,
    ErrorCode.REBALANCE_IN_PROGRESS,
    ErrorCode.ILLEGAL_GENERATION,
    ErrorCode.UNKNOWN_MEMBER_ID,
)
"""Errors after which the member joins again."""

Choose: TypeAlias = Callable[[], Sequence[str]]
"""Returns the topics to subscribe to now."""
Begin: TypeAlias = Callable[
    [Sequence[TopicPartition], Mapping[TopicPartition, Committed]], dict[TopicPartition, Span]
]
"""Returns the spans to read, given the committed offsets."""


class GroupConsumer:
    """Reads the partitions that the group assigns to it."""

    def __init__(self, consumer: Consumer, group: str, choose: Choose, begin: Begin) -> None:
        self._consumer = consumer
        self._cluster = consumer.cluster
        self._group = group
        self._choose = choose
        self._begin = begin
        self._coordinator: BrokerId | None = None
        self._member_id = ""
        self._generation = NOT_YET
        self._joined = False
        self._topics: dict[str, int] = {}
        """The subscribed topics with their partition counts at that time."""
        self._written: dict[TopicPartition, Committed] = {}
        """Offsets that are not committed yet."""
        self._heartbeat_at = self._commit_at = self._look_at = 0.0

    @property
    def done(self) -> bool:
        """Whether all assigned partitions were read to their end."""
        return self._joined and self._consumer.done

    @property
    def partitions(self) -> list[TopicPartition]:
        """The assigned partitions."""
        return sorted(self._consumer.positions)

    def poll(self, timeout_s: float) -> Iterator[Chunk]:
        """Yield records that arrive in time; a rebalance may take longer. Raises ClientError."""
        now = time.monotonic()
        if self._joined and now >= self._look_at:
            self._find_new_partitions()
        if self._joined and now >= self._heartbeat_at:
            self._heartbeat()
        if not self._joined:
            self._commit()
            self._join()
        elif now >= self._commit_at:
            self._commit()
        return self._consumer.poll(timeout_s)

    def written(self, key: TopicPartition, offset: Offset, epoch: LeaderEpoch) -> None:
        """Mark all records of the partition below `offset` as written, to be committed soon."""
        self._written[key] = Committed(offset, epoch)

    def close(self) -> None:
        """Commit and leave the group; failures are reported, not raised."""
        try:
            self._commit()
            if self._member_id:
                self._leave()
        except ClientError as error:
            self._consumer.notify(f"can't leave group {self._group}: {error}")
        finally:
            self._consumer.close()

    # -- membership ---------------------------------------------------------------------------

    def _call(self, api_key: int, request: Struct, wait_s: float | None = None) -> Struct:
        """Send a request to the coordinator. Raises BrokerError for an error code."""
        if self._coordinator is None:
            self._coordinator = find_coordinator(self._cluster, self._group)
        try:
            broker = self._cluster.broker(self._coordinator)
            answer = broker.call(api_key, request, NEWEST.get(api_key), wait_s)
        except (CannotConnect, Unresolved):
            self._coordinator = None
            raise
        code = answer["error_code"]
        if code in MOVED:
            self._coordinator = None
        if code == ErrorCode.UNKNOWN_MEMBER_ID:
            self._member_id, self._generation = "", NOT_YET
        if code == ErrorCode.MEMBER_ID_REQUIRED:
            self._member_id = answer["member_id"]
        if code:
            raise BrokerError(f"{api_name(api_key)} request for group {self._group}", code)
        return answer

    def _me(self) -> Struct:
        return {
            "group_id": self._group,
            "generation_id": self._generation,
            "member_id": self._member_id,
        }

    def _join(self) -> None:
        """Join until the member has an assignment."""
        retry = Retry(JOIN_S, retriable=retriable_codes(_REJOIN))
        while not self._joined:
            try:
                self._try_to_join()
            except ClientError as error:
                code = error.code if isinstance(error, BrokerError) else ErrorCode.NONE
                if code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL:
                    raise ClientError(
                        f"the members of group {self._group} do not use the range assignor,"
                        " the only one that this command supports; use another group"
                    ) from None
                if code != ErrorCode.MEMBER_ID_REQUIRED:
                    retry.failed(error)

    def _try_to_join(self) -> None:
        wanted = sorted(self._choose())
        self._topics = self._count_partitions(wanted)
        request = {
            "group_id": self._group,
            "session_timeout_ms": SESSION_TIMEOUT_MS,
            "rebalance_timeout_ms": REBALANCE_TIMEOUT_MS,
            "member_id": self._member_id,
            "protocol_type": PROTOCOL_TYPE,
            "protocols": [{"name": RANGE, "metadata": encode_subscription(wanted)}],
        }
        wait_s = REBALANCE_TIMEOUT_MS / 1000 + self._cluster.timeout_s
        joined = self._call(JOIN_GROUP, request, wait_s)
        self._member_id, self._generation = joined["member_id"], joined["generation_id"]
        leads = joined["leader"] == self._member_id
        request = {
            **self._me(),
            "protocol_type": PROTOCOL_TYPE,
            "protocol_name": joined["protocol_name"],
            "assignments": self._assign_all(joined["members"]) if leads else [],
        }
        synced = self._call(SYNC_GROUP, request, wait_s)
        try:
            partitions = decode_assignment(bytes(synced["assignment"]))
        except MalformedRequest as error:
            raise ClientError(
                f"can't decode this member's assignment in group {self._group}: {error};"
                " the group's leader may use another protocol"
            ) from None
        committed = committed_offsets(self._cluster, self._group, partitions) if partitions else {}
        self._consumer.assign(self._begin(partitions, committed) if partitions else {})
        self._joined = True
        now = time.monotonic()
        self._heartbeat_at, self._commit_at = now + HEARTBEAT_S, now + COMMIT_S
        self._look_at = now + LOOK_S
        names = (
            ", ".join(map(str, sorted(partitions)))
            or "no partition, because other members have all"
        )
        self._consumer.notify(
            f"group {self._group}, generation {self._generation}: reading {names}"
        )

    def _assign_all(self, members: Sequence[Struct]) -> list[Struct]:
        """Assign partitions to all members: the task of the group's leader."""
        wanted = {
            member["member_id"]: subscribed_topics([bytes(member["metadata"])]) or frozenset()
            for member in members
        }
        counts = self._count_partitions(
            sorted({name for names in wanted.values() for name in names})
        )
        return [
            {"member_id": member, "assignment": encode_assignment(partitions)}
            for member, partitions in assign_ranges(wanted, counts).items()
        ]

    def _count_partitions(self, topics: Sequence[str]) -> dict[str, int]:
        known = self._cluster.refresh(topics).topics if topics else {}
        return {name: len(known[name].partitions) for name in topics if name in known}

    def _find_new_partitions(self) -> None:
        """Join again if topics or partitions were added, so that they are assigned."""
        self._look_at = time.monotonic() + LOOK_S
        try:
            changed = self._count_partitions(sorted(self._choose())) != self._topics
        except ClientError:
            return  # if it matters, the next fetch fails too
        self._joined = not changed

    def _heartbeat(self) -> None:
        self._heartbeat_at = time.monotonic() + HEARTBEAT_S
        try:
            self._call(HEARTBEAT, self._me())
        except BrokerError as error:
            if error.code not in _REJOIN:
                raise
            if error.code not in MOVED:
                self._joined = False
        except (CannotConnect, Unresolved):
            pass  # the next heartbeat looks up the coordinator again

    def _leave(self) -> None:
        """Leave the group, so that the others need not wait for the session timeout."""
        retry = Retry(self._cluster.timeout_s, retriable=retriable_codes(_REJOIN))
        while self._member_id:
            try:
                self._call(LEAVE_GROUP, self._me())
                self._joined, self._member_id = False, ""
            except ClientError as error:
                retry.failed(error)

    def _commit(self) -> None:
        self._commit_at = time.monotonic() + COMMIT_S
        written, self._written = self._written, {}
        if not written:
            return
        try:
            member = (self._member_id, self._generation)
            commit_offsets(self._cluster, self._group, written, member)
        except BrokerError as error:
            if error.code == ErrorCode.REBALANCE_IN_PROGRESS and self._joined:
                self._joined, self._written = False, written
            elif error.code in _REJOIN:
                self._joined = False
                self._consumer.notify(
                    f"group {self._group} removed this member; records since the last commit will"
                    " be read again"
                )
            else:
                raise
