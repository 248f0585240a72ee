"""KIP-320 as first drafted: a follower truncates when a fetch finds a mismatch.

It does not truncate when it becomes a follower. Fetches carry the epoch of the last record. The
leader still does not know the follower's leader epoch. So it may commit a record on the fetch of a
follower that later truncates this record against another leader.
"""

from tidelog.lab.modelcheck.published.kip_279 import Kip279, high_watermark_reached_own_epoch
from tidelog.lab.modelcheck.published.replication import LeaderAndIsr, Replica, take_request


class Kip320FirstTry(Kip279):
    """Truncate while following, and compare the epoch of the last record in every fetch."""

    name = "kip-320-first-try"

    def become_follower(
        self,
        request: LeaderAndIsr,
        leader: Replica,  # noqa: ARG002
        follower: Replica,
    ) -> Replica:
        return take_request(request, follower)

    def may_truncate_while_following(self, leader: Replica, follower: Replica) -> bool:
        if not super().may_fetch(leader, follower):
            return False
        last = follower.log_end_offset - 1
        if last >= leader.log_end_offset:
            return True
        return last >= 0 and leader.log[last].epoch != follower.log[last].epoch

    def may_fetch(self, leader: Replica, follower: Replica) -> bool:
        return self.is_caught_up(leader, follower, follower.log_end_offset)

    def acknowledges(self, leader: Replica, follower: Replica, offset: int) -> bool:
        return self.is_caught_up(leader, follower, offset + 1)

    def is_caught_up(self, leader: Replica, follower: Replica, end: int) -> bool:
        """Add to the base rule: the record before `end` has the same epoch on both replicas."""
        if not leader.presumes_leadership or not super().is_caught_up(leader, follower, end):
            return False
        return end == 0 or leader.log[end - 1].epoch == follower.log[end - 1].epoch

    def may_expand(self, leader: Replica, follower: Replica) -> bool:
        return super().may_expand(leader, follower) and high_watermark_reached_own_epoch(leader)
