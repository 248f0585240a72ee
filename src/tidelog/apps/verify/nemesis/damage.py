"""Every way to damage the files of one replica, while its broker is stopped or runs.

Each way is a function of the partition's folder. `PARTITION_WAYS` damage that partition only; the
others damage files that the broker keeps for all its partitions. Of those, a checkpoint is changed
for one partition only, or damaged as a whole.
"""

import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path

from tidelog.apps.verify.nemesis.segment_damage import (
    ACTIVE,
    BATCH_WAYS,
    FIRST,
    GARBAGE,
    OLDER,
    Way,
    base_offset,
    batches,
    cut,
    flip,
    segment,
    segments,
)
from tidelog.core.storage import checkpoint, layout
from tidelog.core.storage.checkpoint import CheckpointError, format_offsets, parse_offsets
from tidelog.core.storage.disk import DELETED_SUFFIX, TEMPORARY_SUFFIX
from tidelog.core.types import EpochEntry, TopicPartition

# -- files of a partition: segments, indexes, epochs, leftovers ------------------------------------


INDEXES = (layout.OFFSET_INDEX, layout.TIME_INDEX)
HUGE_EPOCH = 9999
OTHER_TOPIC_ID = bytes(range(16))
LEFTOVERS = (layout.CLEANED_SUFFIX, layout.SWAP_SUFFIX, TEMPORARY_SUFFIX, DELETED_SUFFIX)


# -- segments


def delete_log(folder: Path, which: str) -> None:
    """Delete the `.log` file of a segment and keep its indexes."""
    segment(folder, which).unlink()


def _delete_segment(folder: Path, which: str) -> None:
    """Delete a segment with its indexes."""
    for file in folder.glob(f"{segment(folder, which).stem}.*"):
        file.unlink()


def _empty_log(folder: Path, which: str) -> None:
    segment(folder, which).write_bytes(b"")


def _replace_log(folder: Path, which: str) -> None:
    """Replace the records with those of another segment."""
    file = segment(folder, which)
    other = segment(folder, ACTIVE if which == FIRST else FIRST)
    file.write_bytes(other.read_bytes())


def _shift_name(folder: Path, which: str) -> None:
    """Rename the segment and its indexes to a base offset that is one too high."""
    file = segment(folder, which)
    for each in list(folder.glob(f"{file.stem}.*")):
        each.rename(folder / layout.file_name(base_offset(file) + 1, each.suffix))


def _rename_log(folder: Path, which: str) -> None:
    """Rename a segment to `.bak`, as a person does who wants to keep a copy."""
    file = segment(folder, which)
    file.rename(file.with_name(f"{file.name}.bak"))


def _swap_logs(folder: Path) -> None:
    """Swap the records of two segments."""
    first, second = segment(folder, FIRST), segment(folder, OLDER)
    held = first.read_bytes()
    first.write_bytes(second.read_bytes())
    second.write_bytes(held)


def _empty_all(folder: Path) -> None:
    for file in segments(folder):
        file.write_bytes(b"")


def _delete_all(folder: Path) -> None:
    """Delete all files and keep the empty folder."""
    shutil.rmtree(folder)
    folder.mkdir()


