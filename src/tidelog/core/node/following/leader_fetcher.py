"""Fetch from one leader, for all partitions that this broker follows there.

One fetch is in flight at a time, in an incremental fetch session (KIP-227). The partition decides
what to request (`next_question`); it is called only after a change, so thousands of idle partitions
cost nothing.

Late responses are ignored (KAFKA-7786, 8012, 13207, 18991): a response must belong to the request
in flight, and to a partition that is still followed at this leader, with the same topic id. It is
passed on with the leader epoch and offset of the request, which the partition compares with its
own.

No checksum covers a batch's offset and leader epoch. If records are out of order, the same fetch
is sent again, and the leader checks its files before it responds. So a damaged offset is not
copied, while the gaps that compaction leaves are.
"""

from collections.abc import Sequence

from tidelog.core.errors import ErrorCode
from tidelog.core.node.calls import Calls
from tidelog.core.node.config import NodeConfig
from tidelog.core.node.deadlines import Deadlines
from tidelog.core.node.following.leader_questions import LeaderQuestions
from tidelog.core.node.hosting.hosted_replica import (
    FollowedPartitions,
    HostedReplica,
    LeaderPartitions,
)
from tidelog.core.node.hosting.replicas import Replicas
from tidelog.core.node.hosting.replication_quota import ReplicationQuota
from tidelog.core.node.messages import (
    NEW_SESSION,
    SESSION_EPOCH_MAX,
    Fetch,
    FetchPartition,
    FetchPartitionResponse,
    FetchResponse,
)
from tidelog.core.node.turn import Turn
from tidelog.core.record.record_batch import CorruptRecord, RecordBatch, batches
from tidelog.core.replication.effects import FetchPosition
from tidelog.core.replication.events import FetchAnswered
from tidelog.core.replication.follower import backoff_ms
from tidelog.core.types import BrokerEpoch, BrokerId, Offset, TopicPartition

FLUSHING_WAIT_MS = 5
"""How long the leader may hold a fetch while a partition waits for its flush. The next fetch names
that partition again; a flush usually takes a few milliseconds."""


class FetchSessionClient:
    """The positions that one leader knows: an incremental fetch session on the follower.

    It remembers the position last sent for each partition, so that the next request names only
    changes. After any error the session starts over with a full request, which also makes the
    leader drop the old session.

    Invariant while a request is in flight: `positions` has those of that request and those
    before it; the response is interpreted with them.
    """

    __slots__ = ("changed", "epoch", "forgotten", "id", "positions")

    def __init__(self) -> None:
        self.id = 0
        self.epoch = NEW_SESSION
        self.positions: dict[TopicPartition, FetchPartition] = {}
        self.changed: dict[TopicPartition, FetchPartition] = {}
        """Positions to send with the next request."""
        self.forgotten: dict[TopicPartition, None] = {}

    def set_position(self, partition: FetchPartition) -> None:
        """Add or change the position of a partition."""
        topic_partition = partition.topic_partition
        if self.positions.get(topic_partition) != partition:
            self.positions[topic_partition] = self.changed[topic_partition] = partition
            self.forgotten.pop(topic_partition, None)

    def forget(self, topic_partition: TopicPartition) -> None:
        """Remove a partition."""
        if self.positions.pop(topic_partition, None) is not None:
            self.changed.pop(topic_partition, None)
            self.forgotten[topic_partition] = None

    def take_changes(self) -> tuple[list[FetchPartition], list[TopicPartition]]:
        """Return the positions for the next request, all if it is the first, and the partitions to
        remove from the session."""
        full = self.epoch == NEW_SESSION
        partitions = list((self.positions if full else self.changed).values())
        forgotten = [] if full else list(self.forgotten)
        self.changed.clear()
        self.forgotten.clear()
        return partitions, forgotten

    def answered(self, response: FetchResponse) -> bool:
        """Check a response; return False if it is unusable and the session starts over."""
        if response.error is not ErrorCode.NONE:
            self.restart()
            return False
        if self.epoch == NEW_SESSION:
            self.id = response.session_id
        elif response.session_id != self.id:
            self.restart()
            return False
        if self.id != 0:
            self.epoch = 1 if self.epoch == SESSION_EPOCH_MAX else self.epoch + 1
        return True

    def restart(self) -> None:
        """Send everything again; the old id stays in the request, so that the leader drops it."""
        self.epoch = NEW_SESSION


