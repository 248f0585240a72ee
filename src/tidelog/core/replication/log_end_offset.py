"""The log end offset (LEO): where the next record goes, on this replica and the others.

A replica knows its own LEO. Of a follower's, the leader knows only what the follower's
fetches reveal: a fetch at offset n says "I hold everything below n". Never what was
sent to it: that may not have arrived.

A follower counts as caught up by *time*, not by distance: a follower that is always one
round trip behind a busy leader is healthy, one that stands ten records behind a silent
leader is not. (A rule by message count, `replica.lag.max.messages`, existed once; every
burst threw healthy followers out.) Scenarios: scenarios/isr/
"""

from tidelog.core.slotted import replace, slotted
from tidelog.core.types import BrokerEpoch, Offset

NEVER_MS = -(1 << 60)
"""Stands for "not caught up at any time that counts", whatever the clock says."""


@slotted
class FollowerProgress:
    """What a leader knows of one follower, in the current leader epoch only."""

    log_end_offset: Offset | None
    """None until the follower has fetched in this epoch: it could hold anything."""
    log_start_offset: Offset
    leader_log_end_offset: Offset
    """The leader's own LEO when the follower last fetched."""
    last_fetch_ms: int
    last_caught_up_ms: int
    broker_epoch: BrokerEpoch | None
    """Which incarnation of the broker fetched (KIP-903)."""

    def fetched(self, offset: Offset, *, leader_log_end_offset: Offset, now_ms: int) -> None:
        """Note a fetch at `offset`, made when the leader's log ended where it says.

        A follower that has now reached what the leader had at the *previous* fetch was
        caught up then: that is the credit for being one round trip behind.
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
        """An independent copy."""
        return replace(self)


def unknown_follower(*, in_sync: bool, now_ms: int) -> FollowerProgress:
    """Progress at the start of a leader epoch, whoever led before.

    Kafka keeps what it knew when the same broker leads again under a newer epoch. That
    is not safe: the follower may have truncated under the epoch in between, and the high
    watermark would pass records it no longer has. So we forget on every epoch change,
    for the price of one fetch (scenarios/epochs/forget-what-followers-had.txt).
    """
    return FollowerProgress(
        log_end_offset=None,
        log_start_offset=0,
        leader_log_end_offset=-1,
        last_fetch_ms=NEVER_MS,
        last_caught_up_ms=now_ms if in_sync else NEVER_MS,
        broker_epoch=None,
    )
