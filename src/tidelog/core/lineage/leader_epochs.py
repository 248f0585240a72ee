"""Leader epochs: which leader wrote which part of the log.

Each entry says "the leader of this epoch first wrote at this offset". The end of an
epoch is the start of the next, so two replicas that compare entries can tell, without
comparing records, up to where their logs are the same. That comparison is what makes
truncation safe (replication/truncation.py); the high watermark alone does not.

Always true: epochs and start offsets both strictly increase. An epoch may be missing
when its leader wrote nothing that survived.

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
        """All entries, oldest first."""
        return [EpochEntry(*pair) for pair in zip(self._epochs, self._starts, strict=True)]

    @property
    def latest(self) -> LeaderEpoch | None:
        """The epoch of the last entry, or None for a log that knows no epoch."""
        return self._epochs[-1] if self._epochs else None

    def assign(self, epoch: LeaderEpoch, start_offset: Offset) -> bool:
        """Note that `epoch` starts at `start_offset`; say whether anything changed.

        Entries that the new one contradicts (same or larger epoch, or same or larger
        start) go: whoever writes here now is right about what follows.
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
        """Forget epochs that start at or after `end_offset`; say whether any did."""
        if end_offset < 0 or not self._starts or self._starts[-1] < end_offset:
            return False
        while self._starts and self._starts[-1] >= end_offset:
            self._epochs.pop()
            self._starts.pop()
        return True

    def drop_before(self, start_offset: Offset) -> bool:
        """Forget epochs that end at or before `start_offset`; say whether anything changed.

        The epoch that covers `start_offset` stays, and starts there from now on.
        """
        dropped = bisect_right(self._starts, start_offset)
        if dropped == 0 or (dropped == 1 and self._starts[0] == start_offset):
            return False
        epoch = self._epochs[dropped - 1]
        self._epochs[:dropped] = [epoch]
        self._starts[:dropped] = [start_offset]
        return True

    def clear(self) -> None:
        """Forget everything: a batch in an older format than v2 carries no epoch."""
        self._epochs.clear()
        self._starts.clear()

    def end_offset_for(self, epoch: LeaderEpoch | None, log_end_offset: Offset) -> EpochEnd | None:
        """Say where `epoch` ends here, and which epoch that answer is about.

        None when nothing can be said: no epoch asked, or none as new is known here. When
        the asked epoch is not in the cache the answer names the largest one before it
        (KIP-279), so that the asker can see that the logs parted even earlier.
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
        """The epoch in which the record at `offset` was written."""
        index = bisect_right(self._starts, offset)
        return self._epochs[index - 1] if index else None

    def start_of(self, epoch: LeaderEpoch) -> Offset | None:
        """Where `epoch` starts, if it is in the cache."""
        index = bisect_right(self._epochs, epoch)
        if index and self._epochs[index - 1] == epoch:
            return self._starts[index - 1]
        return None

    def freeze(self) -> tuple[int, ...]:
        """A hashable frozen: epochs and starts, alternating."""
        return tuple(n for pair in zip(self._epochs, self._starts, strict=True) for n in pair)

    @classmethod
    def thaw(cls, frozen: tuple[int, ...]) -> "LeaderEpochs":
        """The cache that `freeze` pictured."""
        twin = cls()
        twin._epochs = list(frozen[::2])
        twin._starts = list(frozen[1::2])
        return twin

    def copy(self) -> "LeaderEpochs":
        """An independent copy."""
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
