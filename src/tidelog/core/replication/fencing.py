"""Fencing: whoever speaks from an older epoch is refused.

Each request names the leader epoch its sender believes in (KIP-320). Without it a
follower that missed an election goes on copying from a leader that was deposed, and
the two agree on records that nobody else will ever have
(scenarios/fencing/zombie-leader.txt).
"""

from tidelog.core.errors import ErrorCode
from tidelog.core.replication.replica import Replica
from tidelog.core.types import BrokerEpoch, LeaderEpoch

_NONE = ErrorCode.NONE


def leader_epoch_error(known: LeaderEpoch, sent: LeaderEpoch | None) -> ErrorCode:
    """Compare the epoch in a request with ours; old clients send none.

    Always checked before leadership, so that a stale client learns that it is stale and
    not merely that it asked the wrong broker.
    """
    if sent is None or sent == known:
        return _NONE
    return ErrorCode.FENCED_LEADER_EPOCH if sent < known else ErrorCode.UNKNOWN_LEADER_EPOCH


def leadership_error(replica: Replica) -> ErrorCode:
    """Why this replica can't act as leader, if it can't."""
    if replica.offline:
        return ErrorCode.KAFKA_STORAGE_ERROR
    return _NONE if replica.leader == replica.local else ErrorCode.NOT_LEADER_OR_FOLLOWER


def is_stale_incarnation(known: BrokerEpoch | None, sent: BrokerEpoch | None) -> bool:
    """Whether a fetch comes from a broker's life before its last restart (KIP-903)."""
    return sent is not None and known is not None and sent < known