def put_back_older_copy(folder: Path) -> None:
    """Restore the folder to an older state, with about half of the log."""
    found = segments(folder)
    last = segment(folder, OLDER)
    for file in found[found.index(last) + 1 :]:
        for each in folder.glob(f"{file.stem}.*"):
            each.unlink()
    kept = batches(last)
    kept = kept[: (len(kept) + 1) // 2]
    last.write_bytes(b"".join(bytes(batch.view()) for batch in kept))
    for kind in INDEXES:
        last.with_suffix(kind).unlink(missing_ok=True)
    for file in folder.glob(f"*{layout.SNAPSHOT}"):
        file.unlink()
    end = kept[-1].next_offset if kept else base_offset(last)
    _change_epochs(folder, lambda epochs: [e for e in epochs if e.start_offset < end])


# -- indexes and producer state


def _files(folder: Path, kinds: tuple[str, ...]) -> list[Path]:
    return [file for kind in kinds for file in sorted(folder.glob(f"*{kind}"))]


def _garble(folder: Path, kinds: tuple[str, ...]) -> None:
    for file in _files(folder, kinds):
        file.write_bytes(b"\xa5" * max(file.stat().st_size, 24))


def _empty(folder: Path, kinds: tuple[str, ...]) -> None:
    for file in _files(folder, kinds):
        file.write_bytes(b"")


def _delete(folder: Path, kinds: tuple[str, ...]) -> None:
    for file in _files(folder, kinds):
        file.unlink()


def _shift_indexes(folder: Path) -> None:
    """Give each segment the indexes of the segment before it."""
    for kind in INDEXES:
        files = _files(folder, (kind,))
        held = [file.read_bytes() for file in files]
        for file, data in zip(files, held[-1:] + held[:-1], strict=True):
            file.write_bytes(data)


def _point_indexes_wrong(folder: Path) -> None:
    """Change each position by a few bytes; the entries still rise."""
    for file in _files(folder, (layout.OFFSET_INDEX,)):
        data = bytearray(file.read_bytes())
        for at in range(7, len(data), 8):
            if any(data[at - 3 : at + 1]):
                data[at] ^= 0x05
        file.write_bytes(data)


def _add_transaction_index(folder: Path) -> None:
    for file in segments(folder):
        file.with_suffix(layout.TXN_INDEX).write_bytes(GARBAGE)


def _add_snapshot(folder: Path) -> None:
    """Add a snapshot for an offset beyond the log."""
    (folder / layout.file_name(2**40, layout.SNAPSHOT)).write_bytes(GARBAGE)


# -- leader epochs, topic id, leftovers


def _change_epochs(folder: Path, change: Callable[[list[EpochEntry]], list[EpochEntry]]) -> None:
    path = folder / layout.LEADER_EPOCHS
    entries = checkpoint.parse_epochs(str(path), path.read_bytes()) if path.exists() else []
    path.write_bytes(checkpoint.format_epochs(change(entries)))


def _middle_of(folder: Path) -> int:
    """Return an offset inside the log, but not the start of a segment."""
    return base_offset(segment(folder, OLDER)) + 1


def _add_epoch(folder: Path) -> None:
    """Assign half of the log to an epoch that never existed."""
    at = _middle_of(folder)
    _change_epochs(
        folder,
        lambda epochs: [*(e for e in epochs if e.start_offset < at), EpochEntry(HUGE_EPOCH, at)],
    )


def _raise_epochs(folder: Path) -> None:
    """Raise every epoch by one, so that none matches the log."""
    _change_epochs(folder, lambda epochs: [e._replace(epoch=e.epoch + 1) for e in epochs])


def _shift_epochs(folder: Path) -> None:
    """Raise the start offset of every epoch by one."""
    _change_epochs(
        folder, lambda epochs: [e._replace(start_offset=e.start_offset + 1) for e in epochs]
    )


def _write(folder: Path, name: str, data: bytes) -> None:
    (folder / name).write_bytes(data)


def _delete_file(folder: Path, name: str) -> None:
    (folder / name).unlink(missing_ok=True)


def _leave_behind(folder: Path, suffix: str) -> None:
    """Write garbage under the file names of an unfinished compaction."""
    file = segment(folder, OLDER)
    for kind in (layout.LOG, layout.OFFSET_INDEX):
        target = file.with_suffix(kind)
        target.with_name(target.name + suffix).write_bytes(GARBAGE)


EVERYWHERE = (FIRST, OLDER, ACTIVE)

FILE_WAYS: dict[str, Way] = {
    **{f"the {which} segment deleted": partial(delete_log, which=which) for which in EVERYWHERE},
    **{f"the {which} segment and its indexes deleted": partial(_delete_segment, which=which)
       for which in EVERYWHERE},
    **{f"the {which} segment emptied": partial(_empty_log, which=which) for which in EVERYWHERE},
    **{f"the {which} segment replaced by another": partial(_replace_log, which=which)
       for which in EVERYWHERE},
    **{f"the {which} segment under the name of another offset": partial(_shift_name, which=which)
       for which in EVERYWHERE},
    **{f"the {which} segment renamed to .bak": partial(_rename_log, which=which)
       for which in EVERYWHERE},
    "two segments under each other's name": _swap_logs,
    "all segments emptied": _empty_all,
    "all segments deleted": partial(_delete, kinds=(layout.LOG,)),
    "the partition's folder emptied": _delete_all,
    "the partition's folder deleted": shutil.rmtree,
    "an older copy of the partition's folder": put_back_older_copy,
    "garbage in the indexes": partial(_garble, kinds=INDEXES),
    "the indexes emptied": partial(_empty, kinds=INDEXES),
    "the indexes deleted": partial(_delete, kinds=INDEXES),
    "the indexes of other segments": _shift_indexes,
    "wrong positions in the indexes": _point_indexes_wrong,
    "garbage in transaction indexes": _add_transaction_index,
    "garbage in the producer snapshots": partial(_garble, kinds=(layout.SNAPSHOT,)),
    "the producer snapshots emptied": partial(_empty, kinds=(layout.SNAPSHOT,)),
    "the producer snapshots deleted": partial(_delete, kinds=(layout.SNAPSHOT,)),
    "a producer snapshot of an offset beyond the log": _add_snapshot,
    "the leader epochs deleted": partial(_delete_file, name=layout.LEADER_EPOCHS),
    "the leader epochs emptied": partial(_write, name=layout.LEADER_EPOCHS, data=b""),
    "garbage in the leader epochs": partial(_write, name=layout.LEADER_EPOCHS, data=GARBAGE),
    "a leader epoch too many": _add_epoch,
    "all leader epochs one too high": _raise_epochs,
    "all leader epochs begin too late": _shift_epochs,
    "the topic id deleted": partial(_delete_file, name=layout.PARTITION_METADATA),
    "the topic id emptied": partial(_write, name=layout.PARTITION_METADATA, data=b""),
    "garbage in the topic id": partial(_write, name=layout.PARTITION_METADATA, data=GARBAGE),
    "the topic id of another topic": partial(
        _write,
        name=layout.PARTITION_METADATA,
        data=checkpoint.format_topic_metadata(OTHER_TOPIC_ID),
    ),
    **{f"garbage in {suffix} files": partial(_leave_behind, suffix=suffix)
       for suffix in LEFTOVERS},
}  # fmt: skip
"""Damage to files of one partition, by its description."""


# -- files of a broker -----------------------------------------------------------------------------


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


def _write_broker_file(folder: Path, name: str, data: bytes) -> None:
    (folder.parent / name).write_bytes(data)


def _cut_broker_file(folder: Path, name: str) -> None:
    path = folder.parent / name
    if path.exists():
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def _delete_broker_file(folder: Path, name: str) -> None:
    (folder.parent / name).unlink(missing_ok=True)


_WRONG_OFFSETS: dict[str, Callable[[Path], int]] = {
    "huge": lambda _folder: HUGE_OFFSET,
    "zero": lambda _folder: 0,
    "negative": lambda _folder: -7,
    "plausible wrong": _middle_of,
}
ROW_WAYS: dict[str, Way] = {
    f"a {size} {what}": partial(_set_offset, name=name, value=value)
    for size, value in _WRONG_OFFSETS.items()
    for what, name in CHECKPOINTS.items()
}
"""Wrong offsets of one partition. The broker rejects the whole file: its checksum is wrong."""
BROKER_WAYS: dict[str, Way] = {
    **ROW_WAYS,
    **{f"{name} deleted": partial(_delete_broker_file, name=name) for name in WHOLE_FILES},
    **{f"{name} emptied": partial(_write_broker_file, name=name, data=b"") for name in WHOLE_FILES},
    **{f"{name} cut": partial(_cut_broker_file, name=name) for name in WHOLE_FILES},
    **{
        f"garbage in {name}": partial(_write_broker_file, name=name, data=GARBAGE)
        for name in WHOLE_FILES
    },
    "the mark of a clean stop deleted": partial(_delete_broker_file, name=layout.CLEAN_SHUTDOWN),
    "a mark of a clean stop": partial(_write_broker_file, name=layout.CLEAN_SHUTDOWN, data=b""),
    "the broker's folder deleted": lambda folder: shutil.rmtree(folder.parent),
}
"""Damage that affects all partitions of the broker, by its description."""


# -- all ways --------------------------------------------------------------------------------------


def _in_closed_segment(folder: Path, change: Callable[[Path, str], None]) -> None:
    """Damage an older segment; do nothing while the log has only one."""
    if len(segments(folder)) > 1:
        change(folder, OLDER)


PARTITION_WAYS: dict[str, Way] = {**BATCH_WAYS, **FILE_WAYS}
"""Damage to one partition alone."""
WAYS: dict[str, Way] = {**PARTITION_WAYS, **BROKER_WAYS}
"""Damage while the broker is stopped, by its description."""
LIVE_WAYS: dict[str, Way] = {
    "a flipped bit in a closed segment": partial(_in_closed_segment, change=flip),
    "the tail of a closed segment cut": partial(_in_closed_segment, change=cut),
    "a closed segment deleted": partial(_in_closed_segment, change=delete_log),
}
"""Damage while the broker runs, by its description."""


def damage(log_dir: str, partition: TopicPartition, way: str) -> None:
    """Damage the files of one replica."""
    change = WAYS.get(way) or LIVE_WAYS[way]
    change(Path(log_dir, layout.partition_dir(partition)))
