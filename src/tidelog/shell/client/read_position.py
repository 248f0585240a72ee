"""A read position in a partition, and whether the log still contains what was read.

When the leader changes, the position is compared with the new leader's epochs before reading
continues (KIP-320). Truncated records and deleted offsets are reported in one line, and reading
continues. Invariant: a position moves back only with such a line.
"""

from collections.abc import Callable

from tidelog.core.errors import ErrorCode
from tidelog.core.slotted import slotted
from tidelog.core.types import BrokerId, LeaderEpoch, Offset, TopicId, TopicPartition
from tidelog.shell.client.client_errors import BrokerError
from tidelog.shell.client.cluster import Cluster
from tidelog.shell.client.cluster_metadata import NO_LEADER, NO_TOPIC_ID
from tidelog.shell.client.fetching import READ_UNCOMMITTED, FetchFrom
from tidelog.shell.client.offsets import EARLIEST, LATEST, epoch_end, list_offset

UNKNOWN_EPOCH = -1
PARTITION_BYTES = 1024 * 1024

Notify = Callable[[str], None]


@slotted(eq=False)
class ReadPosition:
    """How far a partition is read, and from which leader."""

    offset: Offset
    end: Offset | None
    read_epoch: LeaderEpoch = UNKNOWN_EPOCH
    """The leader epoch of the last batch that was read."""
    leader: BrokerId = NO_LEADER
    leader_epoch: LeaderEpoch = UNKNOWN_EPOCH
    """The epoch of the leader whose log the position was last compared with."""
    topic_id: TopicId = NO_TOPIC_ID
    failing_since: float | None = None

    @property
    def done(self) -> bool:
        return self.end is not None and self.offset >= self.end

    def fetch_from(self) -> FetchFrom:
        return FetchFrom(self.offset, self.leader_epoch, PARTITION_BYTES)


def follow_leader(
    cluster: Cluster, key: TopicPartition, position: ReadPosition, notify: Notify
) -> bool:
    """Update the leader of a position, and compare the position with a new leader's log.

    Returns False if the metadata is older than the leader epoch that the position has seen.
    Raises ClientError.
    """
    topic = cluster.topic(key.topic)
    if position.topic_id != topic.id and position.topic_id != NO_TOPIC_ID:
        notify(f"topic {key.topic} was deleted and recreated; reading {key} from its beginning")
        position.offset, position.read_epoch = 0, UNKNOWN_EPOCH
        position.leader, position.leader_epoch = NO_LEADER, UNKNOWN_EPOCH
    position.topic_id = topic.id
    known = cluster.partition(*key)
    if known.leader == NO_LEADER:
        raise BrokerError(f"{key} has no leader", ErrorCode.LEADER_NOT_AVAILABLE)
    if known.leader_epoch < position.leader_epoch:
        return False
    if known.leader_epoch != position.leader_epoch and position.read_epoch >= 0:
        _compare(cluster, key, position, notify)
        known = cluster.partition(*key)  # it may have changed during the request
    if position.leader not in (NO_LEADER, known.leader):
        notify(f"{key} is now led by broker {known.leader}; continuing at offset {position.offset}")
    position.leader, position.leader_epoch = known.leader, known.leader_epoch
    return True


def _compare(cluster: Cluster, key: TopicPartition, position: ReadPosition, notify: Notify) -> None:
    """Move the position back to where the leader's log differs from what was read."""
    epoch, end = epoch_end(cluster, *key, position.read_epoch)
    if end < 0 or (epoch == position.read_epoch and end >= position.offset):
        return
    if end < position.offset:
        notify(
            f"{key} was truncated: offsets {end} to {position.offset - 1}, which were read, are"
            f" no longer in the log; continuing at offset {end}"
        )
        position.offset = end
        _shorten(cluster, key, position)
    position.read_epoch = epoch


def _shorten(
    cluster: Cluster, key: TopicPartition, position: ReadPosition, isolation: int = READ_UNCOMMITTED
) -> None:
    """Lower the requested end to the end of the log."""
    if position.end is not None:
        position.end = min(position.end, list_offset(cluster, *key, LATEST, isolation).offset)


def return_to_range(
    cluster: Cluster, key: TopicPartition, position: ReadPosition, notify: Notify
) -> None:
    """Move a position that is outside the leader's log to its nearest end, with a message.
    Raises ClientError."""
    first = list_offset(cluster, *key, EARLIEST).offset
    last = list_offset(cluster, *key, LATEST).offset
    if first <= position.offset <= last:
        raise BrokerError(f"{key} at offset {position.offset}", ErrorCode.OFFSET_NOT_AVAILABLE)
    if position.offset < first:
        why = f"the log of {key} begins at offset {first}, after offset {position.offset}"
        position.offset = first
    else:
        why = f"the log of {key} ends at offset {last}, before {position.offset}"
        position.offset = last
    position.read_epoch = UNKNOWN_EPOCH
    notify(f"{why}; continuing at offset {position.offset}")
    _shorten(cluster, key, position)
