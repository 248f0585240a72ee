"""Leader epochs: which leader wrote which part of the log.

Each entry has an epoch and the offset at which the leader of that epoch first wrote. An epoch ends
where the next one starts. So two replicas can compare entries instead of records to find up to
where their logs are equal. That makes truncation safe (replication/truncation.py); the high
watermark alone does not.

Invariant: epochs and start offsets both strictly increase. An epoch is missing if no record of its
leader is left.

The on-disk form is `leader-epoch-checkpoint` (storage/checkpoint.py). Scenarios:
scenarios/epochs/epoch-grows-with-each-leader.txt
"""

from bisect import bisect_right

from tidelog.core.types import EpochEnd, EpochEntry, LeaderEpoch, Offset


class LeaderEpochs:
    """The epoch cache of one replica's log, oldest entry first."""

    __slots__ = ("_epochs", "_starts")

    def __init__(self, entries: list[EpochEntry] | tuple[EpochEntry, ...] = ()) -> None:
        self._epochs = [entry[0] for entry in entries]
        self._starts = [entry[1] for entry in entries]

    @property
    def entries(self) -> list[EpochEntry]:
        """A copy of all entries, oldest first."""
        return [EpochEntry(*pair) for pair in zip(self._epochs, self._starts, strict=True)]

    def entries_from(self, offset: Offset) -> list[EpochEntry]:
        """Return the entries of the records from `offset` on, oldest first."""
        first = max(0, bisect_right(self._starts, offset) - 1)
        pairs = zip(self._epochs[first:], self._starts[first:], strict=True)
        return [EpochEntry(*pair) for pair in pairs]

    @property
    def latest(self) -> LeaderEpoch | None:
        """The epoch of the last entry; None for a log without epochs."""
        return self._epochs[-1] if self._epochs else None

    @property
    def earliest(self) -> LeaderEpoch | None:
        """The epoch of the first entry; None for a log without epochs."""
        return self._epochs[0] if self._epochs else None

    def assign(self, epoch: LeaderEpoch, start_offset: Offset) -> bool:
        """Add an entry: `epoch` starts at `start_offset`. Return whether anything changed.

        Entries that contradict the new one (same or larger epoch, or same or larger start
        offset) are removed: the log now continues with the new epoch.
        """
        assert epoch >= 0, "an epoch is never negative"
        assert start_offset >= 0, "an offset is never negative"
        if self._epochs and self._epochs[-1] == epoch and self._starts[-1] <= start_offset:
            return False
        while self._epochs and (self._epochs[-1] >= epoch or self._starts[-1] >= start_offset):
            self._epochs.pop()
            self._starts.pop()
        self._epochs.append(epoch)
        self._starts.append(start_offset)
        return True

    def truncate_to(self, end_offset: Offset) -> bool:
        """Remove epochs that start at or after `end_offset`; return whether there were any."""
        if end_offset < 0 or not self._starts or self._starts[-1] < end_offset:
            return False
        while self._starts and self._starts[-1] >= end_offset:
            self._epochs.pop()
            self._starts.pop()
        return True

    def drop_before(self, start_offset: Offset) -> bool:
        """Remove epochs that end at or before `start_offset`; return whether anything changed.

        The epoch of `start_offset` stays, with `start_offset` as its start.
        """
        dropped = bisect_right(self._starts, start_offset)
        if dropped == 0 or (dropped == 1 and self._starts[0] == start_offset):
            return False
        epoch = self._epochs[dropped - 1]
        self._epochs[:dropped] = [epoch]
        self._starts[:dropped] = [start_offset]
        return True

    def clear(self) -> None:
        """Remove all entries."""
        self._epochs.clear()
        self._starts.clear()

    def end_offset_for(self, epoch: LeaderEpoch | None, log_end_offset: Offset) -> EpochEnd | None:
        """Return where `epoch` ends in this log, with the epoch that this end belongs to.

        None if `epoch` is None or newer than all entries. If `epoch` is not in the cache, the
        result names the largest epoch before it (KIP-279), so that the requester sees that the
        logs diverged earlier.
        """
        if epoch is None or not self._epochs:
            return None
        latest = self._epochs[-1]
        if epoch == latest:
            return EpochEnd(epoch, log_end_offset)
        if epoch > latest:
            return None
        above = bisect_right(self._epochs, epoch)
        known = self._epochs[above - 1] if above else epoch
        return EpochEnd(known, self._starts[above])

    def epoch_for_offset(self, offset: Offset) -> LeaderEpoch | None:
        """Return the leader epoch of the record at `offset`; None before the first entry."""
        index = bisect_right(self._starts, offset)
        return self._epochs[index - 1] if index else None

    def start_of(self, epoch: LeaderEpoch) -> Offset | None:
        """Return where `epoch` starts; None if it is not in the cache."""
        index = bisect_right(self._epochs, epoch)
        if index and self._epochs[index - 1] == epoch:
            return self._starts[index - 1]
        return None

    def freeze(self) -> tuple[int, ...]:
        """Return a hashable tuple of epochs and start offsets, alternating."""
        return tuple(n for pair in zip(self._epochs, self._starts, strict=True) for n in pair)

    @classmethod
    def thaw(cls, frozen: tuple[int, ...]) -> "LeaderEpochs":
        """Restore the cache that `freeze` returned."""
        twin = cls()
        twin._epochs = list(frozen[::2])
        twin._starts = list(frozen[1::2])
        return twin

    def copy(self) -> "LeaderEpochs":
        """Return an independent copy."""
        twin = LeaderEpochs()
        twin._epochs = self._epochs.copy()
        twin._starts = self._starts.copy()
        return twin

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, LeaderEpochs):
            return NotImplemented
        return self._epochs == other._epochs and self._starts == other._starts

    __hash__ = None  # type: ignore[assignment]  # mutable: hash its freeze()

    def __repr__(self) -> str:
        inner = ", ".join(f"({e}, {s})" for e, s in self.entries)
        return f"LeaderEpochs([{inner}])"
