"""A place in a partition's log, and whether the log is still the one that was read.

When a leader changes, the place is compared with the new leader's epochs before it is read on
(as KIP-320 has it); what was truncated, and offsets that are gone, are told in one line and
followed. Always true: a place moves back only with such a line.
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

Tell = Callable[[str], None]


@slotted(eq=False)
class Place:
    """Where a partition is read."""

    offset: Offset
    end: Offset | None
    read_epoch: LeaderEpoch = UNKNOWN_EPOCH
    """Of the last batch that was read."""
    leader: BrokerId = NO_LEADER
    leader_epoch: LeaderEpoch = UNKNOWN_EPOCH
    """The leader with whose log the place was last compared."""
    topic_id: TopicId = NO_TOPIC_ID
    failing_since: float | None = None

    @property
    def done(self) -> bool:
        return self.end is not None and self.offset >= self.end

    def fetch_from(self) -> FetchFrom:
        return FetchFrom(self.offset, self.leader_epoch, PARTITION_BYTES)


def follow_leader(cluster: Cluster, key: TopicPartition, place: Place, tell: Tell) -> bool:
    """Learn who leads; compare the place with that leader's log. False: what is known of the
    cluster is older than what this place has seen. Raises ClientError."""
    topic = cluster.topic(key.topic)
    if place.topic_id != topic.id and place.topic_id != NO_TOPIC_ID:
        tell(f"topic {key.topic} was deleted and created anew; reading {key} from its beginning")
        place.offset, place.read_epoch = 0, UNKNOWN_EPOCH
        place.leader, place.leader_epoch = NO_LEADER, UNKNOWN_EPOCH
    place.topic_id = topic.id
    known = cluster.partition(*key)
    if known.leader == NO_LEADER:
        raise BrokerError(f"{key} has no leader", ErrorCode.LEADER_NOT_AVAILABLE)
    if known.leader_epoch < place.leader_epoch:
        return False
    if known.leader_epoch != place.leader_epoch and place.read_epoch >= 0:
        _compare(cluster, key, place, tell)
        known = cluster.partition(*key)  # it may have changed once more while we asked
    if place.leader not in (NO_LEADER, known.leader):
        tell(f"{key} is now led by broker {known.leader}; reading on at offset {place.offset}")
    place.leader, place.leader_epoch = known.leader, known.leader_epoch
    return True


def _compare(cluster: Cluster, key: TopicPartition, place: Place, tell: Tell) -> None:
    """If the leader's log does not have what was read, step back to where it differs."""
    epoch, end = epoch_end(cluster, *key, place.read_epoch)
    if end < 0 or (epoch == place.read_epoch and end >= place.offset):
        return
    if end < place.offset:
        tell(
            f"{key} was truncated: offsets {end} to {place.offset - 1}, read before, are no longer"
            f" in the log; reading on at offset {end}"
        )
        place.offset = end
        _shorten(cluster, key, place)
    place.read_epoch = epoch


def _shorten(
    cluster: Cluster, key: TopicPartition, place: Place, isolation: int = READ_UNCOMMITTED
) -> None:
    """The end that was asked for may no longer exist."""
    if place.end is not None:
        place.end = min(place.end, list_offset(cluster, *key, LATEST, isolation).offset)


def return_to_range(cluster: Cluster, key: TopicPartition, place: Place, tell: Tell) -> None:
    """The leader has nothing at this offset: go where it has, and say so. Raises ClientError."""
    first = list_offset(cluster, *key, EARLIEST).offset
    last = list_offset(cluster, *key, LATEST).offset
    if first <= place.offset <= last:
        raise BrokerError(f"{key} at offset {place.offset}", ErrorCode.OFFSET_NOT_AVAILABLE)
    if place.offset < first:
        why = f"the log of {key} begins at offset {first}; {place.offset} is gone"
        place.offset = first
    else:
        why = f"the log of {key} ends at offset {last}, before {place.offset}"
        place.offset = last
    place.read_epoch = UNKNOWN_EPOCH
    tell(f"{why}; reading on at offset {place.offset}")
    _shorten(cluster, key, place)
