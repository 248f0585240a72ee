"""Ways in which the files of one replica get damaged while its broker is down.

Every change is on stable storage at once, as if the disk had always held it. None of them is
one that a crash could leave behind (disk.py): these break what storage may rely on.
"""

from collections.abc import Callable
from random import Random

from tidelog.core.storage import layout
from tidelog.core.storage.checkpoint import format_offsets, read_offsets
from tidelog.core.types import TopicPartition
from tidelog.lab.sim.machine.disk import SimDisk

HUGE = 99_999_999
ZEROED_MAX = 64


def damage_log(disk: SimDisk, partition: TopicPartition, draw: Random) -> str | None:
    """Damage the replica's files in one way; which one, or None where that way has no effect."""
    kind = draw.choice(tuple(_WAYS))
    return kind if _WAYS[kind](disk, partition, draw) else None


def _segments(disk: SimDisk, partition: TopicPartition) -> list[str]:
    """The paths of its segments, oldest first."""
    folder = layout.partition_dir(partition)
    names = [name for name in disk.list_dir(folder) if name.endswith(layout.LOG)]
    return [f"{folder}/{name}" for name in names]


def _with_bytes(disk: SimDisk, partition: TopicPartition, draw: Random) -> str | None:
    """One of the segments that have any, often not the last."""
    paths = [path for path in _segments(disk, partition) if disk.size(path)]
    return draw.choice(paths) if paths else None


def _flip_bit(disk: SimDisk, partition: TopicPartition, draw: Random) -> bool:
    path = _with_bytes(disk, partition, draw)
    if path is None:
        return False
    data = bytearray(disk.read(path, 0, disk.size(path)))
    data[draw.randrange(len(data))] ^= 1 << draw.randrange(8)
    disk.write_by_hand(path, data)
    return True


def _write_zeros(disk: SimDisk, partition: TopicPartition, draw: Random) -> bool:
    path = _with_bytes(disk, partition, draw)
    if path is None:
        return False
    data = bytearray(disk.read(path, 0, disk.size(path)))
    at = draw.randrange(len(data))
    end = min(len(data), at + draw.randint(1, ZEROED_MAX))
    data[at:end] = bytes(end - at)
    disk.write_by_hand(path, data)
    return True


def _truncate_segment(disk: SimDisk, partition: TopicPartition, draw: Random) -> bool:
    path = _with_bytes(disk, partition, draw)
    if path is None:
        return False
    disk.write_by_hand(path, disk.read(path, 0, draw.randrange(disk.size(path))))
    return True


def _delete_first(disk: SimDisk, partition: TopicPartition, _draw: Random) -> bool:
    paths = _segments(disk, partition)
    if len(paths) > 1:
        disk.remove_by_hand(paths[0])
    return len(paths) > 1


def _delete_middle(disk: SimDisk, partition: TopicPartition, draw: Random) -> bool:
    paths = _segments(disk, partition)[1:-1]
    if paths:
        disk.remove_by_hand(draw.choice(paths))
    return bool(paths)


def _set_huge(path: str) -> Callable[[SimDisk, TopicPartition, Random], bool]:
    def write(disk: SimDisk, partition: TopicPartition, _draw: Random) -> bool:
        offsets, _ = read_offsets(disk, path)
        disk.write_by_hand(path, format_offsets({**offsets, partition: HUGE}))
        return True

    return write


_WAYS: dict[str, Callable[[SimDisk, TopicPartition, Random], bool]] = {
    "bit changed in a segment": _flip_bit,
    "zeros in a segment": _write_zeros,
    "segment truncated": _truncate_segment,
    "first segment deleted": _delete_first,
    "middle segment deleted": _delete_middle,
    "log start too high": _set_huge(layout.LOG_STARTS),
    "high watermark too high": _set_huge(layout.HIGH_WATERMARKS),
    "recovery point too high": _set_huge(layout.RECOVERY_POINTS),
}
DAMAGES = tuple(_WAYS)
"""What `World.count` counts them as."""
