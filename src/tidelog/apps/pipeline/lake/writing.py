"""Write record batches to staged Parquet files, with separate files for each topic and day.

This runs in Spark's Python workers. Invariants: a file is reported only when it is finished and on
the disk. Files of a failed task have names that were never reported.
"""

import os
import uuid
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from tidelog.apps.pipeline.lake import layout
from tidelog.apps.pipeline.lake.commit import StagedFile
from tidelog.apps.pipeline.lake.durable import sync_file

ROWS_PER_GROUP = 131_072
BYTES_PER_GROUP = 32 << 20
OPEN_FILES_MAX = 64
"""Records with wrong timestamps could otherwise open a file for every possible day."""
CODEC = "zstd"
_DAY_US = 86_400_000_000


class Folders(NamedTuple):
    """The columns that decide the folder of a row."""

    topic: str | None
    """The topic column: a folder, not stored in the files; None for no folders by topic."""
    time: str
    """The timestamp column whose UTC day is a folder."""


BY_RECORD = Folders("topic", "timestamp")
BY_WINDOW = Folders(None, "window_start")


class GroupWriter:
    """Writes one Parquet file. It collects batches into full-size row groups."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.rows = 0
        self._batches: list[Any] = []
        self._batches_rows = 0
        self._batches_bytes = 0
        self._writer: Any = None

    def add(self, batch: Any) -> None:
        """Add a batch; write a row group if there are enough rows or bytes."""
        self._batches.append(batch)
        self._batches_rows += batch.num_rows
        self._batches_bytes += batch.nbytes
        if self._batches_rows >= ROWS_PER_GROUP or self._batches_bytes >= BYTES_PER_GROUP:
            self._write()

    def _write(self) -> None:
        import pyarrow as pa
        from pyarrow import parquet

        if not self._batches:
            return
        table = pa.Table.from_batches(self._batches)
        if self._writer is None:
            self._writer = parquet.ParquetWriter(self.path, table.schema, compression=CODEC)
        self._writer.write_table(table, row_group_size=table.num_rows)
        self.on_group(table)
        self.rows += table.num_rows
        self._batches, self._batches_rows, self._batches_bytes = [], 0, 0

    def on_group(self, table: Any) -> None:
        """Handle a written row group; for subclasses."""

    def finish(self) -> None:
        """Write the last row group, and make the file durable."""
        self._write()
        self.close()
        sync_file(self.path)

    def close(self) -> None:
        """Close the file, also if it is not finished."""
        if self._writer is not None:
            self._writer.close()


class _Target(NamedTuple):
    table: str
    topic: str
    date: str


class _StagedWriter(GroupWriter):
    """Writes one staged file, and collects its range of offsets."""

    def __init__(self, folder: str, target: _Target) -> None:
        super().__init__(os.path.join(folder, f"{uuid.uuid4().hex}{layout.STAGED}"))
        self.target = target
        self.bytes = 0
        self._offsets: dict[str, tuple[int, int]] = {}

    def add(self, batch: Any) -> None:
        self.bytes += batch.nbytes
        super().add(batch)

    def on_group(self, table: Any) -> None:
        if "offset" not in table.column_names:
            return
        by_partition = table.select(["partition", "offset"]).group_by("partition")
        for row in by_partition.aggregate([("offset", "min"), ("offset", "max")]).to_pylist():
            partition = f"{self.target.topic}-{row['partition']}"
            low, high = self._offsets.get(partition, (row["offset_min"], row["offset_max"]))
            self._offsets[partition] = (min(low, row["offset_min"]), max(high, row["offset_max"]))

    def staged_file(self) -> StagedFile:
        """Finish the file and return its description."""
        self.finish()
        return StagedFile(*self.target, self.path, self.rows, self._offsets)


def write_staged(
    tables: Iterable[tuple[str, Any]], folder: str, file_bytes: int, by: Folders = BY_RECORD
) -> Iterator[StagedFile]:
    """Write record batches, each given with its table, and yield the finished files."""
    os.makedirs(folder, exist_ok=True)
    open_files: dict[_Target, _StagedWriter] = {}
    try:
        for table, batch in tables:
            for target, part in _split(table, batch, by):
                writer = open_files.pop(target, None) or _StagedWriter(folder, target)
                open_files[target] = writer  # the most recently used file is last
                writer.add(part)
                if writer.bytes >= file_bytes:
                    yield open_files.pop(target).staged_file()
                elif len(open_files) > OPEN_FILES_MAX:
                    yield open_files.pop(next(iter(open_files))).staged_file()
        while open_files:
            yield open_files.pop(next(iter(open_files))).staged_file()
    finally:
        for writer in open_files.values():
            writer.close()


def _split(table: str, batch: Any, by: Folders) -> Iterator[tuple[_Target, Any]]:
    """Yield the parts of a batch, one for each folder."""
    import numpy as np
    import pyarrow as pa

    if not batch.num_rows:
        return
    topic = batch.column(by.topic) if by.topic else pa.repeat("", batch.num_rows)
    topics = topic.dictionary_encode()
    times = batch.column(by.time).cast(pa.timestamp("us", "UTC")).cast(pa.int64())
    days = np.asarray(times.fill_null(0)) // _DAY_US
    codes = np.asarray(topics.indices)
    rest = batch.drop_columns([by.topic]) if by.topic else batch
    keys = np.stack([codes, days])
    for code, day in np.unique(keys, axis=1).T.tolist():
        date = str(np.datetime64(day, "D"))
        target = _Target(table, topics.dictionary[code].as_py(), date)
        chosen = (codes == code) & (days == day)
        yield target, rest if chosen.all() else rest.filter(pa.array(chosen))
