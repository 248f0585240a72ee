"""Fencing: requests from an older epoch are rejected.

Each request carries the leader epoch that its sender knows (KIP-320). Without it a follower that
missed an election would continue to copy from the former leader, and the two would have records
that no other replica ever gets (scenarios/fencing/zombie-leader.txt).
"""

from tidelog.core.errors import ErrorCode
from tidelog.core.replication.replica import Replica
from tidelog.core.types import BrokerEpoch, LeaderEpoch

_NONE = ErrorCode.NONE


def leader_epoch_error(known: LeaderEpoch, sent: LeaderEpoch | None) -> ErrorCode:
    """Compare the leader epoch in a request with the known one; old clients send none.

    This is checked before leadership: a client with stale metadata gets an error that says so,
    not NOT_LEADER_OR_FOLLOWER.
    """
    if sent is None or sent == known:
        return _NONE
    return ErrorCode.FENCED_LEADER_EPOCH if sent < known else ErrorCode.UNKNOWN_LEADER_EPOCH


def leadership_error(replica: Replica) -> ErrorCode:
    """Return why this replica can't serve as leader; NONE if it can."""
    if replica.offline:
        return ErrorCode.KAFKA_STORAGE_ERROR
    return _NONE if replica.leader == replica.local else ErrorCode.NOT_LEADER_OR_FOLLOWER


def is_stale_incarnation(known: BrokerEpoch | None, sent: BrokerEpoch | None) -> bool:
    """Whether a broker sent this fetch before its last restart (KIP-903)."""
    return sent is not None and known is not None and sent < known
