"""Faults that damage the files of one replica while its broker is down.

Every change is on stable storage at once. No crash can leave such damage behind: it violates the
invariant that the storage code relies on (disk.py). decay.py damages files while the broker runs;
checkpoints.py has more faults for checkpoints.

No fault sets a huge high watermark. As in Kafka, such a value counts as the log end, which may
show uncommitted records until a leader corrects it.

No checksum covers a batch's leader epoch. If `LEADER_EPOCHS_ARE_CHECKED` is False, single-bit
faults avoid the leader epoch.
"""

from collections.abc import Callable
from random import Random

from tidelog.core.storage import layout
from tidelog.core.storage.checkpoint import format_offsets, read_offsets
from tidelog.core.storage.disk import DiskError
from tidelog.core.storage.segment.batch_scan import InvalidBatch, whole_batches
from tidelog.core.types import TopicPartition
from tidelog.lab.sim.machine.disk import SimDisk

HUGE = 99_999_999
LEADER_EPOCHS_ARE_CHECKED = True
"""Whether a read detects a batch with a wrong leader epoch."""
EPOCH_AT, EPOCH_SIZE = 12, 4
"""The position and size of the leader epoch in a batch."""
ZEROED_MIN, ZEROED_MAX = 8, 64


def damage_log(disk: SimDisk, partition: TopicPartition, draw: Random) -> str | None:
    """Damage the replica's files in a random way.

    Return the kind of damage, or None if that way has no effect here.
    """
    kind, damage = draw.choice(_WAYS)
    return kind if damage(disk, partition, draw) else None


def segments(disk: SimDisk, partition: TopicPartition) -> list[str]:
    """Return the paths of the partition's segments, oldest first."""
    folder = layout.partition_dir(partition)
    names = [name for name in disk.list_dir(folder) if name.endswith(layout.LOG)]
    return [f"{folder}/{name}" for name in names]


def _with_bytes(disk: SimDisk, partition: TopicPartition, draw: Random) -> str | None:
    """Return a random segment that is not empty, or None if all are."""
    paths = [path for path in segments(disk, partition) if disk.size(path)]
    return draw.choice(paths) if paths else None


def _flip_bit(disk: SimDisk, partition: TopicPartition, draw: Random) -> bool:
    path = _with_bytes(disk, partition, draw)
    if path is None:
        return False
    data = bytearray(disk.contents(path))
    at, bit = draw.randrange(len(data)), 1 << draw.randrange(8)
    at = beside_leader_epoch(disk, path, at)
    data[at] ^= bit
    disk.write_by_hand(path, data)
    return True


def beside_leader_epoch(disk: SimDisk, path: str, at: int) -> int:
    """Return `at`, or the position of a byte that a check covers if `at` must be spared."""
    spared = not LEADER_EPOCHS_ARE_CHECKED and _in_leader_epoch(disk, path, at)
    return at - EPOCH_SIZE if spared else at


def _in_leader_epoch(disk: SimDisk, path: str, at: int) -> bool:
    position = 0
    try:
        for batch in whole_batches(disk, path, 0, disk.size(path), check_crc=False):
            if at < position + batch.size:
                return EPOCH_AT <= at - position < EPOCH_AT + EPOCH_SIZE
            position += batch.size
    except (InvalidBatch, DiskError):
        pass
    return False


def _write_zeros(disk: SimDisk, partition: TopicPartition, draw: Random) -> bool:
    path = _with_bytes(disk, partition, draw)
    if path is None:
        return False
    data = bytearray(disk.contents(path))
    at = draw.randrange(len(data))
    end = min(len(data), at + draw.randint(ZEROED_MIN, ZEROED_MAX))
    data[at:end] = bytes(end - at)
    disk.write_by_hand(path, data)
    return True


def _truncate_segment(disk: SimDisk, partition: TopicPartition, draw: Random) -> bool:
    path = _with_bytes(disk, partition, draw)
    if path is None:
        return False
    disk.write_by_hand(path, disk.contents(path)[: draw.randrange(disk.size(path))])
    return True


def _delete_first(disk: SimDisk, partition: TopicPartition, _draw: Random) -> bool:
    paths = segments(disk, partition)
    if len(paths) > 1:
        disk.remove_by_hand(paths[0])
    return len(paths) > 1


def _delete_middle(disk: SimDisk, partition: TopicPartition, draw: Random) -> bool:
    paths = segments(disk, partition)[1:-1]
    if paths:
        disk.remove_by_hand(draw.choice(paths))
    return bool(paths)


def _set_huge(path: str) -> Callable[[SimDisk, TopicPartition, Random], bool]:
    def write(disk: SimDisk, partition: TopicPartition, _draw: Random) -> bool:
        offsets, _ = read_offsets(disk, path)
        disk.write_by_hand(path, format_offsets({**offsets, partition: HUGE}))
        return True

    return write


_LOG, _CHECKPOINT = DAMAGES = ("log file damaged", "checkpoint wrong")
"""The names under which `World.count` counts these faults."""
_WAYS: tuple[tuple[str, Callable[[SimDisk, TopicPartition, Random], bool]], ...] = (
    (_LOG, _flip_bit),
    (_LOG, _write_zeros),
    (_LOG, _truncate_segment),
    (_LOG, _delete_first),
    (_LOG, _delete_middle),
    (_CHECKPOINT, _set_huge(layout.LOG_STARTS)),
    (_CHECKPOINT, _set_huge(layout.RECOVERY_POINTS)),
)
