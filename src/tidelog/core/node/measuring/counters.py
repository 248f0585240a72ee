"""Counters of a node: traffic by topic, changes of replicas, and records that replicas dropped.

No decision depends on them. Invariant: counters only grow while the process lives; those of a
deleted topic stay in the sum of all topics.
"""

from collections import deque
from collections.abc import Collection
from typing import ClassVar

from tidelog.core.histogram import Histogram
from tidelog.core.slotted import slotted
from tidelog.core.types import LeaderEpoch, Offset, TopicId, TopicPartition

NS_PER_MS = 1_000_000
GONE_TOPICS_MAX = 64
"""Deleted topics whose counters may be kept, beyond the number of existing topics."""


class Traffic:
    """The traffic of one topic on this broker."""

    __slots__ = (
        "bytes_in",
        "bytes_out",
        "bytes_rejected",
        "failed_fetch_requests",
        "failed_produce_requests",
        "fetch_requests",
        "messages_in",
        "produce_requests",
        "replication_bytes_in",
        "replication_bytes_out",
    )
    fields: ClassVar[tuple[str, ...]] = __slots__

    def __init__(self) -> None:
        self.bytes_in = 0
        """Bytes of record batches that clients sent and that were appended."""
        self.bytes_out = 0
        self.bytes_rejected = 0
        self.failed_fetch_requests = 0
        self.failed_produce_requests = 0
        self.fetch_requests = 0
        """Partitions in fetches of clients; one request may name many."""
        self.messages_in = 0
        self.produce_requests = 0
        self.replication_bytes_in = 0
        self.replication_bytes_out = 0

    def add(self, other: "Traffic") -> None:
        """Add the counters of another topic."""
        for name in self.fields:
            setattr(self, name, getattr(self, name) + getattr(other, name))


class LossCount:
    """Losses of one cause, and the records that they removed."""

    __slots__ = ("acknowledged", "committed", "losses", "removed")

    def __init__(self) -> None:
        self.losses = 0
        self.removed = 0
        self.committed = 0
        """Those below the high watermark that the replica knew."""
        self.acknowledged = 0
        """Those that this broker certainly acknowledged, as leader."""


class TransactionCounts:
    """Transactions that this broker coordinates, and those that it verifies as a leader."""

    __slots__ = ("ended", "marker_requests", "verification_failures", "verifications")

    def __init__(self) -> None:
        self.ended: dict[str, int] = {}
        """By outcome."""
        self.marker_requests = 0
        """WriteTxnMarkers requests that were sent to other brokers."""
        self.verifications = Histogram(_no_clock)
        """From a request to a coordinator until its response."""
        self.verification_failures = 0
        """Partitions for which a coordinator returned an error."""

    def end(self, outcome: str) -> None:
        """Count a transaction."""
        self.ended[outcome] = self.ended.get(outcome, 0) + 1


class Counters:
    """The counters of one broker."""

    __slots__ = (
        "_forgotten",
        "damages",
        "elections",
        "elections_unclean",
        "fencings",
        "isr_expands",
        "isr_shrinks",
        "isr_updates_failed",
        "losses",
        "losses_recorded",
        "lost",
        "topics",
        "transactions",
        "truncated",
        "truncations",
        "truncations_refused",
    )

    def __init__(self) -> None:
        self.topics: dict[str, Traffic] = {}
        self._forgotten = Traffic()
        self.isr_shrinks = 0
        """ISR changes are counted for partitions that this broker leads."""
        self.isr_expands = 0
        self.isr_updates_failed = 0
        self.elections = Histogram(_no_clock)
        """Elections by this broker as controller: from the decision to the commit."""
        self.elections_unclean = 0
        self.fencings = 0
        """How often this broker stopped serving although it was not shut down."""
        self.damages = 0
        """Logs that were found damaged, at startup or later."""
        self.truncations = 0
        self.truncations_refused = 0
        self.truncated: dict[TopicPartition, int] = {}
        """Records that replicas here dropped because the leader did not have them."""
        self.lost: dict[TopicPartition, int] = {}
        """Dropped records that were committed, or that an unclean election gave up."""
        self.transactions = TransactionCounts()
        self.losses: dict[str, LossCount] = {}
        """The entries in the loss ledger that this process wrote, by cause."""
        self.losses_recorded = 0
        """All entries in the loss ledger, unclean elections included."""

    def traffic(self, topic: str, existing: Collection[str]) -> Traffic:
        """Return the counters of a topic, the same ones each time.

        A broker that is never scraped forgets deleted topics here: from time to time, so that
        the cost of looking through all topics is spread over many new ones.
        """
        found = self.topics.get(topic)
        if found is None:
            if len(self.topics) >= 2 * len(existing) + GONE_TOPICS_MAX:
                self.forget_all_but(existing)
            found = self.topics[topic] = Traffic()
        return found

    def all_topics(self) -> Traffic:
        """Return the sum over all topics, including deleted ones."""
        everything = Traffic()
        for one in (self._forgotten, *self.topics.values()):
            everything.add(one)
        return everything

    def forget_all_but(self, topics: Collection[str]) -> None:
        """Move the counters of deleted topics to the sum."""
        for deleted in [name for name in self.topics if name not in topics]:
            self._forgotten.add(self.topics.pop(deleted))
        for counts in (self.truncated, self.lost):
            for partition in [p for p in counts if p.topic not in topics]:
                del counts[partition]

    def dropped(self, partition: TopicPartition, records: int, lost: int) -> None:
        """Count a truncation."""
        self.truncations += 1
        self.truncated[partition] = self.truncated.get(partition, 0) + records
        if lost:
            self.lost[partition] = self.lost.get(partition, 0) + lost


def _no_clock() -> int:
    """Return 0: the histogram of elections gets its durations from the caller."""
    return 0


KEPT_MAX = 1000


@slotted(frozen=True)
class Loss:
    """Records from `start` to `end` (exclusive) were dropped when following `leader_epoch`."""

    topic_partition: TopicPartition
    topic_id: TopicId
    leader_epoch: LeaderEpoch
    start: Offset
    end: Offset
    high_watermark: Offset
    """This replica's high watermark before the truncation."""
    now_ms: int
    restarted_at: Offset | None = None
    """The leader's log start offset, if the leader has deleted the dropped records."""

    @property
    def committed(self) -> int:
        """How many of them this replica knew to be committed."""
        return max(0, min(self.end, self.high_watermark) - self.start)


class Losses:
    """The latest losses, and their total number.

    A truncation is normal: records that no other replica has confirmed are dropped when the leader
    changes. Below the high watermark it is a loss of committed records, which only an unclean
    election or a lost disk can cause. The tools show it, and the simulator compares it with the
    records that were really lost.
    """

    __slots__ = ("count", "recent")

    def __init__(self) -> None:
        self.recent: deque[Loss] = deque(maxlen=KEPT_MAX)
        self.count = 0

    def note(self, loss: Loss) -> None:
        """Add a loss, unless it is empty."""
        if loss.start < loss.end:
            self.count += 1
            self.recent.append(loss)
