"""The offsets that a group has committed, and those that are being written.

Invariants: an offset becomes visible when its record is committed, not before. An offset with a
pending commit does not expire.
"""

from collections.abc import Callable, Collection, Container, Iterable, Iterator, Set
from typing import TypeAlias

from tidelog.core.groups.records import OffsetValue
from tidelog.core.types import TopicId, TopicPartition

IdOf: TypeAlias = Callable[[str], TopicId | None]
"""Returns the id of a topic; None if the topic does not exist."""


class Offsets:
    """Offsets by topic, then by partition, because whole topics are deleted."""

    __slots__ = ("_committed", "_in_doubt", "_pending")

    def __init__(self) -> None:
        self._committed: dict[str, dict[int, OffsetValue]] = {}
        self._pending: dict[TopicPartition, int] = {}
        """The token of the latest pending commit."""
        self._in_doubt: Set[TopicPartition] = frozenset()
        """Commits that may or may not survive the next election (`is_in_doubt`)."""

    def __iter__(self) -> Iterator[TopicPartition]:
        for topic, partitions in self._committed.items():
            for partition in partitions:
                yield TopicPartition(topic, partition)

    def __len__(self) -> int:
        return sum(map(len, self._committed.values()))

    @property
    def is_empty(self) -> bool:
        """Whether nothing is committed or pending."""
        return not self._committed and not self._pending

    def get(self, topic: str, partition: int) -> OffsetValue | None:
        partitions = self._committed.get(topic)
        return None if partitions is None else partitions.get(partition)

    def put(self, topic: str, partition: int, value: OffsetValue) -> None:
        self._committed.setdefault(topic, {})[partition] = value
        if self._in_doubt:
            self._in_doubt -= {(topic, partition)}

    def remove(self, removed: Iterable[tuple[str, int]]) -> None:
        """Remove offsets, as far as they exist."""
        if self._in_doubt:
            removed = list(removed)
            self._in_doubt -= set(removed)
        for topic, partition in removed:
            partitions = self._committed.get(topic)
            if partitions is not None:
                partitions.pop(partition, None)
                if not partitions:
                    del self._committed[topic]

    # -- pending commits ------------------------------------------------------------------

    def is_pending(self, partition: TopicPartition) -> bool:
        return partition in self._pending

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
        """Return all offsets: committed, pending for the first time, and in doubt."""
        return list(dict.fromkeys((*self, *self._pending, *sorted(self._in_doubt))))

    def are_all(self, removed: Collection[TopicPartition]) -> bool:
        """Whether nothing remains without these."""
        return set(removed).issuperset(self) and set(removed).issuperset(self._pending)

    def known_of(self, wanted: Iterable[TopicPartition]) -> list[TopicPartition]:
        """Return those of `wanted` that are committed, pending or in doubt."""
        return [
            one
            for one in dict.fromkeys(wanted)
            if one in self._pending or one in self._in_doubt or self.get(*one) is not None
        ]

    def known_of_topics(self, names: Collection[str]) -> list[TopicPartition]:
        """Return the partitions of these topics with a committed, pending or in-doubt offset."""
        committed = [
            TopicPartition(name, partition)
            for name in names
            for partition in self._committed.get(name, ())
        ]
        others = [one for one in (*self._pending, *sorted(self._in_doubt)) if one.topic in names]
        return list(dict.fromkeys((*committed, *others)))

    def has_any_of(self, names: Collection[str]) -> bool:
        """Whether an offset is committed for one of these topics."""
        return any(name in self._committed for name in names)

    def has_unsettled_for(self, names: Collection[str]) -> bool:
        """Whether a commit for one of these topics is pending or in doubt."""
        return any(one.topic in names for one in (*self._pending, *self._in_doubt))

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
            if (topic, partition) not in self._pending
            and wall_ms
            >= (
                since(value) + retention_ms
                if value.expire_timestamp is None
                else value.expire_timestamp
            )
        ]
