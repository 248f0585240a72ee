"""An incremental fetch session, the asking side (KIP-227).

Remembers what the leader was last asked about each partition, so that the next request
names only what is different. When anything goes wrong, the session starts over with a
full request, which also tells the leader to drop the old one.

Always true while a request is in flight: `asked` is what that request, with those before
it, asked for; an answer is read against it.
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
    """What one leader knows that we want."""

    __slots__ = ("asked", "changed", "epoch", "forgotten", "id")

    def __init__(self) -> None:
        self.id = 0
        self.epoch = NEW_SESSION
        self.asked: dict[TopicPartition, FetchPartition] = {}
        self.changed: dict[TopicPartition, FetchPartition] = {}
        """To be named in the next request."""
        self.forgotten: dict[TopicPartition, None] = {}

    def ask(self, partition: FetchPartition) -> None:
        topic_partition = partition.topic_partition
        if self.asked.get(topic_partition) != partition:
            self.asked[topic_partition] = self.changed[topic_partition] = partition
            self.forgotten.pop(topic_partition, None)

    def forget(self, topic_partition: TopicPartition) -> None:
        if self.asked.pop(topic_partition, None) is not None:
            self.changed.pop(topic_partition, None)
            self.forgotten[topic_partition] = None

    def take_changes(self) -> tuple[list[FetchPartition], list[TopicPartition]]:
        """What the next request names: all, if it is the first."""
        full = self.epoch == NEW_SESSION
        partitions = list((self.asked if full else self.changed).values())
        forgotten = [] if full else list(self.forgotten)
        self.changed.clear()
        self.forgotten.clear()
        return partitions, forgotten

    def answered(self, response: FetchResponse) -> bool:
        """Take note of an answer; False if the session is void and must start over."""
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
        """Name everything again; the old id stays in the request, to be dropped."""
        self.epoch = NEW_SESSION
