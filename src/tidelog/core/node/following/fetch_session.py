"""An incremental fetch session on the follower (KIP-227).

It remembers the position last sent for each partition, so that the next request names only changes.
After any error the session starts over with a full request, which also makes the leader drop the
old session.

Invariant while a request is in flight: `asked` has the positions of that request and those before
it; the response is interpreted with them.
"""

from tidelog.core.errors import ErrorCode
from tidelog.core.node.messages import (
    NEW_SESSION,
    SESSION_EPOCH_MAX,
    FetchPartition,
    FetchResponse,
)
from tidelog.core.types import TopicPartition


class FetchSessionClient:
    """The positions that one leader knows."""

    __slots__ = ("asked", "changed", "epoch", "forgotten", "id")

    def __init__(self) -> None:
        self.id = 0
        self.epoch = NEW_SESSION
        self.asked: dict[TopicPartition, FetchPartition] = {}
        self.changed: dict[TopicPartition, FetchPartition] = {}
        """Positions to send with the next request."""
        self.forgotten: dict[TopicPartition, None] = {}

    def ask(self, partition: FetchPartition) -> None:
        """Add or change the position of a partition."""
        topic_partition = partition.topic_partition
        if self.asked.get(topic_partition) != partition:
            self.asked[topic_partition] = self.changed[topic_partition] = partition
            self.forgotten.pop(topic_partition, None)

    def forget(self, topic_partition: TopicPartition) -> None:
        """Remove a partition."""
        if self.asked.pop(topic_partition, None) is not None:
            self.changed.pop(topic_partition, None)
            self.forgotten[topic_partition] = None

    def take_changes(self) -> tuple[list[FetchPartition], list[TopicPartition]]:
        """Return the positions for the next request, all if it is the first, and the partitions to
        remove from the session."""
        full = self.epoch == NEW_SESSION
        partitions = list((self.asked if full else self.changed).values())
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
