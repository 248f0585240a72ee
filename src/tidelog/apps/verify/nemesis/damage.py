"""Ways to damage the files of one replica while its broker is stopped.

Each way takes the partition's folder. Where a log is still short, one segment may be the first,
an older and the active one at once. Broker-wide files are changed for this partition only.
"""

import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path

from tidelog.core.storage import layout
from tidelog.core.storage.checkpoint import format_offsets, parse_offsets
from tidelog.core.types import TopicPartition

HUGE_OFFSET = 99_999_999
ZEROED_BYTES = 5000
CUT_BYTES = 9999
FIRST, OLDER, ACTIVE = "first", "older", "active"


def _segment(folder: Path, which: str) -> Path:
    """The segment of that place in the log; the active one is the last with records."""
    segments = sorted(folder.glob(f"*{layout.LOG}"))
    if which == FIRST:
        return segments[0]
    if which == OLDER:
        return segments[(len(segments) - 1) // 2]
    return next((file for file in reversed(segments) if _records(file)), segments[-1])


def _records(segment: Path) -> bytes:
    """Its bytes without the space that is reserved behind the last record."""
    return segment.read_bytes().rstrip(b"\0")


def _flip(folder: Path, which: str) -> None:
    segment = _segment(folder, which)
    at, data = len(_records(segment)) * 2 // 3, bytearray(segment.read_bytes())
    if data:
        data[at] ^= 0x10
        segment.write_bytes(data)


def _zero(folder: Path, which: str) -> None:
    segment = _segment(folder, which)
    records, data = _records(segment), bytearray(segment.read_bytes())
    at = len(records) // 2
    size = min(ZEROED_BYTES, len(records) - at)
    data[at : at + size] = bytes(size)
    segment.write_bytes(data)


def _cut(folder: Path, which: str) -> None:
    segment = _segment(folder, which)
    segment.write_bytes(_records(segment)[:-CUT_BYTES])


def _delete(folder: Path, which: str) -> None:
    _segment(folder, which).unlink()


def _delete_segment(folder: Path, which: str) -> None:
    """Delete the segment with its indexes."""
    for file in folder.glob(f"{_segment(folder, which).stem}.*"):
        file.unlink()


def _set_checkpoint(folder: Path, name: str) -> None:
    path = folder.parent / name
    offsets = parse_offsets(name, path.read_bytes()) if path.exists() else {}
    topic, _, partition = folder.name.rpartition("-")
    offsets[TopicPartition(topic, int(partition))] = HUGE_OFFSET
    path.write_bytes(format_offsets(offsets))


def _garble_indexes(folder: Path) -> None:
    for kind in (layout.OFFSET_INDEX, layout.TIME_INDEX):
        for file in folder.glob(f"*{kind}"):
            file.write_bytes(b"\xa5" * file.stat().st_size)


def _delete_file(folder: Path, name: str) -> None:
    (folder / name).unlink(missing_ok=True)


def _delete_broker(folder: Path) -> None:
    shutil.rmtree(folder.parent)


WAYS: dict[str, Callable[[Path], None]] = {
    **{f"a flipped bit in the {which} segment": partial(_flip, which=which)
       for which in (FIRST, OLDER, ACTIVE)},
    **{f"zeros in the {which} segment": partial(_zero, which=which) for which in (OLDER, ACTIVE)},
    **{f"the tail of the {which} segment cut": partial(_cut, which=which)
       for which in (OLDER, ACTIVE)},
    **{f"the {which} segment deleted": partial(_delete, which=which)
       for which in (FIRST, OLDER, ACTIVE)},
    "the first segment and its indexes deleted": partial(_delete_segment, which=FIRST),
    "a huge log start": partial(_set_checkpoint, name=layout.LOG_STARTS),
    "a huge high watermark": partial(_set_checkpoint, name=layout.HIGH_WATERMARKS),
    "a huge recovery point": partial(_set_checkpoint, name=layout.RECOVERY_POINTS),
    "garbage in the indexes": _garble_indexes,
    "the leader epochs deleted": partial(_delete_file, name=layout.LEADER_EPOCHS),
    "the partition's folder deleted": shutil.rmtree,
    "the broker's folder deleted": _delete_broker,
}  # fmt: skip
"""Every kind of damage by what is left."""


def damage(log_dir: str, partition: TopicPartition, way: str) -> None:
    """Damage the files of one replica of a stopped broker."""
    WAYS[way](Path(log_dir, layout.partition_dir(partition)))
