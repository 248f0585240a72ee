"""Ways in which the small files beside the logs are wrong when a broker starts.

A checkpoint may hold a number that its log could have, an older copy of itself, nothing, or
garbage; indexes and producer snapshots may hold garbage or be missing. None of this may lose a
record: checkpoints are believed only in the direction that loses nothing.
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
"""Whether brokers notice a number that its log could have. Where they don't, a log start inside
the log hides records, and a high watermark that is too high shows uncommitted ones."""

Copies: TypeAlias = dict[str, bytes]
"""What files held at an earlier time."""
Way: TypeAlias = Callable[[SimDisk, TopicPartition, Copies, Offset, Random], bool]

_SHARED = (layout.RECOVERY_POINTS, layout.HIGH_WATERMARKS, layout.LOG_STARTS)
_SIDE_FILES = (layout.OFFSET_INDEX, layout.TIME_INDEX, layout.SNAPSHOT)


def copy_checkpoints(disk: SimDisk, partition: TopicPartition) -> Copies:
    """What the checkpoints of this partition hold now."""
    paths = [path for path in _checkpoints(partition) if disk.exists(path)]
    return {path: disk.read(path, 0, disk.size(path)) for path in paths}


def damage_checkpoint(
    disk: SimDisk, partition: TopicPartition, copies: Copies, log_end: Offset, draw: Random
) -> str | None:
    """Damage one file in one way; its kind, or None where no way has an effect."""
    for kind, damage in draw.sample(_WAYS, len(_WAYS)):
        if damage(disk, partition, copies, log_end, draw):
            return kind
    return None


def _checkpoints(partition: TopicPartition) -> list[str]:
    return [*_SHARED, f"{layout.partition_dir(partition)}/{layout.LEADER_EPOCHS}"]


def _set_inside(
    disk: SimDisk, partition: TopicPartition, _copies: Copies, log_end: Offset, draw: Random
) -> bool:
    """A number between 0 and the log end."""
    # A power failure may have torn the file with the checksums.
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
    """An older copy."""
    changed = [p for p in copies if disk.exists(p) and disk.read(p, 0, disk.size(p)) != copies[p]]
    if not changed:
        return False
    path = draw.choice(changed)
    disk.write_by_hand(path, copies[path])
    return True


def _garble(
    disk: SimDisk, partition: TopicPartition, _copies: Copies, _log_end: Offset, draw: Random
) -> bool:
    """Empty, zeros, a part of it, or a byte that is another one."""
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
            # A shorter last number would be one that its log could have.
            last = data.split()[-1] if data.split() else b""
            del data[draw.randrange(max(1, len(data) - len(last) - 1)) :]
        case _:
            data[draw.randrange(len(data))] = ord("x")
    disk.write_by_hand(path, data)
    return True


def _damage_side_file(
    disk: SimDisk, partition: TopicPartition, _copies: Copies, _log_end: Offset, draw: Random
) -> bool:
    """An index or a producer snapshot is missing, empty or garbage."""
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
"""What `World.count` counts them as."""
_WAYS: tuple[tuple[str, Way], ...] = (
    (_INSIDE, _set_inside),
    (_OLD, _put_back),
    (_OLD, _put_back),
    (_GARBLED, _garble),
    (_SIDE, _damage_side_file),
)
