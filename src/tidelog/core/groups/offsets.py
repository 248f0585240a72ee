"""The offsets that a group has committed, those that are being written, and those of transactions.

Invariants: an offset becomes visible when its record is committed, not before; an offset of a
transaction when the transaction's marker commits it. An offset with a pending commit or in an open
transaction does not expire. Of several commits of one partition the latest in the log counts, even
if the transaction of an earlier one ends later.
"""

from collections.abc import Callable, Collection, Container, Iterable, Iterator, Set
from typing import TypeAlias

from tidelog.core.groups.records import OffsetValue
from tidelog.core.types import TopicId, TopicPartition

IdOf: TypeAlias = Callable[[str], TopicId | None]
"""Returns the id of a topic; None if the topic does not exist."""


class Offsets:
    """Offsets by topic, then by partition, because whole topics are deleted."""

    __slots__ = ("_committed", "_in_doubt", "_pending", "_transactions", "_unstable")

    def __init__(self) -> None:
        self._committed: dict[str, dict[int, OffsetValue]] = {}
        self._pending: dict[TopicPartition, int] = {}
        """The token of the latest pending commit."""
        self._in_doubt: Set[TopicPartition] = frozenset()
        """Commits that may or may not survive the next election (`is_in_doubt`)."""
        self._transactions: dict[int, dict[TopicPartition, OffsetValue | None]] = {}
        """Offsets of open transactions by producer id. None: a later commit replaced the offset."""
        self._unstable: dict[TopicPartition, dict[int, None]] = {}
        """The producers with an open transaction for a partition, in the order of their commits."""

    def __iter__(self) -> Iterator[TopicPartition]:
        for topic, partitions in self._committed.items():
            for partition in partitions:
                yield TopicPartition(topic, partition)

    def __len__(self) -> int:
        return sum(map(len, self._committed.values()))

    @property
    def is_empty(self) -> bool:
        """Whether nothing is committed, pending or in an open transaction."""
        return not self._committed and not self._pending and not self._transactions

    def get(self, topic: str, partition: int) -> OffsetValue | None:
        partitions = self._committed.get(topic)
        return None if partitions is None else partitions.get(partition)

    def put(self, topic: str, partition: int, value: OffsetValue) -> None:
        self._committed.setdefault(topic, {})[partition] = value
        if self._in_doubt:
            self._in_doubt -= {(topic, partition)}
        if self._unstable:
            at = TopicPartition(topic, partition)
            for producer_id in self._unstable.get(at, ()):
                self._transactions[producer_id][at] = None

    def remove(self, removed: Iterable[tuple[str, int]]) -> None:
        """Remove offsets, as far as they exist, also from open transactions."""
        if self._in_doubt or self._unstable:
            removed = list(removed)
            self._in_doubt -= set(removed)
            for topic, partition in removed:
                at = TopicPartition(topic, partition)
                for producer_id in self._unstable.pop(at, ()):
                    self._drop_from_transaction(producer_id, at)
        for topic, partition in removed:
            partitions = self._committed.get(topic)
            if partitions is not None:
                partitions.pop(partition, None)
                if not partitions:
                    del self._committed[topic]

    # -- transactions ---------------------------------------------------------------------

    def put_in_transaction(
        self, producer_id: int, partition: TopicPartition, value: OffsetValue
    ) -> None:
        """Add an offset to a producer's transaction. It is in the log, after all others."""
        self._transactions.setdefault(producer_id, {})[partition] = value
        producers = self._unstable.setdefault(partition, {})
        producers.pop(producer_id, None)
        producers[producer_id] = None

    def end_transaction(self, producer_id: int, *, committed: bool) -> None:
        """Commit or drop the offsets of a producer's transaction."""
        for partition, value in self._transactions.pop(producer_id, {}).items():
            producers = self._unstable[partition]
            if committed and value is not None:
                self._committed.setdefault(partition.topic, {})[partition.partition] = value
                for earlier in producers:
                    if earlier == producer_id:
                        break
                    self._transactions[earlier][partition] = None
            del producers[producer_id]
            if not producers:
                del self._unstable[partition]

    @property
    def has_open_transactions(self) -> bool:
        return bool(self._transactions)

    def _drop_from_transaction(self, producer_id: int, partition: TopicPartition) -> None:
        offsets = self._transactions[producer_id]
        del offsets[partition]
        if not offsets:
            del self._transactions[producer_id]

    # -- pending commits ------------------------------------------------------------------

    def is_pending(self, partition: tuple[str, int]) -> bool:
        """Whether a commit of the partition is being written, or is in an open transaction."""
        return partition in self._pending or partition in self._unstable

    def begin(self, partitions: Iterable[TopicPartition], token: int) -> None:
        """Begin a commit."""
        for partition in partitions:
            self._pending[partition] = token

    def end(
        self, partitions: Collection[TopicPartition], token: int, *, in_doubt: bool = False
    ) -> None:
        """End a commit: its outcome is known, or will stay unknown. A later one may be pending."""
        if in_doubt:
            self._in_doubt |= set(partitions)
        for partition in partitions:
            if self._pending.get(partition) == token:
                del self._pending[partition]

    # -- queries --------------------------------------------------------------------------

    def all_known(self) -> list[TopicPartition]:
        """Return all offsets: committed, pending, in doubt, and in open transactions."""
        unsettled = (*self._pending, *sorted(self._in_doubt), *self._unstable)
        return list(dict.fromkeys((*self, *unsettled)))

    def are_all(self, removed: Collection[TopicPartition]) -> bool:
        """Whether nothing remains without these."""
        gone = set(removed)
        return all(gone.issuperset(some) for some in (self, self._pending, self._unstable))

    def known_of(self, wanted: Iterable[TopicPartition]) -> list[TopicPartition]:
        """Return those of `wanted` that are committed, pending, in doubt or in a transaction."""
        return [
            one
            for one in dict.fromkeys(wanted)
            if self.is_pending(one) or one in self._in_doubt or self.get(*one) is not None
        ]

    def known_of_topics(self, names: Collection[str]) -> list[TopicPartition]:
        """Return the partitions of these topics that `known_of` would return."""
        committed = [
            TopicPartition(name, partition)
            for name in names
            for partition in self._committed.get(name, ())
        ]
        unsettled = (*self._pending, *sorted(self._in_doubt), *self._unstable)
        others = (one for one in unsettled if one.topic in names)
        return list(dict.fromkeys((*committed, *others)))

    def has_any_of(self, names: Collection[str]) -> bool:
        """Whether an offset is committed for one of these topics."""
        return any(name in self._committed for name in names)

    def has_unsettled_for(self, names: Collection[str]) -> bool:
        """Whether a commit for one of these topics is pending, in doubt or in a transaction."""
        return any(one.topic in names for one in (*self._pending, *self._in_doubt, *self._unstable))

    def of_deleted_topics(self, names: Collection[str], id_of: IdOf) -> list[TopicPartition]:
        """Return offsets of deleted topics, but not those of a new topic of the same name."""
        return [
            TopicPartition(name, partition)
            for name in names
            for partition, value in self._committed.get(name, {}).items()
            if value.topic_id is None or value.topic_id != id_of(name)
        ]

    def topics_recreated(self, id_of: IdOf) -> list[str]:
        """Return topics that had another id when an offset was committed: deleted or recreated."""
        return [
            topic
            for topic, partitions in self._committed.items()
            if any(value.topic_id not in (None, id_of(topic)) for value in partitions.values())
        ]

    def expired(
        self,
        wall_ms: int,
        since: Callable[[OffsetValue], int],
        retention_ms: int,
        kept: Container[str],
    ) -> list[TopicPartition]:
        """Return the expired offsets of all topics but `kept`. The retention time begins at
        `since(offset)`, unless the commit has its own expiry time."""
        return [
            TopicPartition(topic, partition)
            for topic, partitions in self._committed.items()
            if topic not in kept
            for partition, value in partitions.items()
            if not self.is_pending((topic, partition))
            and wall_ms
            >= (
                since(value) + retention_ms
                if value.expire_timestamp is None
                else value.expire_timestamp
            )
        ]
