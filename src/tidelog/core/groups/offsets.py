"""The offsets a group has committed, and those that are being written.

Always true: what is committed was written; a commit under way is not to be seen before. An
offset with a commit under way does not expire.
"""

from collections.abc import Callable, Collection, Container, Iterable, Iterator, Set
from typing import TypeAlias

from tidelog.core.groups.records import OffsetValue
from tidelog.core.types import TopicId, TopicPartition

IdOf: TypeAlias = Callable[[str], TopicId | None]
"""The id that a topic has now; None if there is none of that name."""


class Offsets:
    """By topic, then by partition: whole topics can be asked for and deleted."""

    __slots__ = ("_committed", "_in_doubt", "_pending")

    def __init__(self) -> None:
        self._committed: dict[str, dict[int, OffsetValue]] = {}
        self._pending: dict[TopicPartition, int] = {}
        """The token of the latest commit under way."""
        self._in_doubt: Set[TopicPartition] = frozenset()
        """Commits of which nobody knows whether the next coordinator will find them."""

    def __iter__(self) -> Iterator[TopicPartition]:
        for topic, partitions in self._committed.items():
            for partition in partitions:
                yield TopicPartition(topic, partition)

    def __len__(self) -> int:
        return sum(map(len, self._committed.values()))

    @property
    def is_empty(self) -> bool:
        """Neither committed ones nor any under way."""
        return not self._committed and not self._pending

    def get(self, topic: str, partition: int) -> OffsetValue | None:
        partitions = self._committed.get(topic)
        return None if partitions is None else partitions.get(partition)

    def put(self, topic: str, partition: int, value: OffsetValue) -> None:
        self._committed.setdefault(topic, {})[partition] = value
        if self._in_doubt:
            self._in_doubt -= {(topic, partition)}

    def remove(self, gone: Iterable[tuple[str, int]]) -> None:
        """Those that are not there are fine."""
        if self._in_doubt:
            gone = list(gone)
            self._in_doubt -= set(gone)
        for topic, partition in gone:
            partitions = self._committed.get(topic)
            if partitions is not None:
                partitions.pop(partition, None)
                if not partitions:
                    del self._committed[topic]

    # -- commits under way ----------------------------------------------------------------

    def is_pending(self, partition: TopicPartition) -> bool:
        return partition in self._pending

    def begin(self, partitions: Iterable[TopicPartition], token: int) -> None:
        """A commit is being written."""
        for partition in partitions:
            self._pending[partition] = token

    def end(
        self, partitions: Collection[TopicPartition], token: int, *, in_doubt: bool = False
    ) -> None:
        """It is known how it went, or never will be; a later one may be under way."""
        if in_doubt:
            self._in_doubt |= set(partitions)
        for partition in partitions:
            if self._pending.get(partition) == token:
                del self._pending[partition]

    # -- which of them go -----------------------------------------------------------------

    def all_known(self) -> list[TopicPartition]:
        """With those that are being committed for the first time, and those in doubt."""
        return list(dict.fromkeys((*self, *self._pending, *sorted(self._in_doubt))))

    def are_all(self, gone: Collection[TopicPartition]) -> bool:
        """Whether nothing is left without these."""
        return set(gone).issuperset(self) and set(gone).issuperset(self._pending)

    def known_of(self, wanted: Iterable[TopicPartition]) -> list[TopicPartition]:
        """Those of the wanted ones that are committed, under way or in doubt."""
        return [
            one
            for one in dict.fromkeys(wanted)
            if one in self._pending or one in self._in_doubt or self.get(*one) is not None
        ]

    def known_of_topics(self, names: Collection[str]) -> list[TopicPartition]:
        """All that is known of some topics."""
        committed = [
            TopicPartition(name, partition)
            for name in names
            for partition in self._committed.get(name, ())
        ]
        others = [one for one in (*self._pending, *sorted(self._in_doubt)) if one.topic in names]
        return list(dict.fromkeys((*committed, *others)))

    def has_any_of(self, names: Collection[str]) -> bool:
        """Whether anything is committed for one of these topics."""
        return any(name in self._committed for name in names)

    def is_unsure_of(self, names: Collection[str]) -> bool:
        """Whether a commit for one of these topics is under way, or in doubt."""
        return any(one.topic in names for one in (*self._pending, *self._in_doubt))

    def of_topics_gone(self, names: Collection[str], id_of: IdOf) -> list[TopicPartition]:
        """Committed for some topics as they were; not for one that has such a name now."""
        return [
            TopicPartition(name, partition)
            for name in names
            for partition, value in self._committed.get(name, {}).items()
            if value.topic_id is None or value.topic_id != id_of(name)
        ]

    def topics_gone(self, id_of: IdOf) -> list[str]:
        """Topics that had another id when something was committed for them."""
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
        """Those whose time is over, apart from some topics. `since` tells from when on it runs,
        unless the commit itself said when it is over."""
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
