"""Plan the work: divide log directories into units, and pack the units into tasks.

Large segments are split at batches that their offset index names. An index can be wrong, so a
split needs a valid batch that ends with the offset of the index entry. The task that reads up
to a split checks that a batch ends exactly there. Both checks together prove that batches cover
the file from its first byte to its last, even with a wrong index.
"""

import os
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tidelog.apps.audit.folders.discovery import FoundFolder, find_log_dirs, replica_names
from tidelog.apps.audit.folders.log_dir import LogDirFacts, read_log_dir
from tidelog.apps.audit.scan.index_check import OFFSET_ENTRY
from tidelog.apps.audit.scan.stretch_scan import Stretch
from tidelog.apps.log_files.read_only_file import CannotRead, read_whole
from tidelog.core.record.crc32c import crc32c
from tidelog.core.record.record_batch import CRC_FROM, HEADER, HEADER_SIZE, MAGIC, PREFIX_SIZE
from tidelog.core.storage import layout
from tidelog.core.types import TopicPartition

SPLIT_BYTES = 64 * 1024 * 1024
UNITS_MAX = 256
"""The maximum number of units in a task."""
_BATCH_MAX = 128 * 1024 * 1024
_SMALL_FILE = 65_536
"""The cost of opening a file, as an equivalent number of bytes to read."""


class Unit(NamedTuple):
    """One unit of work: the files of a log directory, the small files of a folder, a stretch."""

    log_dir: str
    replica: str
    partition: TopicPartition | None = None
    facts: LogDirFacts | None = None
    folder: str = ""
    stretch: Stretch | None = None
    log_start: int = 0
    high_watermark: int | None = None

    @property
    def cost(self) -> int:
        stretch = self.stretch
        return _SMALL_FILE + (stretch.end - stretch.start if stretch else 0)


class Planned(NamedTuple):
    """What a query reads, as input for `plan`."""

    paths: tuple[str, ...]
    split_bytes: int = SPLIT_BYTES
    only: frozenset[str] = frozenset()
    """If not empty: read only these segment files, each without a split."""
    folders: frozenset[str] = frozenset()
    """If not empty: read only these partitions."""
    windows: Mapping[str, tuple[int, ...]] = {}
    """The offset windows to read, by folder; empty means all offsets."""


def plan(wanted: Planned) -> list[Unit]:
    """Return the units below the paths, log directories first. Raises NothingThere."""
    found = find_log_dirs(wanted.paths)
    names = replica_names([each.path for each in found])
    facts = {each.path: read_log_dir(each, names[each.path]) for each in found}
    cleaned = _cleaned(list(facts.values()))
    units = [Unit(path, names[path], facts=each) for path, each in facts.items()]
    for each in found:
        for folder in sorted(each.folders):
            units += _folder_units(facts[each.path], folder, cleaned, wanted)
    return [unit for unit in units if _is_wanted(unit, wanted)]


def _is_wanted(unit: Unit, wanted: Planned) -> bool:
    if wanted.folders and unit.partition and str(unit.partition) not in wanted.folders:
        return False
    if wanted.windows and (unit.partition is None or str(unit.partition) not in wanted.windows):
        return False
    return not wanted.only or (unit.stretch is not None and unit.stretch.path in wanted.only)


def _cleaned(log_dirs: list[LogDirFacts]) -> dict[tuple[str, str], int]:
    """Return the offset below which the cleaner explains gaps, by cluster and folder.

    It is the maximum of all replicas: a replica also gets gaps when it copies a cleaned log.
    """
    cleaned: dict[tuple[str, str], int] = {}
    for facts in log_dirs:
        for folder, offset in facts.offsets.get("cleaner", {}).items():
            key = (facts.cluster_id, folder)
            cleaned[key] = max(offset, cleaned.get(key, 0))
    return cleaned


