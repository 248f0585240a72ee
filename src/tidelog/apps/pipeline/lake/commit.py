"""Commit a micro-batch to a lake exactly once, also if a process crashes during the commit.

1. Tasks write files under `_tidelog/staging`, and report each file when it is finished.
2. The driver writes the commit record: query, batch, each staged file and its final path. This
   commits the batch; it is one rename.
3. The driver moves the files to their final paths.

A crash before step 2 leaves staged files that no reader sees, and Spark runs the batch again. A
crash after step 2 leaves files to move. `Lake.open` moves them; when Spark runs the batch again,
the lake recognises and skips it. A replay may split its rows into different files, so file names
alone cannot detect a replay.

Invariants: one process writes to a lake at a time. A query commits a batch at most once. Offsets
of a partition only grow (unless `overlap` is `accept`).
"""

import os
import shutil
import uuid
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import Any, NamedTuple

from tidelog.apps.pipeline.lake import layout
from tidelog.apps.pipeline.lake.durable import (
    LockTaken,
    file_lock,
    make_folder,
    read_json,
    sync_folder,
    write_json,
)

VERSION = 1
NO_BATCH = -1
_START_OVER = "restore copies of both from the same time, or set a new path and a new checkpoint"


class LakeError(Exception):
    """The lake rejects an operation. The message is one line that says what to do."""


def last_committed(checkpoint: str) -> int:
    """Return the last batch in Spark's commit log; -1 if there is no batch."""
    try:
        names = os.listdir(os.path.join(checkpoint, "commits"))
    except OSError:
        return NO_BATCH
    return max((int(name) for name in names if name.isdigit()), default=NO_BATCH)


class StagedFile(NamedTuple):
    """A finished file that is not committed, so that no reader sees it yet."""

    table: str
    topic: str
    date: str
    path: str
    rows: int
    offsets: dict[str, tuple[int, int]]
    """First and last offset in the file, by partition (`topic-partition`)."""


class Lake:
    """One lake, open for writing by this process."""

    def __init__(self, path: str, overlap: str = "fail", *, gaps: bool = False) -> None:
        """`gaps` allows the query to skip batch numbers: not every batch is written here."""
        self.path = path
        self.run = uuid.uuid4().hex[:12]
        self._overlap = overlap
        self._gaps = gaps
        self._lock = ExitStack()
        self._record: dict[str, Any] = {}

    def __enter__(self) -> "Lake":
        self.open()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def open(self) -> None:
        """Lock the lake, and finish the commit of an earlier process. Raises LakeError."""
        make_folder(layout.own(self.path))
        try:
            self._lock.enter_context(file_lock(layout.own(self.path, "lock")))
        except LockTaken:
            raise LakeError(
                f"another pipeline is writing to {self.path}; wait until it ends, or stop it"
            ) from None
        try:
            self._finish()
        except BaseException:
            self.close()
            raise

    def _finish(self) -> None:
        record = read_json(layout.commit_record(self.path)) or {}
        if record.get("version", VERSION) != VERSION:
            raise LakeError(f"a newer version of tidelog wrote {self.path}; use that version")
        self._record = record
        self._move_all()
        shutil.rmtree(layout.staging(self.path), ignore_errors=True)
        make_folder(self.staging)

    def close(self) -> None:
        """Release the lock."""
        self._lock.close()

    @property
    def staging(self) -> str:
        """The folder to which the tasks of this run write."""
        return os.path.join(layout.staging(self.path), self.run)

    @property
    def query(self) -> str:
        """The id of the query that writes this lake; empty if no batch was committed."""
        return str(self._record.get("query", ""))

    @property
    def batch(self) -> int:
        """The number of the last committed batch; -1 if no batch was committed."""
        return int(self._record.get("batch", NO_BATCH))

    @property
    def totals(self) -> dict[str, int]:
        """Rows by table since the lake was created."""
        return dict(self._record.get("totals", {}))

    def files_of_last_batch(self, table: str = layout.DATA) -> list[str]:
        """Return the files of the last committed batch; compaction may have replaced them since."""
        wanted = table + os.sep
        return [os.path.join(self.path, to) for to in self.moved_to() if to.startswith(wanted)]

    def moved_to(self) -> list[str]:
        """Return the files of the last batch in all tables, relative to the lake."""
        return [to for _, to in self._record.get("moves", [])]

    def rows_of_last_batch(self) -> dict[str, int]:
        """Return the row counts of the last committed batch, by table."""
        return dict(self._record.get("rows", {}))

    def is_committed(self, query: str, batch: int) -> bool:
        """Whether the lake already has this batch.

        Raises LakeError if the checkpoint and the lake do not belong together.
        """
        if self.query not in ("", query):
            raise LakeError(
                f"{self.path} was written with another checkpoint; use that checkpoint,"
                " or set a new path"
            )
        if batch < self.batch:
            raise LakeError(
                f"the checkpoint is at batch {batch}, but {self.path} is at batch {self.batch}: the"
                f" checkpoint is an older copy; {_START_OVER}"
            )
        if batch > self.batch + 1 and not self._gaps:
            raise LakeError(
                f"the checkpoint has {batch} batches, but {self.path} has {self.batch + 1}: rows"
                f" would be missing; {_START_OVER}"
            )
        return batch == self.batch

    def commit(self, query: str, batch: int, files: Sequence[StagedFile]) -> None:
        """Make staged files part of the lake. On LakeError, nothing has changed."""
        last = self._next_offsets(files)
        moves = []
        for number, file in enumerate(files):
            name = f"part-{batch:08d}-{number:05d}-{query[:8]}{layout.PARQUET}"
            folder = layout.partition_folder(file.table, file.topic, file.date)
            moves.append([os.path.relpath(file.path, self.path), os.path.join(folder, name)])
        rows: dict[str, int] = {}
        for file in files:
            rows[file.table] = rows.get(file.table, 0) + file.rows
        totals = {t: self.totals.get(t, 0) + rows.get(t, 0) for t in {**self.totals, **rows}}
        if files:
            sync_folder(self.staging)
        record = {
            "version": VERSION,
            "query": query,
            "batch": batch,
            "moves": moves,
            "rows": rows,
            "totals": totals,
            "last_offsets": last,
        }
        write_json(layout.commit_record(self.path), record)
        self._record = record
        self._move_all()

    def _move_all(self) -> None:
        """Move the files of the commit record that are still in staging."""
        touched = set()
        for staged, final in self._record.get("moves", []):
            source, target = os.path.join(self.path, staged), os.path.join(self.path, final)
            if os.path.exists(source):
                make_folder(os.path.dirname(target))
                os.replace(source, target)
                touched.add(os.path.dirname(target))
        for folder in touched:
            sync_folder(folder)

    def _next_offsets(self, files: Sequence[StagedFile]) -> Mapping[str, int]:
        """Return the last offset of each partition after these files.

        Raises LakeError if the lake already has an offset, unless `overlap` is `accept`.
        """
        last: dict[str, int] = dict(self._record.get("last_offsets", {}))
        before = dict(last)
        for file in files:
            for partition, (low, high) in file.offsets.items():
                if low <= before.get(partition, -1) and self._overlap == "fail":
                    raise LakeError(
                        f"{partition}: offset {low} was read again, but the lake has all offsets up"
                        f" to {before[partition]}; if the topic was recreated, set a new path"
                        ' or overlap = "accept"'
                    )
                last[partition] = max(last.get(partition, -1), high)
        return last
