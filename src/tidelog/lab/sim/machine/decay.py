"""Faults that damage the files of one replica while its broker runs.

The broker detects the damage only when it reads the bytes: for a client's fetch, for a follower,
in the scrubber or at the next startup. A lost write is such damage too: for a while the operating
system still serves the written bytes from memory.
"""

from collections.abc import Callable
from random import Random
from typing import TypeAlias

from tidelog.core.types import TopicPartition
from tidelog.lab.sim.machine.damage import (
    ZEROED_MAX,
    ZEROED_MIN,
    beside_leader_epoch,
    segments,
)
from tidelog.lab.sim.machine.disk import SimDisk

Way: TypeAlias = Callable[[SimDisk, str, Random], bool]


def decay_log(disk: SimDisk, partition: TopicPartition, draw: Random) -> str | None:
    """Damage the replica's files in a random way.

    Return the kind of damage, or None if that way has no effect here.
    """
    kind, damage = draw.choice(_WAYS)
    paths = [path for path in segments(disk, partition) if disk.size(path)]
    if not paths:
        return None
    # The broker writes only to the last segment.
    path = paths[-1] if kind == _LOST_WRITE else draw.choice(paths)
    return kind if damage(disk, path, draw) else None


def _flip_bit(disk: SimDisk, path: str, draw: Random) -> bool:
    at = beside_leader_epoch(disk, path, draw.randrange(disk.size(path)))
    before = _byte(disk, path, at)
    disk.rot(path, at, bytes([before ^ 1 << draw.randrange(8)]))
    return True


def _byte(disk: SimDisk, path: str, at: int) -> int:
    return disk.contents(path)[at]


def _write_zeros(disk: SimDisk, path: str, draw: Random) -> bool:
    at = draw.randrange(disk.size(path))
    return _zero(disk, path, at, at + draw.randint(ZEROED_MIN, ZEROED_MAX))


def _lose_last_write(disk: SimDisk, path: str, draw: Random) -> bool:
    """Zero a range near the end of the file, as if a write never reached the disk."""
    size = disk.size(path)
    first = max(0, size - draw.randint(ZEROED_MIN, 4 * ZEROED_MAX))
    return _zero(disk, path, first, draw.randint(first + 1, size))


def _zero(disk: SimDisk, path: str, first: int, end: int) -> bool:
    end = min(end, disk.size(path))
    changed = any(disk.contents(path)[first:end])
    disk.rot(path, first, bytes(end - first))
    return changed


def _shorten(disk: SimDisk, path: str, draw: Random) -> bool:
    disk.shorten(path, draw.randrange(disk.size(path)))
    return True


def _delete(disk: SimDisk, path: str, _draw: Random) -> bool:
    disk.remove_by_hand(path)
    return True


def _fail_reads(disk: SimDisk, path: str, draw: Random) -> bool:
    first = draw.randrange(disk.size(path))
    disk.spoil(path, first, first + draw.randint(ZEROED_MIN, 4 * ZEROED_MAX))
    return True


_ROT, _LOST_WRITE, _GONE, _UNREADABLE = DECAYS = (
    "bytes rotted under a broker",
    "write lost",
    "segment lost under a broker",
    "bytes unreadable",
)
"""The names under which `World.count` counts these faults."""
_WAYS: tuple[tuple[str, Way], ...] = (
    (_ROT, _flip_bit),
    (_ROT, _write_zeros),
    (_LOST_WRITE, _lose_last_write),
    (_GONE, _shorten),
    (_GONE, _delete),
    (_UNREADABLE, _fail_reads),
)
