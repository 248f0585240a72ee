"""When a leader may serve a partition while the metadata store does not respond.

A broker that can't renew its session must assume that it was replaced. Its followers show whether
it was: a replica that was elected in its place no longer fetches in the old leader epoch, nor does
a follower of the new leader. So fetches in the current leader epoch are a *lease*: while every
in-sync follower keeps fetching, no other replica of the ISR leads. The conditions, with their
reasons:

    the leader is not alone in its ISR      alone, it would commit what no other replica has
    every follower that may be in the ISR   a silent one may be the new leader
    has fetched in this leader epoch,       earlier fetches prove nothing about this leader
    and has confirmed a recent response     a replaced leader stops serving; a fetch that waited in
                                            a socket while this process hung proves nothing
    no unclean election is allowed          it elects a replica whose fetches do not count

The high watermark waits for the same followers, with or without a lease: all of them have each
acknowledged record. Story: scenarios/fencing/followers-hold-a-leader-without-the-store.txt
"""

from collections.abc import Callable

from tidelog.core.replication.replica import Replica
from tidelog.core.types import BrokerId


def holds_lease(replica: Replica, is_confirmed: Callable[[BrokerId], bool]) -> bool:
    """Whether this leader may serve without a valid session.

    `is_confirmed`: whether a follower has confirmed lately, by a fetch in this leader epoch, that
    it follows this leader.
    """
    if not replica.is_leader or len(replica.isr.members) < 2:
        return False
    if replica.config.unclean_leader_election_enable:
        return False
    for broker in replica.isr.maximal - {replica.local}:
        if replica.followers[broker].log_end_offset is None or not is_confirmed(broker):
            return False
    return True
