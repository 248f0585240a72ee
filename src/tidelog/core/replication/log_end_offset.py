"""The log end offset (LEO): the offset of the next record, on this replica and its followers.

A replica knows its own LEO. The leader learns a follower's LEO only from the follower's fetches: a
fetch at offset n means that the follower has every record below n. Records that were sent do not
count: they may not have arrived.

A follower counts as caught up by *time*, not by distance: a follower that is always one round trip
behind a busy leader is healthy, one that stays ten records behind an idle leader is not. (A limit
by message count, `replica.lag.max.messages`, existed once; every burst removed healthy followers
from the ISR.) Scenarios: scenarios/isr/
"""

from tidelog.core.slotted import replace, slotted
from tidelog.core.types import BrokerEpoch, Offset

NEVER_MS = -(1 << 60)
"""The time of the last catch-up for a follower that has never caught up."""


@slotted
class FollowerProgress:
    """The leader's view of one follower, in the current leader epoch only."""

    log_end_offset: Offset | None
    """None until the follower has fetched in this epoch: its log is unknown before."""
    log_start_offset: Offset
    leader_log_end_offset: Offset
    """The leader's own LEO when the follower last fetched."""
    last_fetch_ms: int
    last_caught_up_ms: int
    broker_epoch: BrokerEpoch | None
    """The broker epoch in the follower's last fetch (KIP-903)."""

    def fetched(self, offset: Offset, *, leader_log_end_offset: Offset, now_ms: int) -> None:
        """Record a fetch at `offset`; the leader's log ended at `leader_log_end_offset` then.

        A follower that has now reached the leader's log end of the *previous* fetch was caught up
        at that fetch: so being one round trip behind counts as caught up.
        """
        if offset >= leader_log_end_offset:
            self.last_caught_up_ms = max(self.last_caught_up_ms, now_ms)
        elif offset >= self.leader_log_end_offset:
            self.last_caught_up_ms = max(self.last_caught_up_ms, self.last_fetch_ms)
        self.log_end_offset = offset
        self.leader_log_end_offset = max(self.leader_log_end_offset, leader_log_end_offset)
        self.last_fetch_ms = now_ms

    def caught_up(self, *, leader_log_end_offset: Offset, now_ms: int, lag_ms_max: int) -> bool:
        """Whether this follower is in sync at `now_ms`."""
        return (
            self.log_end_offset == leader_log_end_offset
            or now_ms - self.last_caught_up_ms <= lag_ms_max
        )

    def copy(self) -> "FollowerProgress":
        """Return an independent copy."""
        return replace(self)


def unknown_follower(*, in_sync: bool, now_ms: int) -> FollowerProgress:
    """Return a follower's progress at the start of a leader epoch.

    Kafka keeps the progress if the same broker leads again in a newer epoch. That is not safe:
    the follower may have truncated its log in an epoch in between, and the high watermark would
    pass records that it no longer has. So progress is reset at every epoch change, which costs
    one fetch (scenarios/epochs/forget-what-followers-had.txt).
    """
    return FollowerProgress(
        log_end_offset=None,
        log_start_offset=0,
        leader_log_end_offset=-1,
        last_fetch_ms=NEVER_MS,
        last_caught_up_ms=now_ms if in_sync else NEVER_MS,
        broker_epoch=None,
    )
