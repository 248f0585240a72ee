"""Faults that damage checkpoints, indexes and producer snapshots while their broker is down.

A checkpoint may hold a wrong but plausible offset, an older copy of itself, nothing, or garbage.
Indexes and producer snapshots may hold garbage or be missing. None of this may lose a record:
brokers trust a checkpoint only where a wrong value loses nothing.
"""

from collections.abc import Callable
from random import Random
from typing import TypeAlias

from tidelog.core.storage import layout
from tidelog.core.storage.checkpoint import format_offsets, read_offsets
from tidelog.core.storage.checkpoint_checksums import CheckpointChecksums
from tidelog.core.types import Offset, TopicPartition
from tidelog.lab.sim.machine.disk import SimDisk

CHECKPOINTS_ARE_SUMMED = True
"""Whether brokers detect a wrong but plausible offset in a checkpoint.

If they don't, a log start inside the log hides records, and a high watermark that is too high
shows uncommitted records.
"""

Copies: TypeAlias = dict[str, bytes]
"""The earlier contents of files, by path."""
Way: TypeAlias = Callable[[SimDisk, TopicPartition, Copies, Offset, Random], bool]

_SHARED = (layout.RECOVERY_POINTS, layout.HIGH_WATERMARKS, layout.LOG_STARTS)
_SIDE_FILES = (layout.OFFSET_INDEX, layout.TIME_INDEX, layout.SNAPSHOT)


def copy_checkpoints(disk: SimDisk, partition: TopicPartition) -> Copies:
    """Return the current contents of the checkpoints that concern this partition."""
    paths = [path for path in _checkpoints(partition) if disk.exists(path)]
    return {path: disk.read(path, 0, disk.size(path)) for path in paths}


def damage_checkpoint(
    disk: SimDisk, partition: TopicPartition, copies: Copies, log_end: Offset, draw: Random
) -> str | None:
    """Damage one file; return the kind of damage, or None if no way has an effect."""
    for kind, damage in draw.sample(_WAYS, len(_WAYS)):
        if damage(disk, partition, copies, log_end, draw):
            return kind
    return None


def _checkpoints(partition: TopicPartition) -> list[str]:
    return [*_SHARED, f"{layout.partition_dir(partition)}/{layout.LEADER_EPOCHS}"]


def _set_inside(
    disk: SimDisk, partition: TopicPartition, _copies: Copies, log_end: Offset, draw: Random
) -> bool:
    """Write an offset between 0 and the log end into a checkpoint."""
    # A power failure may have damaged the file with the checksums.
    summed = CHECKPOINTS_ARE_SUMMED and not CheckpointChecksums(disk).warnings
    path = draw.choice(_SHARED if summed else _SHARED[:2])
    if not disk.exists(path):
        return False
    offsets, _ = read_offsets(disk, path)
    highest = log_end
    if path == layout.HIGH_WATERMARKS and not summed:
        highest = min(log_end, offsets.get(partition, 0))
    wrong = draw.randint(0, highest)
    if offsets.get(partition) == wrong:
        return False
    disk.write_by_hand(path, format_offsets({**offsets, partition: wrong}))
    return True


def _put_back(
    disk: SimDisk, _partition: TopicPartition, copies: Copies, _log_end: Offset, draw: Random
) -> bool:
    """Replace a checkpoint with an older copy."""
    changed = [p for p in copies if disk.exists(p) and disk.read(p, 0, disk.size(p)) != copies[p]]
    if not changed:
        return False
    path = draw.choice(changed)
    disk.write_by_hand(path, copies[path])
    return True


def _garble(
    disk: SimDisk, partition: TopicPartition, _copies: Copies, _log_end: Offset, draw: Random
) -> bool:
    """Empty a file, fill it with zeros, shorten it, or change one byte."""
    metadata = f"{layout.partition_dir(partition)}/{layout.PARTITION_METADATA}"
    path = draw.choice([*_checkpoints(partition), metadata])
    if not disk.exists(path) or not disk.size(path):
        return False
    data = bytearray(disk.read(path, 0, disk.size(path)))
    match draw.randrange(4):
        case 0:
            data = bytearray()
        case 1:
            data = bytearray(len(data))
        case 2:
            # Remove the last number completely: a shortened one would be plausible.
            last = data.split()[-1] if data.split() else b""
            del data[draw.randrange(max(1, len(data) - len(last) - 1)) :]
        case _:
            data[draw.randrange(len(data))] = ord("x")
    disk.write_by_hand(path, data)
    return True


def _damage_side_file(
    disk: SimDisk, partition: TopicPartition, _copies: Copies, _log_end: Offset, draw: Random
) -> bool:
    """Remove an index or a producer snapshot, empty it, or fill it with garbage."""
    folder = layout.partition_dir(partition)
    names = [name for name in disk.list_dir(folder) if name.endswith(_SIDE_FILES)]
    if not names:
        return False
    path = f"{folder}/{draw.choice(names)}"
    size = disk.size(path)
    match draw.randrange(3):
        case 0:
            disk.remove_by_hand(path)
        case 1:
            disk.write_by_hand(path, b"")
        case _:
            disk.write_by_hand(path, draw.randbytes(size))
    return True


_INSIDE, _OLD, _GARBLED, _SIDE = WRONG_CHECKPOINTS = (
    "plausible checkpoint",
    "checkpoint older",
    "checkpoint garbled",
    "index or snapshot damaged",
)
"""The names under which `World.count` counts these faults."""
_WAYS: tuple[tuple[str, Way], ...] = (
    (_INSIDE, _set_inside),
    (_OLD, _put_back),
    (_OLD, _put_back),
    (_GARBLED, _garble),
    (_SIDE, _damage_side_file),
)
