"""Faults that damage the files of one replica, while its broker is down or while it runs.

Every change is on stable storage at once. No crash can leave such damage behind: it violates the
invariant that the storage code relies on (disk.py).

A checkpoint may get a wrong but plausible offset, an older copy of itself, nothing, or garbage.
Indexes and producer snapshots may get garbage or be removed. None of this may lose a record:
brokers trust a checkpoint only where a wrong value loses nothing. No fault sets a huge high
watermark. As in Kafka, such a value counts as the log end, which may show uncommitted records until
a leader corrects it.

A running broker detects damage only when it reads the bytes: for a client's fetch, for a follower,
in the scrubber or at the next startup. A lost write is such damage too: for a while the operating
system still serves the written bytes from memory.

Only the first entry of `leader-epoch-checkpoint` proves that the first segment is missing, so no
fault damages both (docs/explanation/what-damage-can-do.md).

No checksum covers a batch's leader epoch. If `LEADER_EPOCHS_ARE_CHECKED` is False, single-bit
faults avoid the leader epoch.
"""

from collections.abc import Callable
from random import Random
from typing import TypeAlias

from tidelog.core.storage import layout
from tidelog.core.storage.checkpoint import (
    CheckpointChecksums,
    CheckpointError,
    format_offsets,
    parse_epochs,
    read_offsets,
)
from tidelog.core.storage.disk import DiskError
from tidelog.core.storage.segment.batch_scan import InvalidBatch, whole_batches
from tidelog.core.types import Offset, TopicPartition
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
    kind, damage = draw.choice(_LOG_WAYS)
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
    if len(paths) < 2 or not _proves_missing_start(disk, partition, paths[1]):
        return False
    disk.remove_by_hand(paths[0])
    return True


def _proves_missing_start(disk: SimDisk, partition: TopicPartition, first_path: str) -> bool:
    """Return whether the epoch file shows that the log began before this segment."""
    path = f"{layout.partition_dir(partition)}/{layout.LEADER_EPOCHS}"
    try:
        epochs = parse_epochs(path, disk.contents(path)) if disk.exists(path) else []
    except CheckpointError:
        return False
    first = layout.parse_file(first_path.rpartition("/")[2])
    return first is not None and bool(epochs) and epochs[0].start_offset < first.base_offset


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


_LOG_DAMAGE, _CHECKPOINT = DAMAGES = ("log file damaged", "checkpoint wrong")
"""The names under which `World.count` counts these faults."""
_LOG_WAYS: tuple[tuple[str, Callable[[SimDisk, TopicPartition, Random], bool]], ...] = (
    (_LOG_DAMAGE, _flip_bit),
    (_LOG_DAMAGE, _write_zeros),
    (_LOG_DAMAGE, _truncate_segment),
    (_LOG_DAMAGE, _delete_first),
    (_LOG_DAMAGE, _delete_middle),
    (_CHECKPOINT, _set_huge(layout.LOG_STARTS)),
    (_CHECKPOINT, _set_huge(layout.RECOVERY_POINTS)),
)


# -- checkpoints, indexes and producer snapshots of a broker that is down ----------------


CHECKPOINTS_ARE_SUMMED = True
"""Whether brokers detect a wrong but plausible offset in a checkpoint.

If they don't, a log start inside the log hides records, and a high watermark that is too high
shows uncommitted records.
"""

Copies: TypeAlias = dict[str, bytes]
"""The earlier contents of files, by path."""
CheckpointWay: TypeAlias = Callable[[SimDisk, TopicPartition, Copies, Offset, Random], bool]

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
    for kind, damage in draw.sample(_CHECKPOINT_WAYS, len(_CHECKPOINT_WAYS)):
        if damage(disk, partition, copies, log_end, draw):
            return kind
    return None


def _checkpoints(partition: TopicPartition) -> list[str]:
    """Return the paths of the checkpoints that concern this partition."""
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
    if summed and disk.exists(layout.CHECKPOINT_CHECKSUMS):
        # A later power failure must not damage the checksums too: no broker detects both at a time
        # (docs/adr/0041-checkpoints-have-checksums.md). So they count as synced from now on.
        disk.write_by_hand(layout.CHECKPOINT_CHECKSUMS, disk.contents(layout.CHECKPOINT_CHECKSUMS))
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
    first = segments(disk, partition)[:1] if path.endswith(layout.LEADER_EPOCHS) else []
    if first and _proves_missing_start(disk, partition, first[0]):
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
_CHECKPOINT_WAYS: tuple[tuple[str, CheckpointWay], ...] = (
    (_INSIDE, _set_inside),
    (_OLD, _put_back),
    (_OLD, _put_back),
    (_GARBLED, _garble),
    (_SIDE, _damage_side_file),
)


# -- logs of a running broker ------------------------------------------------------------


DecayWay: TypeAlias = Callable[[SimDisk, str, Random], bool]


def decay_log(disk: SimDisk, partition: TopicPartition, draw: Random) -> str | None:
    """Damage the replica's files in a random way.

    Return the kind of damage, or None if that way has no effect here.
    """
    kind, damage = draw.choice(_DECAY_WAYS)
    paths = [path for path in segments(disk, partition) if disk.size(path)]
    if not paths:
        return None
    # The broker writes only to the last segment.
    path = paths[-1] if kind == _LOST_WRITE else draw.choice(paths)
    return kind if damage(disk, path, draw) else None


def _rot_bit(disk: SimDisk, path: str, draw: Random) -> bool:
    at = beside_leader_epoch(disk, path, draw.randrange(disk.size(path)))
    before = _byte(disk, path, at)
    disk.rot(path, at, bytes([before ^ 1 << draw.randrange(8)]))
    return True


def _byte(disk: SimDisk, path: str, at: int) -> int:
    return disk.contents(path)[at]


def _rot_range(disk: SimDisk, path: str, draw: Random) -> bool:
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
_DECAY_WAYS: tuple[tuple[str, DecayWay], ...] = (
    (_ROT, _rot_bit),
    (_ROT, _rot_range),
    (_LOST_WRITE, _lose_last_write),
    (_GONE, _shorten),
    (_GONE, _delete),
    (_UNREADABLE, _fail_reads),
)
