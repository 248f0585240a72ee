"""The high watermark (HW): how much of the log is committed and may be shown.

A record is committed once every replica that could become leader holds it. Those are
the maximal ISR (isr.py), and any follower that has caught up and is about to join: if
the HW did not wait for such a follower, it might run away from it for ever.

Always true, and checked again from outside by lab/spec/invariants.py:

    high watermark <= log end offset
    a leader's high watermark never moves back

A follower's may: it takes what its leader says, and a new leader may know less.
Scenarios: scenarios/basics/
"""

from collections.abc import Mapping

from tidelog.core.replication.isr import Isr, may_join
from tidelog.core.replication.log_end_offset import FollowerProgress
from tidelog.core.types import BrokerEpoch, BrokerId, Offset


def leader_high_watermark(
    current: Offset,
    *,
    durable_end_offset: Offset,
    log_end_offset: Offset,
    isr: Isr,
    followers: Mapping[BrokerId, FollowerProgress],
    eligible: Mapping[BrokerId, BrokerEpoch | None],
    min_isr: int,
    now_ms: int,
    lag_ms_max: int,
) -> Offset:
    """The leader's HW after some log end offset or the ISR has changed.

    `durable_end_offset` is the leader's own contribution: its LEO, or how far it has
    flushed where flush-before-ack is on. Below `min_isr` nothing more commits: otherwise
    the last replica standing would commit alone what its own crash can lose (KIP-966).
    """
    if len(isr.members) < min_isr:
        return current
    maximal = isr.maximal
    slowest = durable_end_offset
    for broker, follower in followers.items():
        reached = follower.log_end_offset
        if reached is None:
            if broker in maximal:
                return current
        elif reached < slowest and (
            broker in maximal
            or (
                may_join(broker, follower.broker_epoch, eligible)
                and follower.caught_up(
                    leader_log_end_offset=log_end_offset, now_ms=now_ms, lag_ms_max=lag_ms_max
                )
            )
        ):
            slowest = reached
    # A replica that joins may still trail what was already shown: that stays shown.
    return max(current, slowest)


def follower_high_watermark(
    told: Offset, *, log_start_offset: Offset, log_end_offset: Offset
) -> Offset:
    """A follower's HW after it has appended a reply that carries the leader's."""
    return max(log_start_offset, min(told, log_end_offset))
