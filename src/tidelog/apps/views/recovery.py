"""View of a partition without a leader: the records that electing each replica would lose.

Logs are compared as the controller does it: by the leader epoch of the last record, then by log
end; a damaged log counts up to its damage. Electing a replica loses the records of the best log
after the last offset that both logs share. Logs of brokers that did not respond are unknown.
"""

from typing import Any, NamedTuple

from tidelog.apps.views.partition import PartitionView, ReplicaView
from tidelog.core.types import BrokerId, LeaderEpoch, Offset

NO_EPOCH = -1


class Candidate(NamedTuple):
    """One replica that could be elected; None means unknown."""

    broker: BrokerId
    last_epoch: LeaderEpoch | None
    """The leader epoch of its last undamaged record; -1 without records."""
    log_end_offset: Offset | None
    sound_upto: Offset | None
    """Its log end, or the first damaged offset."""
    loses: int | None
    """Records of the best log that it does not have."""
    state: str


class RecoveryView(NamedTuple):
    """The candidates of one partition, the best one first."""

    name: str
    leader: BrokerId | None
    candidates: list[Candidate]
    committed_upto: Offset | None
    """The largest high watermark that any replica knows."""

    @property
    def best(self) -> Candidate | None:
        """The replica that the controller would elect, judged by the known logs."""
        return next((each for each in self.candidates if each.last_epoch is not None), None)

    @property
    def committed_and_missing(self) -> int:
        """How many committed records, at least, are on no replica that responded."""
        if self.best is None or self.best.sound_upto is None or self.committed_upto is None:
            return 0
        return max(0, self.committed_upto - self.best.sound_upto)

    @property
    def silent(self) -> list[BrokerId]:
        """Brokers whose logs are unknown."""
        return sorted(each.broker for each in self.candidates if each.loses is None)

    @property
    def complete(self) -> bool:
        """Whether a replica can lead, and no log is unknown."""
        return self.best is not None and not self.silent

    def as_data(self) -> dict[str, Any]:
        candidates = [each._asdict() for each in self.candidates]
        best = None if self.best is None else self.best.broker
        return {**self._asdict(), "candidates": candidates, "best": best, "silent": self.silent}


def view_recovery(partition: PartitionView) -> RecoveryView:
    """Compare the logs of all replicas that responded."""
    known = [replica for replica in partition.replicas if _is_known(replica)]
    known.sort(key=lambda replica: (_last_epoch(replica), _sound_upto(replica)), reverse=True)
    silent = [replica for replica in partition.replicas if not _is_known(replica)]
    best = known[0] if known else None
    marks = [r.high_watermark for r in known if r.high_watermark is not None]
    lost = partition.lost or []
    return RecoveryView(
        partition.name,
        partition.leader,
        [
            _without_log(replica, best) if replica.broker in lost else _candidate(replica, best)
            for replica in [*known, *silent]
        ],
        max(marks, default=None),
    )


def _is_known(replica: ReplicaView) -> bool:
    return replica.unreachable is None and replica.epochs is not None


def _candidate(replica: ReplicaView, best: ReplicaView | None) -> Candidate:
    end = replica.log_end_offset
    if best is None or not _is_known(replica):
        state = replica.unreachable or "its log is unknown"
        return Candidate(replica.broker, None, end, None, None, state)
    sound = _sound_upto(replica)
    state = "in sync" if replica.in_isr else "alive"
    if replica.damage is not None:
        state = f"damaged from offset {replica.damage['offset']} on: {replica.damage['reason']}"
    loses = _sound_upto(best) - _shared_upto(replica, best)
    return Candidate(replica.broker, _last_epoch(replica), end, sound, loses, state)


def _without_log(replica: ReplicaView, best: ReplicaView | None) -> Candidate:
    """Return the candidate for a replica whose folder was missing at startup."""
    loses = 0 if best is None else _sound_upto(best) - (best.log_start_offset or 0)
    return Candidate(replica.broker, None, None, None, loses, "lost its log")


def _sound_upto(replica: ReplicaView) -> Offset:
    end = replica.log_end_offset or 0
    return end if replica.damage is None else min(end, int(replica.damage["offset"]))


def _last_epoch(replica: ReplicaView) -> LeaderEpoch:
    """Return the leader epoch of the replica's last undamaged record."""
    end = _sound_upto(replica)
    return max((epoch for epoch, start in replica.epochs or () if start < end), default=NO_EPOCH)


def _shared_upto(replica: ReplicaView, best: ReplicaView) -> Offset:
    """Return the offset where the two logs diverge: in the latest leader epoch that both have."""
    start = best.log_start_offset or 0
    ours, theirs = _epoch_ends(replica), _epoch_ends(best)
    shared = [min(end, theirs[entry]) for entry, end in ours.items() if entry in theirs]
    return max(shared, default=start)


def _epoch_ends(replica: ReplicaView) -> dict[tuple[int, Offset], Offset]:
    """Return the end offset of each leader epoch, by epoch and start offset."""
    sound = _sound_upto(replica)
    entries = [(epoch, start) for epoch, start in replica.epochs or () if start < sound]
    starts = [start for _, start in entries[1:]]
    return dict(zip(entries, [*starts, sound], strict=False))
