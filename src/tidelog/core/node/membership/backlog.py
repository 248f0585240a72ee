"""Partitions that the image has told of, and that are not as it says here yet.

Three lanes, in the order in which a broker goes on with them: words about replicas whose logs
are there, logs to be made, logs to be let go. So a leader that changes does not wait for a new
topic of thousands, nor that one for the removal of another.

New logs come in batches, and a replica waits for the last log of its batch. Then the disk knows
up to which revision all logs were made: before, a log that somebody took away while the broker
was down could not be told from one that was never made.
"""

from collections.abc import Iterable
from itertools import islice

from tidelog.core.controller.metadata.metadata_store import Revision
from tidelog.core.controller.metadata.registrations import PartitionKey
from tidelog.core.types import TopicId, TopicPartition


class Backlog:
    """What waits, each thing once, in the order in which it came."""

    __slots__ = ("_batch", "_made", "_next", "leaving", "revision", "words")

    def __init__(self) -> None:
        self.words: dict[PartitionKey, None] = {}
        """Replicas that are to hear what the image says."""
        self.leaving: dict[TopicPartition, TopicId] = {}
        """Logs of topics that are no more, with the ids that they had."""
        self.revision: Revision = 0
        """Of the image when the batch under way was begun."""
        self._batch: dict[PartitionKey, None] = {}
        """Logs to be made."""
        self._made: dict[PartitionKey, None] = {}
        """Those of the batch that are made."""
        self._next: dict[PartitionKey, None] = {}

    @property
    def settled(self) -> bool:
        """Whether every replica that is to be here is as the image says."""
        return not (self.words or self._batch or self._next)

    @property
    def is_empty(self) -> bool:
        return self.settled and not self.leaving

    @property
    def has_logs_to_make(self) -> bool:
        return bool(self._batch or self._next)

    def add_log(self, key: PartitionKey) -> None:
        """Its log is to be made before it hears anything."""
        if key not in self._batch:
            self._next[key] = None

    def logs_to_make(self, most: int, revision: Revision) -> list[PartitionKey]:
        """The next of the batch, of a new one if none is under way; some may be there already.
        Call `logs_made` once they are."""
        if not self._batch:
            self._batch, self._next = self._next, {}
            self.revision = revision
        return list(islice(self._batch, most))

    def completes_batch(self, keys: list[PartitionKey]) -> bool:
        return len(keys) == len(self._batch)

    def logs_made(self, keys: Iterable[PartitionKey]) -> None:
        """They are there; if they were the last of the batch, all of it goes on."""
        for key in keys:
            del self._batch[key]
            self._made[key] = None
        if not self._batch:
            self.words.update(self._made)
            self._made.clear()

    def next_words(self, most: int) -> list[PartitionKey]:
        """Take out the next replicas that are to hear something."""
        taken = list(islice(self.words, most))
        for key in taken:
            del self.words[key]
        return taken

    def next_leaving(self, most: int) -> list[tuple[TopicPartition, TopicId]]:
        """Take out the next logs that are to be let go."""
        return [(name, self.leaving.pop(name)) for name in list(islice(self.leaving, most))]
