"""Sends the markers that end transactions to the leaders of their partitions.

Markers that become ready in one turn share a request, and so do markers that wait because many
requests to the broker are open: a partition that is slow to replicate delays only the markers of
its own request. This broker's own partitions need no request. A marker is sent again after an
error that may pass, such as an election, and without end: the outcome of its transaction is
decided.

Invariant: a marker is sent only while its shard is loaded, so with the leader epoch in which the
shard read the outcome from the log. A newer coordinator's markers win by a higher epoch.
"""

from collections.abc import Callable, Iterable

from tidelog.core.controller.metadata.cluster_image import ClusterImage
from tidelog.core.errors import ErrorCode
from tidelog.core.node.coordinating.coordinator_host import CoordinatorHost
from tidelog.core.node.coordinating.coordinator_runtime import HostedShard
from tidelog.core.node.messages import TxnMarker, WriteTxnMarkers, WriteTxnMarkersResponse
from tidelog.core.slotted import slotted
from tidelog.core.transactions.shard import SendMarkers, TransactionShard
from tidelog.core.types import BrokerId, TopicPartition

RETRY_MS = 50
MARKERS_AT_ONCE = 500
"""Markers in one request."""
REQUESTS_AT_ONCE = 16
"""Open requests to one broker."""

_DONE = frozenset(
    {
        ErrorCode.NONE,
        # The partition has a newer epoch of the producer: nothing of this transaction is open.
        ErrorCode.INVALID_PRODUCER_EPOCH,
    }
)
"""Results after which a marker is not sent again."""

Written = Callable[[HostedShard[TransactionShard], str, frozenset[TopicPartition]], None]


@slotted(eq=False)
class Outcome:
    """The transaction that a marker ends, and its shard."""

    hosted: HostedShard[TransactionShard]
    effect: SendMarkers

    def marker(self, partitions: Iterable[TopicPartition]) -> TxnMarker:
        """Return the marker for some of the partitions."""
        return TxnMarker(
            self.effect.producer.producer_id,
            self.effect.producer.epoch,
            self.effect.committed,
            self.hosted.leader_epoch,
            tuple(sorted(partitions)),
            self.effect.version,
        )