def _folder_units(
    facts: LogDirFacts, folder: FoundFolder, cleaned: dict[tuple[str, str], int], wanted: Planned
) -> Iterator[Unit]:
    name = os.path.basename(folder.path)
    unit = Unit(
        facts.path,
        facts.name,
        folder.partition,
        folder=folder.path,
        log_start=facts.offset("log_start", name) or 0,
        high_watermark=facts.offset("high_watermark", name),
    )
    yield unit
    try:
        names = [folder.only] if folder.only else sorted(os.listdir(folder.path))
    except OSError:
        return  # the task that reads the folder reports the error
    cleaned_upto = cleaned.get((facts.cluster_id, name), 0)
    parsed_names = [(file, layout.parse_file(file)) for file in names]
    logs = [(file, p.base_offset) for file, p in parsed_names if p and p[1:] == (layout.LOG, "")]
    known = (facts.offset("high_watermark", name), facts.offset("recovery_point", name))
    for number, (file, base_offset) in enumerate(logs):
        ends = tuple(each for each in known if each) if number + 1 == len(logs) else ()
        ends += tuple(after for _, after in logs[number + 1 : number + 2])
        path = os.path.join(folder.path, file)
        size = _size(path)
        split = 0 if path in wanted.only else wanted.split_bytes
        cuts = [0, *_cuts(path, base_offset, size, split)]
        for start, end in zip(cuts, [*cuts[1:], size], strict=True):
            last = start == cuts[-1]
            stretch = Stretch(path, base_offset, start, end, last, cleaned_upto, ends)
            yield unit._replace(stretch=stretch)


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size
    except OSError:
        return 0  # deleted by retention after the listing; the task reports other errors


def _cuts(path: str, base_offset: int, size: int, split: int) -> list[int]:
    """Return positions to split a file at: about every `split` bytes, at indexed batches."""
    if not split or size < split * 3 // 2:
        return []
    try:
        data = read_whole(path[: -len(layout.LOG)] + layout.OFFSET_INDEX)
    except CannotRead:
        return []
    entries = np.frombuffer(data[: len(data) // 8 * 8], OFFSET_ENTRY)
    try:
        with open(path, "rb") as file:
            return list(_sound_entries(file.fileno(), base_offset, size, split, entries))
    except OSError:
        return []  # the task that reads the segment reports the error


def _sound_entries(
    fd: int, base_offset: int, size: int, split: int, entries: NDArray[Any]
) -> Iterator[int]:
    positions = entries["position"].astype(np.int64)
    last = 0
    for goal in range(split, size - split // 2, split):
        for at in np.flatnonzero(positions >= goal)[:1].tolist():
            position = int(positions[at])
            offset = base_offset + int(entries["relative"][at])
            if position > last and _is_batch(fd, position, size, offset):
                yield position
                last = position


def _is_batch(fd: int, position: int, size: int, last_offset: int) -> bool:
    """Return whether a valid batch that ends with `last_offset` begins at `position`."""
    header = os.pread(fd, HEADER_SIZE, position)
    if len(header) < HEADER_SIZE:
        return False
    fields = HEADER.unpack(header)
    length = fields[1] + PREFIX_SIZE
    if fields[3] != MAGIC or not HEADER_SIZE <= length <= min(_BATCH_MAX, size - position):
        return False
    body = os.pread(fd, length - CRC_FROM, position + CRC_FROM)
    return fields[0] + fields[6] == last_offset and crc32c(body) == fields[4]


def pack(units: list[Unit], split_bytes: int = SPLIT_BYTES) -> list[list[Unit]]:
    """Pack units into tasks in order, each with about `split_bytes` of work."""
    tasks: list[list[Unit]] = []
    room = 0
    for unit in units:
        if not tasks or room < unit.cost or len(tasks[-1]) >= UNITS_MAX:
            tasks.append([])
            room = max(split_bytes, unit.cost)
        tasks[-1].append(unit)
        room -= unit.cost
    return tasks


READ_COMMITTED, READ_UNCOMMITTED = "read_committed", "read_uncommitted"
OFFSET_MAX = 2**63 - 1


class RecordView(NamedTuple):
    """The options of a query that select records."""

    isolation: str = ""
    include_deleted: bool = False
    skip_damage: bool = False

    def bounds(self, unit: Unit) -> tuple[int, int]:
        """Return the first offset to return, and the offset to stop before."""
        end = OFFSET_MAX
        if self.isolation and unit.high_watermark is not None:
            end = unit.high_watermark
        return (0 if self.include_deleted else unit.log_start), end