class LeaderFetcher:
    """The fetches from one leader."""

    def __init__(
        self,
        leader: BrokerId,
        partitions: LeaderPartitions,
        config: NodeConfig,
        turn: Turn,
        calls: Calls,
        replicas: Replicas,
        quota: ReplicationQuota,
    ) -> None:
        self.leader = leader
        self._partitions = partitions
        self._config = config
        self._turn = turn
        self._calls = calls
        self._replicas = replicas
        self._quota = quota
        self._throttled: dict[TopicPartition, None] = {}
        """Partitions in the session that are left out while the quota is exceeded."""
        self._flushing: dict[TopicPartition, None] = {}
        """Partitions that are left out until their records are flushed."""
        self._session = FetchSessionClient()
        self._questions = LeaderQuestions(
            leader, partitions, config, turn, calls, replicas, self._back_off
        )
        self._resting: Deadlines[TopicPartition] = Deadlines()
        """Partitions that wait after an error, by the time of the retry."""
        self._doubted: dict[TopicPartition, FetchPartition] = {}
        """Positions whose records were out of order in the last response."""
        self._in_flight: int | None = None
        self._retry_at_ms: int | None = None
        self._failures = 0
        """Consecutive fetches without a response."""

    def connection_lost(self) -> None:
        """Start over: the leader's process is a new one without this request and session."""
        if self._in_flight is not None:
            self._calls.abandon(self._in_flight)
            self._in_flight = None
        self._questions.abandon()
        self._session.restart()
        self._retry_at_ms = None
        self._failures = 0

    def pump(self, broker_epoch: BrokerEpoch | None) -> None:
        """Send the next requests, if it is time. An unregistered broker sends nothing: its fetches
        could not be distinguished from those of an earlier incarnation."""
        now = self._turn.now_ms
        if broker_epoch is None or self._in_flight is not None:
            return
        if self._retry_at_ms is not None:
            if now < self._retry_at_ms:
                return
            self._retry_at_ms = None
        changed = self._partitions.changed
        for topic_partition in self._resting.due(now):
            changed[topic_partition] = None
        if self._throttled and self._quota.wait_ms(now):
            changed.update(self._throttled)
        while changed:
            topic_partition, _ = changed.popitem()
            self._consider(topic_partition)
        self._questions.pump()
        if self._session.positions or self._session.forgotten:
            self._send(broker_epoch)

    def _consider(self, topic_partition: TopicPartition) -> None:
        replica = self._partitions.replicas.get(topic_partition)
        self._throttled.pop(topic_partition, None)
        self._flushing.pop(topic_partition, None)
        if replica is None or self._questions.awaits(topic_partition):
            self._session.forget(topic_partition)
            return
        question = replica.partition.next_question(self._turn.now_ms)
        if isinstance(question, FetchPosition):
            most_bytes = self._config.replica_fetch_max_bytes
            if replica.follower_throttled and not self._in_sync(replica):
                wait_ms = self._quota.wait_ms(self._turn.now_ms)
                if wait_ms:
                    self._session.forget(topic_partition)
                    self._resting.add(topic_partition, self._turn.now_ms + wait_ms)
                    return
                self._throttled[topic_partition] = None
                most_bytes = min(most_bytes, self._quota.most_bytes() or most_bytes)
            self._session.set_position(
                FetchPartition(
                    topic_partition,
                    replica.topic_id,
                    question.offset,
                    most_bytes,
                    question.leader_epoch,
                    question.last_fetched_epoch,
                    question.log_start_offset,
                )
            )
            return
        self._session.forget(topic_partition)
        if question is not None:
            self._questions.queue(replica, question)
        elif replica.partition.retry_at_ms is not None:
            self._resting.add(topic_partition, replica.partition.retry_at_ms)
        elif replica.partition.durable_end_offset < replica.partition.log_end_offset:
            self._flushing[topic_partition] = None

    def _in_sync(self, replica: HostedReplica) -> bool:
        """Whether a replica is in the ISR, or has all records that its leader committed."""
        high_watermark = replica.leader_high_watermark
        return (
            self._config.broker_id in replica.isr
            or 0 <= high_watermark <= replica.partition.log_end_offset
        )

    def _send(self, broker_epoch: BrokerEpoch) -> None:
        config = self._config
        session = self._session
        partitions, forgotten = session.take_changes()
        wait_ms = config.replica_fetch_wait_max_ms
        if self._flushing:
            wait_ms = min(wait_ms, FLUSHING_WAIT_MS)
        request = Fetch(
            config.broker_id,
            broker_epoch,
            wait_ms,
            config.replica_fetch_min_bytes,
            config.replica_fetch_response_max_bytes,
            partitions,
            session.id,
            session.epoch,
            forgotten,
        )
        self._in_flight = self._calls.send(
            self.leader, request, config.replica_socket_timeout_ms, self._answered, self._failed
        )

    def _failed(self) -> None:
        self._in_flight = None
        self._session.restart()
        self._back_off()

    def _back_off(self) -> None:
        """Wait before the next request: the leader was not reached."""
        most_ms = self._config.replica_fetch_backoff_ms
        self._retry_at_ms = self._turn.now_ms + backoff_ms(self._failures, most_ms)
        self._failures += 1

    def _answered(self, response: FetchResponse) -> None:
        self._in_flight = None
        self._retry_at_ms = None
        self._failures = 0
        if not self._session.answered(response):
            return
        for part in response.partitions:
            self._apply(part)

    def _apply(self, part: FetchPartitionResponse) -> None:
        asked = self._session.positions.get(part.topic_partition)
        replica = self._partitions.replicas.get(part.topic_partition)
        if asked is None or replica is None or replica.topic_id != asked.topic_id:
            return
        assert asked.leader_epoch is not None, "a follower always names its leader epoch"
        error = part.error
        records: Sequence[RecordBatch] = ()
        if part.records is not None:
            try:
                records = _checked_batches(part.records)  # type: ignore[arg-type]
                self._check_order(records, asked, part.high_watermark, replica)
            except CorruptRecord:
                error = ErrorCode.CORRUPT_MESSAGE
        if replica.follower_throttled and part.records is not None:
            size, in_sync = len(part.records), self._in_sync(replica)
            self._quota.record(size, self._turn.now_ms, in_sync=in_sync)
        self._partitions.changed[part.topic_partition] = None
        replica.leader_high_watermark = part.high_watermark
        self._replicas.step(
            replica,
            FetchAnswered(
                asked.leader_epoch,
                asked.offset,
                error,
                records,
                part.high_watermark,
                part.log_start_offset,
                part.diverging,
                self._turn.now_ms,
            ),
        )

    def _check_order(
        self,
        records: Sequence[RecordBatch],
        asked: FetchPartition,
        high_watermark: Offset,
        replica: HostedReplica,
    ) -> None:
        """Raise CorruptRecord if records are out of order, unless the leader has checked them: it
        does when the same offset is fetched again (serving/fetch.py)."""
        gapless_from = high_watermark if replica.log.may_have_gaps else 0
        doubted = self._doubted.pop(asked.topic_partition, None)
        if doubted != asked and not _in_order(records, asked, gapless_from):
            self._doubted[asked.topic_partition] = asked
            raise CorruptRecord(f"records after offset {asked.offset} are out of order")

    def next_ms(self) -> int | None:
        """When the next request that waits now may be sent."""
        if self._in_flight is not None:
            return None
        return self._retry_at_ms if self._retry_at_ms is not None else self._resting.next_ms()


