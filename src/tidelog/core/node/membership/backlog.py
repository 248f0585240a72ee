"""Changes of the image that the replicas on this broker have not applied yet.

There are three queues, in this order: changes of replicas whose logs exist, logs to create, logs to
delete. So a change of leader does not wait for a new topic of thousands of partitions, and a new
topic does not wait for the deletion of another.

New logs are created in batches, and a replica waits for the last log of its batch. Then the disk
records up to which revision all logs were created. Otherwise a log that was removed while the
broker was down could not be distinguished from one that was never created.
"""

from collections.abc import Iterable
from itertools import islice

from tidelog.core.controller.metadata.metadata_store import Revision
from tidelog.core.controller.metadata.registrations import PartitionKey
from tidelog.core.types import TopicId, TopicPartition


class Backlog:
    """Three queues without duplicates, in order of arrival."""

    __slots__ = ("_batch", "_created", "_next", "changes", "revision", "to_delete")

    def __init__(self) -> None:
        self.changes: dict[PartitionKey, None] = {}
        """Partitions whose registration is to be applied."""
        self.to_delete: dict[TopicPartition, TopicId] = {}
        """Logs of deleted topics, with their topic ids."""
        self.revision: Revision = 0
        """The revision of the image at the start of the current batch."""
        self._batch: dict[PartitionKey, None] = {}
        """Logs to create in the current batch."""
        self._created: dict[PartitionKey, None] = {}
        """Logs of the current batch that are created."""
        self._next: dict[PartitionKey, None] = {}

    @property
    def settled(self) -> bool:
        """Whether every replica has applied the image."""
        return not (self.changes or self._batch or self._next)

    @property
    def is_empty(self) -> bool:
        return self.settled and not self.to_delete

    @property
    def has_logs_to_create(self) -> bool:
        return bool(self._batch or self._next)

    def add_log(self, key: PartitionKey) -> None:
        """Queue a log to create; its registration is applied after that."""
        if key not in self._batch:
            self._next[key] = None

    def logs_to_create(self, most: int, revision: Revision) -> list[PartitionKey]:
        """Return the next logs of the batch, or of a new batch; some may exist already. Call
        `logs_created` once they exist."""
        if not self._batch:
            self._batch, self._next = self._next, {}
            self.revision = revision
        return list(islice(self._batch, most))

    def completes_batch(self, keys: list[PartitionKey]) -> bool:
        """Whether these are the last logs of the batch."""
        return len(keys) == len(self._batch)

    def logs_created(self, keys: Iterable[PartitionKey]) -> None:
        """Note that logs exist; after the last one, queue the changes of the whole batch."""
        for key in keys:
            del self._batch[key]
            self._created[key] = None
        if not self._batch:
            self.changes.update(self._created)
            self._created.clear()

    def next_changes(self, most: int) -> list[PartitionKey]:
        """Remove and return the next partitions to change."""
        taken = list(islice(self.changes, most))
        for key in taken:
            del self.changes[key]
        return taken

    def next_to_delete(self, most: int) -> list[tuple[TopicPartition, TopicId]]:
        """Remove and return the next logs to delete."""
        return [(name, self.to_delete.pop(name)) for name in list(islice(self.to_delete, most))]
