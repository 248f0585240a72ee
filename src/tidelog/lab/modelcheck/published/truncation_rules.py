"""The published truncation rules, from the oldest to the one that Kafka ships (KIP-320)."""

from tidelog.lab.modelcheck.published.replication import (
    KafkaReplication,
    LeaderAndIsr,
    Replica,
    apply_request,
)


class TruncateToHighWatermark(KafkaReplication):
    """Before KIP-101: a new follower truncates its log to its own high watermark.

    A follower receives a new high watermark one fetch late, so it may truncate committed records.
    """

    name = "truncate-to-high-watermark"

    def truncation_offset(self, leader: Replica, follower: Replica) -> int:  # noqa: ARG002
        return follower.high_watermark


class Kip101(KafkaReplication):
    """A new follower truncates to where the epoch of its last record ends on the leader.

    A leader that knows neither the epoch nor a later one has no answer. Then the follower truncates
    to its own high watermark, which can again lose committed records.
    """

    name = "kip-101"

    def truncation_offset(self, leader: Replica, follower: Replica) -> int:
        if not follower.log:
            return 0
        epoch = follower.log[-1].epoch
        if leader.log and leader.log[-1].epoch == epoch:
            return leader.log_end_offset
        larger = (offset for offset, record in enumerate(leader.log) if record.epoch > epoch)
        return next(larger, follower.high_watermark)


class Kip279(KafkaReplication):
    """A new follower truncates to the last record that the leader has too.

    This is correct between two replicas. But the leader may itself be in another epoch, and a
    leader still counts followers of other epochs when it commits.
    """

    name = "kip-279"

    def truncation_offset(self, leader: Replica, follower: Replica) -> int:
        matching = 0
        for offset, (ours, theirs) in enumerate(zip(follower.log, leader.log, strict=False)):
            if ours == theirs:
                matching = offset + 1
        return matching


def high_watermark_reached_own_epoch(leader: Replica) -> bool:
    """Return whether a leader's high watermark covers all that its predecessors committed."""
    high_watermark = leader.high_watermark
    return high_watermark == leader.log_end_offset or (
        leader.has_offset(high_watermark)
        and leader.log[high_watermark].epoch == leader.leader_epoch
    )


class Kip320FirstTry(Kip279):
    """KIP-320 as first drafted: a follower truncates when a fetch finds a mismatch.

    It does not truncate when it becomes a follower. Fetches carry the epoch of the last record. The
    leader still does not know the follower's leader epoch. So it may commit a record on the fetch
    of a follower that later truncates this record against another leader.
    """

    name = "kip-320-first-try"

    def become_follower(
        self,
        request: LeaderAndIsr,
        leader: Replica,  # noqa: ARG002
        follower: Replica,
    ) -> Replica:
        return apply_request(request, follower)

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


EPOCH_IN_COMMIT = "epoch-check-in-commit"
EPOCH_IN_FETCH = "epoch-check-in-fetch"
EPOCH_IN_EXPAND = "epoch-check-in-isr-expansion"
OWN_EPOCH_IN_EXPAND = "own-epoch-reached-in-isr-expansion"
EPOCH_IN_TRUNCATION = "epoch-check-in-truncation"
RULES = (EPOCH_IN_COMMIT, EPOCH_IN_FETCH, EPOCH_IN_EXPAND, OWN_EPOCH_IN_EXPAND, EPOCH_IN_TRUNCATION)


class Kip320(Kip279):
    """The rule Kafka ships: leader and follower interact only if they are in the same epoch.

    `without` removes one of the five rules, to build a mutant. Three replicas need every rule.
    """

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