class ReplicaFetchers:
    """All fetchers of this broker."""

    def __init__(
        self,
        config: NodeConfig,
        turn: Turn,
        calls: Calls,
        replicas: Replicas,
        followed: FollowedPartitions,
        quota: ReplicationQuota,
    ) -> None:
        self._config = config
        self._turn = turn
        self._calls = calls
        self._replicas = replicas
        self._followed = followed
        self._quota = quota
        self._fetchers: dict[BrokerId, LeaderFetcher] = {}

    def leader_restarted(self, leader: BrokerId) -> None:
        """Forget requests and session: the broker has another incarnation, or none."""
        fetcher = self._fetchers.get(leader)
        if fetcher is not None:
            fetcher.connection_lost()

    def pump(self, broker_epoch: BrokerEpoch | None) -> None:
        """Send the next request to each leader that has none in flight."""
        if len(self._fetchers) < len(self._followed.by_leader):
            self._add_fetchers()
        for fetcher in self._fetchers.values():
            fetcher.pump(broker_epoch)

    def _add_fetchers(self) -> None:
        for leader, partitions in self._followed.by_leader.items():
            if leader not in self._fetchers:
                self._fetchers[leader] = LeaderFetcher(
                    leader,
                    partitions,
                    self._config,
                    self._turn,
                    self._calls,
                    self._replicas,
                    self._quota,
                )

    def next_ms(self) -> int | None:
        """When the next request that waits now may be sent."""
        soonest: int | None = None
        for fetcher in self._fetchers.values():
            at = fetcher.next_ms()
            if at is not None and (soonest is None or at < soonest):
                soonest = at
        return soonest


def _checked_batches(records: bytes) -> list[RecordBatch]:
    """Return the batches after checking their CRCs; raises CorruptRecord."""
    found = []
    for batch in batches(records):
        if not batch.crc_ok():
            raise CorruptRecord(f"checksum of the batch at offset {batch.base_offset}")
        found.append(batch)
    return found


def _in_order(records: Sequence[RecordBatch], asked: FetchPartition, gapless_from: Offset) -> bool:
    """Whether offsets and leader epochs of these batches continue the requested position.

    Batches that end below `gapless_from` may follow a gap.
    """
    offset, epoch = asked.offset, asked.last_fetched_epoch or 0
    lowest = 0  # the first batch may start before the requested offset
    for batch in records:
        base, last = batch.base_offset, batch.last_offset
        if base < lowest or last < offset or batch.leader_epoch < epoch:
            return False
        if base > offset and last >= gapless_from:
            return False
        lowest, offset, epoch = last + 1, last + 1, batch.leader_epoch
    return True
