"""How a micro-batch becomes part of a lake: once, whatever dies in between.

1. Tasks write files under `_tidelog/staging`, and report each when it is finished.
2. The driver writes the commit record: query, batch, each staged file and its place. That is
   the moment of commit; it is one rename.
3. The files are moved to their places.

A crash before 2 leaves staged files that nobody reads, and Spark runs the batch again. A crash
after 2 leaves moves to be done: `Lake.open` does them, and the batch, when Spark runs it again,
is known and left out. A replay may cut its rows into other files than before; that is why
names of files alone would not do.

Always true: one process writes to a lake at a time; a batch is committed by a query at most
once; offsets of a partition only grow (unless `overlap` accepts otherwise).
"""

import os
import shutil
import uuid
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import Any, NamedTuple

from tidelog.apps.pipeline.lake import layout
from tidelog.apps.pipeline.lake.durable import (
    Taken,
    held,
    make_folder,
    read_whole,
    sync_folder,
    write_whole,
)

VERSION = 1
_ANEW = "restore the one that belongs to the other, or begin anew: a new path and a new checkpoint"


class LakeRefuses(Exception):
    """The lake can't take this; one line that says what to do."""


class StagedFile(NamedTuple):
    """A finished file that no reader sees yet."""

    table: str
    topic: str
    date: str
    path: str
    rows: int
    offsets: dict[str, tuple[int, int]]
    """First and last offset for each partition in it, `topic-partition`."""


class Lake:
    """One lake, open for writing by this process."""

    def __init__(self, path: str, overlap: str = "fail", *, gaps: bool = False) -> None:
        """`gaps`: not every batch of the query comes here."""
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
        """Take the lake, and finish what an earlier process committed. Raises LakeRefuses."""
        make_folder(layout.own(self.path))
        try:
            self._lock.enter_context(held(layout.own(self.path, "lock")))
        except Taken:
            raise LakeRefuses(
                f"another pipeline writes to {self.path}; wait for it, or stop it"
            ) from None
        try:
            self._finish()
        except BaseException:
            self.close()
            raise

    def _finish(self) -> None:
        record = read_whole(layout.commit_record(self.path)) or {}
        if record.get("version", VERSION) != VERSION:
            raise LakeRefuses(f"{self.path} is of a newer tidelog; use that one")
        self._record = record
        self._move_all()
        shutil.rmtree(layout.staging(self.path), ignore_errors=True)
        make_folder(self.staging)

    def close(self) -> None:
        """Let the lake go."""
        self._lock.close()

    @property
    def staging(self) -> str:
        """Where this run's tasks write."""
        return os.path.join(layout.staging(self.path), self.run)

    @property
    def query(self) -> str:
        """The query that wrote it; empty: none did yet."""
        return str(self._record.get("query", ""))

    @property
    def batch(self) -> int:
        """The last committed batch; -1: none."""
        return int(self._record.get("batch", -1))

    @property
    def totals(self) -> dict[str, int]:
        """Rows by table since the lake was begun."""
        return dict(self._record.get("totals", {}))

    def files_of_last_batch(self, table: str = layout.DATA) -> list[str]:
        """Where the last committed batch is, unless it was compacted since."""
        wanted = table + os.sep
        return [os.path.join(self.path, to) for to in self.moved_to() if to.startswith(wanted)]

    def moved_to(self) -> list[str]:
        """The same for all tables, from the lake on."""
        return [to for _, to in self._record.get("moves", [])]

    def rows_of_last_batch(self) -> dict[str, int]:
        """How many rows the last committed batch had, by table."""
        return dict(self._record.get("rows", {}))

    def is_committed(self, query: str, batch: int) -> bool:
        """Whether the lake has this batch already. Raises LakeRefuses."""
        if self.query not in ("", query):
            raise LakeRefuses(
                f"{self.path} was written with another checkpoint; go on with that one,"
                " or name a new path"
            )
        if batch < self.batch:
            raise LakeRefuses(
                f"the checkpoint is at batch {batch} and {self.path} at {self.batch}: it is an"
                f" older copy; {_ANEW}"
            )
        if batch > self.batch + 1 and not self._gaps:
            raise LakeRefuses(
                f"the checkpoint has done {batch} batches and {self.path} has {self.batch + 1}:"
                f" rows would be missing; {_ANEW}"
            )
        return batch == self.batch

    def commit(self, query: str, batch: int, files: Sequence[StagedFile]) -> None:
        """Make staged files part of the lake. Raises LakeRefuses, and nothing is changed."""
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
        write_whole(layout.commit_record(self.path), record)
        self._record = record
        self._move_all()

    def _move_all(self) -> None:
        """Do what the commit record says and is not done yet."""
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
        """The last offset of each partition with these files; that none was there before."""
        last: dict[str, int] = dict(self._record.get("last_offsets", {}))
        before = dict(last)
        for file in files:
            for partition, (low, high) in file.offsets.items():
                if low <= before.get(partition, -1) and self._overlap == "fail":
                    raise LakeRefuses(
                        f"{partition}: offset {low} comes again, the lake has all up to"
                        f" {before[partition]}; if the topic was made anew, name a new path,"
                        ' or set overlap = "accept"'
                    )
                last[partition] = max(last.get(partition, -1), high)
        return last
