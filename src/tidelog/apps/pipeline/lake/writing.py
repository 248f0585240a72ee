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


class _Place(NamedTuple):
    table: str
    topic: str
    date: str


class _Bucket:
    """One file that is being written."""

    def __init__(self, folder: str, place: _Place) -> None:
        self.place = place
        self.path = os.path.join(folder, f"{uuid.uuid4().hex}{layout.STAGED}")
        self.rows = 0
        self.bytes = 0
        self._held: list[Any] = []
        self._held_rows = 0
        self._held_bytes = 0
        self._writer: Any = None
        self._offsets: dict[str, tuple[int, int]] = {}

    def add(self, batch: Any) -> None:
        self._held.append(batch)
        self._held_rows += batch.num_rows
        self._held_bytes += batch.nbytes
        self.bytes += batch.nbytes
        if self._held_rows >= ROWS_PER_GROUP or self._held_bytes >= BYTES_PER_GROUP:
            self._write()

    def _write(self) -> None:
        import pyarrow as pa
        from pyarrow import parquet

        if not self._held:
            return
        table = pa.Table.from_batches(self._held)
        if self._writer is None:
            self._writer = parquet.ParquetWriter(self.path, table.schema, compression=CODEC)
        self._writer.write_table(table, row_group_size=table.num_rows)
        self._note_offsets(table)
        self.rows += table.num_rows
        self._held, self._held_rows, self._held_bytes = [], 0, 0

    def _note_offsets(self, table: Any) -> None:
        if "offset" not in table.column_names:
            return
        seen = table.select(["partition", "offset"]).group_by("partition")
        for row in seen.aggregate([("offset", "min"), ("offset", "max")]).to_pylist():
            partition = f"{self.place.topic}-{row['partition']}"
            low, high = self._offsets.get(partition, (row["offset_min"], row["offset_max"]))
            self._offsets[partition] = (min(low, row["offset_min"]), max(high, row["offset_max"]))

    def finish(self) -> StagedFile:
        self._write()
        self._writer.close()
        self._writer = None
        sync_file(self.path)
        return StagedFile(*self.place, self.path, self.rows, self._offsets)

    def drop(self) -> None:
        """Close a file that will not be finished."""
        if self._writer is not None:
            self._writer.close()


def write_staged(
    tables: Iterable[tuple[str, Any]], folder: str, file_bytes: int, by: Folders = BY_RECORD
) -> Iterator[StagedFile]:
    """Write record batches, each given with its table, and yield the finished files."""
    os.makedirs(folder, exist_ok=True)
    open_files: dict[_Place, _Bucket] = {}
    try:
        for table, batch in tables:
            for place, part in _split(table, batch, by):
                bucket = open_files.pop(place, None) or _Bucket(folder, place)
                open_files[place] = bucket  # the most recently used file is last
                bucket.add(part)
                if bucket.bytes >= file_bytes:
                    yield open_files.pop(place).finish()
                elif len(open_files) > OPEN_FILES_MAX:
                    yield open_files.pop(next(iter(open_files))).finish()
        while open_files:
            yield open_files.pop(next(iter(open_files))).finish()
    finally:
        for bucket in open_files.values():
            bucket.drop()


def _split(table: str, batch: Any, by: Folders) -> Iterator[tuple[_Place, Any]]:
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
        place = _Place(table, topics.dictionary[code].as_py(), date)
        chosen = (codes == code) & (days == day)
        yield place, rest if chosen.all() else rest.filter(pa.array(chosen))
