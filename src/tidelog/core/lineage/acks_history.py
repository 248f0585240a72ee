"""With which `acks` producers wrote the records of a leader's epochs.

A leader notes the level of acks (1, all, 0) of its first record in an epoch, and then each change
of it, with the offset. After `EXACT_MAX` changes it only notes levels that are new since then, at
most two: so the cost does not grow with the records. When a replica removes records later, the
notes tell how many of them were acknowledged, unless producers with several levels wrote in turns.

The notes are in a small file beside the log (`acks-history`). It is not synced: it survives a
kill, but maybe not a power failure. So each line has the boot id of the machine, and lines of an
earlier boot are ignored.

Invariant: a record counts as acknowledged only if it certainly was, or if the leader was killed
between the write of an acks=1 record and its response. Otherwise it counts as unknown.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from tidelog.core.types import EpochEntry, LeaderEpoch, Offset

EXACT_MAX = 16
"""How many changes of the level are noted in one epoch."""
KEPT_MAX = 3 * EXACT_MAX
"""The most lines in a file: at least the last two epochs that this replica led."""
_ALL, _NONE, _LEADER = 1, 2, 4
_NAMES = {_LEADER: "1", _ALL: "all", _NONE: "0"}


def level(acks: int) -> int:
    """Return the bit of a level: 1 for acks=all, 2 for acks=0, 4 for acks=1."""
    return 1 << (acks + 1)


class AcksNote(NamedTuple):
    """From `offset` on, the records of `epoch` were written with any of these levels."""

    epoch: LeaderEpoch
    offset: Offset
    levels: int
    boot: str


class Acknowledged(NamedTuple):
    """How many records of a range were acknowledged; the first four numbers add up to all."""

    by_leader: int = 0
    """With acks=1."""
    by_all: int = 0
    """With acks=all: they were below the high watermark."""
    not_acknowledged: int = 0
    unknown: int = 0
    levels: tuple[str, ...] = ()
    """The levels of acks that producers used, as far as known."""


def format_notes(notes: Iterable[AcksNote]) -> bytes:
    """Return the content of the file."""
    lines = (f"{note.epoch} {note.offset} {note.levels} {note.boot}\n" for note in notes)
    return "".join(lines).encode()


def parse_notes(data: bytes) -> list[AcksNote]:
    """Parse the file. Lines that a crash cut off are ignored."""
    found = []
    for line in data.decode(errors="replace").split("\n")[:-1]:
        epoch, _, rest = line.partition(" ")
        offset, _, rest = rest.partition(" ")
        levels, _, boot = rest.partition(" ")
        if epoch.isdecimal() and offset.isdecimal() and levels.isdecimal():
            found.append(AcksNote(int(epoch), int(offset), int(levels), boot))
    return found


def count_acknowledged(
    epochs: Sequence[EpochEntry],
    start: Offset,
    end: Offset,
    notes: Sequence[AcksNote],
    *,
    boot: str,
    high_watermark: Offset,
    led_epoch: LeaderEpoch,
    led_high_watermark: Offset,
    flushed_first: bool = False,
) -> Acknowledged:
    """Count the acknowledged records from `start` to `end`.

    `epochs` are the leader epochs of these records. The high watermark of `led_epoch` is exact:
    this process led that epoch, so with acks=all nothing above it was acknowledged. With
    `flushed_first`, acks=1 waits for a flush, so it is unknown what was acknowledged.
    """
    by_leader = by_all = not_acknowledged = 0
    used = 0
    ends = [entry.start_offset for entry in epochs[1:]] + [end]
    for (epoch, first), last in zip(epochs, ends, strict=False):
        own = [note for note in notes if note.epoch == epoch]
        if any(note.boot != boot for note in own):
            continue
        exact = epoch == led_epoch
        mark = max(high_watermark, led_high_watermark) if exact else high_watermark
        for index, note in enumerate(own):
            upto = own[index + 1].offset if index + 1 < len(own) else last
            low, high = max(start, first, note.offset), min(end, last, upto)
            if low >= high:
                continue
            used |= note.levels
            below = max(0, min(high, mark) - low)
            if note.levels == _LEADER:
                by_leader += 0 if flushed_first else high - low
            elif note.levels == _NONE:
                not_acknowledged += high - low
            else:
                by_all += below if note.levels == _ALL else 0
                # Records above an exact high watermark were not acknowledged with acks=all. Nor
                # with acks=1, if no producer used it.
                above = exact and not note.levels & _LEADER
                not_acknowledged += high - low - below if above else 0
    known = by_leader + by_all + not_acknowledged
    names = tuple(name for bit, name in _NAMES.items() if used & bit)
    return Acknowledged(by_leader, by_all, not_acknowledged, max(0, end - start - known), names)