class MarkerSender:
    """Markers that wait for a request, by the broker that leads their partitions."""

    def __init__(self, host: CoordinatorHost, written: Written) -> None:
        self._broker_id = host.config.broker_id
        self._timeout_ms = host.config.request_timeout_ms
        self._turn = host.turn
        self._image: ClusterImage = host.image
        self._calls = host.calls
        self._write_markers = host.write_markers
        self._written = written
        self._queues: dict[BrokerId, dict[Outcome, set[TopicPartition]]] = {}
        self._open: dict[BrokerId, int] = {}
        """The number of open requests, by broker."""
        self._retries: dict[Outcome, set[TopicPartition]] = {}
        """Markers that are sent again at `_retry_at_ms`, to the leaders of that time."""
        self._retry_at_ms: int | None = None
        self._has_new_retry = False
        """Whether `_retry_at_ms` was set since the last `flush`: the node must compute again when
        it wakes, also if a fetch of a follower ended the request."""
        self._revision = host.image.revision
        """The revision of the metadata by which the queues were filled."""

    @property
    def waiting(self) -> int:
        """The number of markers that wait: one for each partition."""
        return sum(
            len(partitions)
            for outcomes in (self._retries, *self._queues.values())
            for partitions in outcomes.values()
        )

    @property
    def without_leader(self) -> int:
        """How many of them wait because their partition has no leader."""
        known = self._image.partition
        return sum(
            (partition := known(*name)) is not None and partition.leader is None
            for names in self._retries.values()
            for name in names
        )

    @property
    def is_active(self) -> bool:
        """Whether `flush` has something to do."""
        moved = bool(self._queues) and self._revision != self._image.revision
        return (
            moved or self._has_new_retry or any(self._may_send(broker) for broker in self._queues)
        )

    def _may_send(self, broker: BrokerId) -> bool:
        return self._open.get(broker, 0) < REQUESTS_AT_ONCE

    def send(self, hosted: HostedShard[TransactionShard], effect: SendMarkers) -> None:
        """Write the markers of a transaction."""
        self._queue(Outcome(hosted, effect), effect.partitions)

    def _queue(self, outcome: Outcome, partitions: Iterable[TopicPartition]) -> None:
        deleted = set()
        for name in sorted(partitions):  # requests in an order that does not depend on hashes
            known = self._image.partition(*name)
            if known is None:
                deleted.add(name)
            elif known.leader is None:
                self._retry(outcome, name)
            else:
                queue = self._queues.setdefault(known.leader, {})
                queue.setdefault(outcome, set()).add(name)
        if deleted:
            self._written(outcome.hosted, outcome.effect.transactional_id, frozenset(deleted))

    def _retry(self, outcome: Outcome, name: TopicPartition) -> None:
        self._retries.setdefault(outcome, set()).add(name)
        if self._retry_at_ms is None:
            self._retry_at_ms = self._turn.now_ms + RETRY_MS
            self._has_new_retry = True

    def flush(self) -> None:
        """Send a request to each broker with markers, unless too many are open."""
        if self._queues and self._revision != self._image.revision:
            self._queue_again()
        self._revision = self._image.revision
        self._has_new_retry = False
        for broker in list(self._queues):
            if self._may_send(broker):
                self._send_to(broker)

    def _queue_again(self) -> None:
        """Queue the markers for the current leaders: a former leader may hang with open
        requests."""
        queues, self._queues = self._queues, {}
        for outcomes in queues.values():
            for outcome, names in outcomes.items():
                self._queue(outcome, names)

    def _send_to(self, broker: BrokerId) -> None:
        queue = self._queues[broker]
        sent = {outcome: queue.pop(outcome) for outcome in list(queue)[:MARKERS_AT_ONCE]}
        if not queue:
            del self._queues[broker]
        sent = {outcome: names for outcome, names in sent.items() if outcome.hosted.is_current}
        if not sent:
            return
        request = WriteTxnMarkers(tuple(each.marker(names) for each, names in sent.items()))
        self._open[broker] = self._open.get(broker, 0) + 1

        def answered(response: WriteTxnMarkersResponse) -> None:
            self._open[broker] -= 1
            self._answered(sent, response)

        def failed() -> None:
            self._open[broker] -= 1
            for outcome, names in sent.items():
                for name in names:
                    self._retry(outcome, name)

        if broker == self._broker_id:
            self._write_markers(request, answered)
        else:
            self._turn.counters.transactions.marker_requests += 1
            self._calls.send(broker, request, self._timeout_ms, answered, failed)

    def _answered(
        self, sent: dict[Outcome, set[TopicPartition]], response: WriteTxnMarkersResponse
    ) -> None:
        missing = ErrorCode.UNKNOWN_SERVER_ERROR
        for (outcome, names), (_, results) in zip(sent.items(), response.markers, strict=True):
            done = {name for name in names if results.get(name, missing) in _DONE}
            for name in names - done:
                self._retry(outcome, name)
            if done:
                self._written(outcome.hosted, outcome.effect.transactional_id, frozenset(done))

    def forget(self, hosted: HostedShard[TransactionShard]) -> None:
        """Drop the markers of a shard that was unloaded."""
        for outcomes in (self._retries, *self._queues.values()):
            for outcome in [each for each in outcomes if each.hosted is hosted]:
                del outcomes[outcome]
        self._queues = {broker: queue for broker, queue in self._queues.items() if queue}

    def tick(self) -> None:
        """Send again what is due."""
        if self._retry_at_ms is None or self._turn.now_ms < self._retry_at_ms:
            return
        retries, self._retries, self._retry_at_ms = self._retries, {}, None
        for outcome, names in retries.items():
            self._queue(outcome, names)

    def next_ms(self) -> int | None:
        """Return the time at which `tick` must be called; None if no marker has to be sent
        again."""
        return self._retry_at_ms
