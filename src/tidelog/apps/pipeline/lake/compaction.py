"""Merge many small files into few large ones while other processes read the lake.

`Compaction` runs between batches and finds the folders to merge. A Spark task builds a new folder
in staging: the merged files, and links to the other files. Then one system call exchanges the two
folders, and the old folder is removed.

Invariants: a reader that lists the folder sees either the old files or the new files. A crash
before the exchange changes nothing; a crash after it leaves only files that the next start removes.
Rows keep their order. Only folders that received files in this run are checked. No files are merged
while Spark may still run the last batch again: an aggregate sends that batch's files to its topic.

Only files of about the same size are merged. So a row is copied once each time its file grows by a
factor of 8, not each time a small file is added.
"""

import math
import os
import shutil
import uuid
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from tidelog.apps.pipeline.lake import layout
from tidelog.apps.pipeline.lake.commit import Lake, last_committed
from tidelog.apps.pipeline.lake.durable import CannotExchange, exchange, sync_file, sync_folder
from tidelog.apps.pipeline.lake.writing import ROWS_PER_GROUP, GroupWriter
from tidelog.apps.pipeline.report import Report

GROWTH = 8
"""Files whose sizes are within this factor count as about the same size."""
MERGED = "-merged-"
FIRST_BYTES = 64 << 10
"""Files smaller than this all count as the same size."""


class Merge(NamedTuple):
    """A folder, and the small files in it to merge."""

    folder: str
    small: tuple[str, ...]
    staging: str
    file_bytes: int


class Built(NamedTuple):
    """A new folder that is ready for the exchange."""

    folder: str
    staged: str
    rows: int
    merged: int
    """The number of small files that the new folder replaces."""


def folders_to_merge(
    lake: str, folders: Iterable[str], staging: str, least: int, file_bytes: int
) -> list[Merge]:
    """Return the folders worth merging: those with `least` or more files of about the same size."""
    found = []
    for folder in sorted(folders):
        path = os.path.join(lake, folder)
        sizes = {}
        for entry in os.scandir(path) if os.path.isdir(path) else ():
            if entry.is_dir():
                break  # not a folder that we wrote
            if entry.name.endswith(layout.PARQUET):
                sizes[entry.name] = entry.stat().st_size
        else:
            small = files_to_merge(sizes, least, file_bytes)
            if small:
                found.append(Merge(path, small, staging, file_bytes))
    return found


def files_to_merge(sizes: dict[str, int], least: int, file_bytes: int) -> tuple[str, ...]:
    """Return the smallest files, if there are enough to merge, in the order of their names."""
    tiers = {
        name: max(math.ceil(math.log(max(size, 1) / FIRST_BYTES, GROWTH)), 0)
        for name, size in sizes.items()
        if size * 2 <= file_bytes
    }
    for tier in sorted(set(tiers.values())):
        chosen = sorted(name for name, each in tiers.items() if each <= tier)
        if len(chosen) >= max(least, 2):
            return tuple(chosen)
    return ()


def build(merge: Merge) -> Built:
    """Build the new folder. Runs in a task, possibly twice; each run uses a separate folder.

    Raises RuntimeError if rows would be lost.
    """
    from pyarrow import parquet

    staged = os.path.join(merge.staging, f"merge-{uuid.uuid4().hex}")
    os.makedirs(staged)
    for name in os.listdir(merge.folder):
        if name not in merge.small:
            _link(os.path.join(merge.folder, name), os.path.join(staged, name))
    rows = sum(_write_merged(merge, staged))
    paths = [os.path.join(merge.folder, name) for name in merge.small]
    wanted = sum(parquet.read_metadata(path).num_rows for path in paths)
    if rows != wanted:
        raise RuntimeError(f"{merge.folder}: not merged: {wanted} rows would become {rows} rows")
    sync_folder(staged)
    return Built(merge.folder, staged, rows, len(merge.small))


def replace_folder(built: Built) -> None:
    """Replace the old folder by the new one. On CannotExchange, nothing has changed."""
    exchange(built.folder, built.staged)
    shutil.rmtree(built.staged)


def _link(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:  # a file system without links
        shutil.copy2(source, target)
        sync_file(target)


def _write_merged(merge: Merge, staged: str) -> Iterator[int]:
    """Write the merged files, and yield the row count of each.

    A merged file is named after its first small file, so the files stay sorted by time.
    """
    from pyarrow import parquet

    writer: GroupWriter | None = None
    schema: Any = None
    bytes_in = 0
    for name in merge.small:
        path = os.path.join(merge.folder, name)
        with parquet.ParquetFile(path) as file:
            if writer is not None and (
                bytes_in >= merge.file_bytes or not file.schema_arrow.equals(schema)
            ):
                writer.finish()
                yield writer.rows
                writer = None
            if writer is None:
                schema, bytes_in = file.schema_arrow, 0
                # A file may be merged many times; its name must not grow each time.
                stem = name.removesuffix(layout.PARQUET).partition(MERGED)[0]
                merged = f"{stem}{MERGED}{uuid.uuid4().hex[:8]}{layout.PARQUET}"
                writer = GroupWriter(os.path.join(staged, merged))
            for batch in file.iter_batches(ROWS_PER_GROUP):
                writer.add(batch)
            bytes_in += os.path.getsize(path)
    if writer is not None:
        writer.finish()
        yield writer.rows


class Compaction:
    """Merges the small files of one lake, in Spark tasks."""

    def __init__(self, lake: Lake, checkpoint: str, least: int, file_bytes: int) -> None:
        self._lake = lake
        self._checkpoint = checkpoint
        self._least = least
        self._file_bytes = file_bytes
        self._folders: set[str] = set()
        self.merged = 0
        """Number of small files that were merged into larger ones."""
        self.refused = ""
        """Why files cannot be merged in this lake; empty if merging works."""

    def run(self, spark: Any) -> None:
        """Merge the files worth merging, unless Spark may still run the last batch again."""
        self._folders |= {os.path.dirname(path) for path in self._lake.moved_to()}
        if not self._least or self.refused or last_committed(self._checkpoint) < self._lake.batch:
            return
        merges = folders_to_merge(
            self._lake.path, self._folders, self._lake.staging, self._least, self._file_bytes
        )
        self._folders.clear()
        if not merges:
            return
        for built in spark.sparkContext.parallelize(merges, len(merges)).map(build).collect():
            try:
                replace_folder(built)
            except CannotExchange as error:
                self.refused = f"small files were not merged: {error}"
                return
            self.merged += built.merged

    def finish(self, spark: Any, report: Report) -> None:
        """Merge at the end of a run, and add the number of merged files to the report."""
        self.run(spark)
        report.merged = self.merged
        if self.refused:
            report.notes.append(self.refused)
