"""KIP-320, the rule Kafka ships: leader and follower interact only if they are in one epoch.

`without` removes one of the five rules, to build a mutant. Three replicas need every rule.
"""

from tidelog.lab.modelcheck.published.kip_279 import Kip279, high_watermark_reached_own_epoch
from tidelog.lab.modelcheck.published.replication import LeaderAndIsr, Replica

EPOCH_IN_COMMIT = "epoch-check-in-commit"
EPOCH_IN_FETCH = "epoch-check-in-fetch"
EPOCH_IN_EXPAND = "epoch-check-in-isr-expansion"
OWN_EPOCH_IN_EXPAND = "own-epoch-reached-in-isr-expansion"
EPOCH_IN_TRUNCATION = "epoch-check-in-truncation"
RULES = (
    EPOCH_IN_COMMIT,
    EPOCH_IN_FETCH,
    EPOCH_IN_EXPAND,
    OWN_EPOCH_IN_EXPAND,
    EPOCH_IN_TRUNCATION,
)


class Kip320(Kip279):
    """Check the leader epoch in fetches, commits, ISR expansions and truncations."""

    def __init__(self, without: str | None = None) -> None:
        if without is not None and without not in RULES:
            raise ValueError(f"unknown rule {without!r}; one of {', '.join(RULES)}")
        self.without = without
        self.name = f"kip-320 without {without}" if without else "kip-320"

    def follows(self, leader: Replica, follower: Replica, rule: str | None = None) -> bool:
        """Return whether the follower follows this leader in the leader's epoch.

        If `rule` is the removed rule, the epochs may differ.
        """
        if not leader.presumes_leadership or follower.leader != leader.name:
            return False
        same_epoch = follower.leader_epoch == leader.leader_epoch
        return same_epoch or (rule is not None and rule == self.without)

    def become_follower(
        self, request: LeaderAndIsr, leader: Replica, follower: Replica
    ) -> Replica | None:
        """Truncate only against a leader that leads in exactly the request's epoch.

        The log of a leader in another epoch may still change.
        """
        in_epoch = leader.presumes_leadership and leader.leader_epoch == request.leader_epoch
        if in_epoch or self.without == EPOCH_IN_TRUNCATION:
            return super().become_follower(request, leader, follower)
        return None

    def may_fetch(self, leader: Replica, follower: Replica) -> bool:
        return self.follows(leader, follower, EPOCH_IN_FETCH)

    def acknowledges(self, leader: Replica, follower: Replica, offset: int) -> bool:
        return self.follows(leader, follower, EPOCH_IN_COMMIT) and follower.has_offset(offset)

    def may_shrink(self, leader: Replica, follower: Replica) -> bool:
        behind = follower.log_end_offset < leader.log_end_offset
        return behind or not self.follows(leader, follower)

    def may_expand(self, leader: Replica, follower: Replica) -> bool:
        return (
            self.follows(leader, follower, EPOCH_IN_EXPAND)
            and follower.log_end_offset >= leader.high_watermark
            and (self.without == OWN_EPOCH_IN_EXPAND or high_watermark_reached_own_epoch(leader))
        )
