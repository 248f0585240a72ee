"""Damage to the files that a broker keeps for all its partitions.

A checkpoint is changed for one partition only, or damaged as a whole.
"""

import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path

from tidelog.apps.verify.nemesis.ways.batch_ways import GARBAGE
from tidelog.apps.verify.nemesis.ways.places import OLDER, Way, base_offset, segment
from tidelog.core.storage import layout
from tidelog.core.storage.checkpoint import CheckpointError, format_offsets, parse_offsets
from tidelog.core.types import TopicPartition

HUGE_OFFSET = 99_999_999
CHECKPOINTS = {
    "log start": layout.LOG_STARTS,
    "high watermark": layout.HIGH_WATERMARKS,
    "recovery point": layout.RECOVERY_POINTS,
    "cleaner offset": layout.CLEANER_OFFSETS,
}
WHOLE_FILES = (*CHECKPOINTS.values(), layout.META_PROPERTIES, layout.METADATA_REVISION)


def _set_offset(folder: Path, name: str, value: Callable[[Path], int]) -> None:
    path = folder.parent / name
    try:
        offsets = parse_offsets(name, path.read_bytes()) if path.exists() else {}
    except CheckpointError:
        offsets = {}
    topic, _, partition = folder.name.rpartition("-")
    offsets[TopicPartition(topic, int(partition))] = value(folder)
    path.write_bytes(format_offsets(offsets))


def _huge(_folder: Path) -> int:
    return HUGE_OFFSET


def _nothing(_folder: Path) -> int:
    return 0


def _negative(_folder: Path) -> int:
    return -7


def _plausible(folder: Path) -> int:
    """An offset inside the log, but not the start of a segment."""
    return base_offset(segment(folder, OLDER)) + 1


def _write(folder: Path, name: str, data: bytes) -> None:
    (folder.parent / name).write_bytes(data)


def _cut_file(folder: Path, name: str) -> None:
    path = folder.parent / name
    if path.exists():
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def _delete(folder: Path, name: str) -> None:
    (folder.parent / name).unlink(missing_ok=True)


def _delete_broker(folder: Path) -> None:
    shutil.rmtree(folder.parent)


ROW_WAYS: dict[str, Way] = {
    f"a {size} {what}": partial(_set_offset, name=name, value=value)
    for size, value in (
        ("huge", _huge),
        ("zero", _nothing),
        ("negative", _negative),
        ("plausible wrong", _plausible),
    )
    for what, name in CHECKPOINTS.items()
}
"""Wrong offsets of one partition. The broker rejects the whole file: its checksum is wrong."""
BROKER_WAYS: dict[str, Way] = {
    **ROW_WAYS,
    **{f"{name} deleted": partial(_delete, name=name) for name in WHOLE_FILES},
    **{f"{name} emptied": partial(_write, name=name, data=b"") for name in WHOLE_FILES},
    **{f"{name} cut": partial(_cut_file, name=name) for name in WHOLE_FILES},
    **{f"garbage in {name}": partial(_write, name=name, data=GARBAGE) for name in WHOLE_FILES},
    "the mark of a clean stop deleted": partial(_delete, name=layout.CLEAN_SHUTDOWN),
    "a mark of a clean stop": partial(_write, name=layout.CLEAN_SHUTDOWN, data=b""),
    "the broker's folder deleted": _delete_broker,
}
"""Damage that affects all partitions of the broker, by its description."""
