"""Choose the replica that a consumer should read from (KIP-392).

The leader chooses a follower in the consumer's rack that is in sync and whose log has the wanted
offset. The choice is a hint: the follower responds from its own log, up to its own high watermark,
and a consumer that finds nothing there returns to the leader.
"""

from collections.abc import Mapping

from tidelog.core.controller.metadata.registrations import BrokerRegistration
from tidelog.core.replication.log_end_offset import FollowerProgress
from tidelog.core.replication.replica import Replica
from tidelog.core.types import BrokerId, Offset


def preferred_read_replica(
    replica: Replica, offset: Offset, rack: str, brokers: Mapping[BrokerId, BrokerRegistration]
) -> BrokerId | None:
    """Return the in-sync follower of the rack with the largest log end offset; None for the
    leader."""
    if brokers[replica.local].rack == rack:
        return None
    there = [
        (follower.log_end_offset, follower.last_caught_up_ms, broker)
        for broker, follower in replica.followers.items()
        if broker in replica.isr.members
        and broker in replica.brokers
        and brokers[broker].rack == rack
        and _holds(follower, offset)
    ]
    return max(there)[2] if there else None


def _holds(follower: FollowerProgress, offset: Offset) -> bool:
    end = follower.log_end_offset
    return end is not None and follower.log_start_offset <= offset <= end
