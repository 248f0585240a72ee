"""Ways in which the files of one replica get damaged while its broker is down.

Every change is on stable storage at once, as if the disk had always held it. None of them is
one that a crash could leave behind (disk.py): these break what storage may rely on. What happens
to files under a running broker is in decay.py; more about checkpoints is in checkpoints.py.

A huge high watermark is not among them: as in Kafka it counts as the log end, which may show
uncommitted records until a leader corrects it. No checksum covers a batch's leader epoch: where
`LEADER_EPOCHS_ARE_CHECKED` is False, single bits of it are spared.
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
"""Whether a read notices a batch whose leader epoch is wrong."""
EPOCH_AT, EPOCH_SIZE = 12, 4
"""Where the leader epoch lies in a batch."""
ZEROED_MIN, ZEROED_MAX = 8, 64


def damage_log(disk: SimDisk, partition: TopicPartition, draw: Random) -> str | None:
    """Damage the replica's files in one way; its kind, or None where that way has no effect."""
    kind, damage = draw.choice(_WAYS)
    return kind if damage(disk, partition, draw) else None


def segments(disk: SimDisk, partition: TopicPartition) -> list[str]:
    """The paths of its segments, oldest first."""
    folder = layout.partition_dir(partition)
    names = [name for name in disk.list_dir(folder) if name.endswith(layout.LOG)]
    return [f"{folder}/{name}" for name in names]


def _with_bytes(disk: SimDisk, partition: TopicPartition, draw: Random) -> str | None:
    """One of the segments that have any, often not the last."""
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
    """The same byte, or one that a checksum or a check of offsets covers."""
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
"""What `World.count` counts them as."""
_WAYS: tuple[tuple[str, Callable[[SimDisk, TopicPartition, Random], bool]], ...] = (
    (_LOG, _flip_bit),
    (_LOG, _write_zeros),
    (_LOG, _truncate_segment),
    (_LOG, _delete_first),
    (_LOG, _delete_middle),
    (_CHECKPOINT, _set_huge(layout.LOG_STARTS)),
    (_CHECKPOINT, _set_huge(layout.RECOVERY_POINTS)),
)
