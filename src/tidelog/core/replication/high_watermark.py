"""The high watermark (HW): the offset up to which the log is committed and can be read.

A record is committed when every replica that could become leader has it. Those are the maximal
ISR (isr.py) and any follower that has caught up and is about to join: if the HW did not wait for
such a follower, the follower might never reach it.

Invariants, also checked by lab/spec/invariants.py:

    high watermark <= log end offset
    a leader's high watermark never moves back

A follower's may: it is the value that the leader sends, and a new leader's may be lower.
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
    """Return the leader's HW after a log end offset or the ISR has changed.

    `durable_end_offset` is the leader's own log end offset, or its flushed offset with
    flush-before-ack. With fewer than `min_isr` in-sync replicas the HW stays: otherwise the last
    one would commit records alone, and its crash could lose them (KIP-966).
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
    # A replica that joins may be behind the current HW, which never moves back.
    return max(current, slowest)


def follower_high_watermark(
    received: Offset, *, log_start_offset: Offset, log_end_offset: Offset
) -> Offset:
    """Return a follower's HW after a fetch response with the leader's HW."""
    return max(log_start_offset, min(received, log_end_offset))
