"""Read the small files of a partition: epochs, topic id, snapshots, aborted transactions."""

import json
import os
import time
from contextlib import suppress
from typing import Any, NamedTuple

from tidelog.apps.audit.scan.summary import Remark
from tidelog.apps.log_files.read_only_file import CannotRead, Vanished, read_whole
from tidelog.core.lineage.producer_state import CorruptSnapshot, ProducerState
from tidelog.core.lineage.transaction_index import (
    ENTRY_SIZE,
    CorruptTransactionIndex,
    decode_transactions,
)
from tidelog.core.storage import checkpoint, layout
from tidelog.core.storage.checkpoint import CheckpointError
from tidelog.core.storage.layout import FileName

RENAMING_PAUSE_S = 0.1
PRODUCERS_MAX = 1000
"""The maximum number of producers in a snapshot to compare with other replicas."""
KNOWN_NAMES = frozenset(
    {
        *(layout.LEADER_EPOCHS, layout.PARTITION_METADATA, layout.ACKS_HISTORY),
        *("quorum-state", "remote_log_metadata"),
    }
)
_METADATA_SNAPSHOT = ".checkpoint"
"""`__cluster_metadata` keeps its snapshots beside its log."""


class FolderFacts(NamedTuple):
    """The contents of a partition's folder, except its batches."""

    segments: list[int]
    """Base offsets of its `.log` files."""
    epochs: list[tuple[int, int]] | None
    """Epochs and their start offsets; None if the file is missing or unreadable."""
    topic_id: str
    aborted: dict[str, list[tuple[int, int, int, int]]]
    """By `.txnindex` file: producer id, first and last offset, last stable offset."""
    snapshots: list[int]
    """Offsets of the valid producer snapshots."""
    remarks: list[Remark]
    error: str = ""
    producers: dict[str, tuple[int, int, int, int]] = {}  # noqa: RUF012 - never changed
    """Newest snapshot, by producer: epoch, last sequence number, last offset, its timestamp."""

    def to_json(self) -> str:
        return json.dumps(self, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> "FolderFacts":
        values: list[Any] = json.loads(text)
        made = cls(*values)
        epochs = None if made.epochs is None else [(each[0], each[1]) for each in made.epochs]
        aborted = {
            file: [(row[0], row[1], row[2], row[3]) for row in rows]
            for file, rows in made.aborted.items()
        }
        remarks = [Remark(*each) for each in made.remarks]
        producers = {key: (row[0], row[1], row[2], row[3]) for key, row in made.producers.items()}
        return made._replace(epochs=epochs, aborted=aborted, remarks=remarks, producers=producers)


def read_folder(path: str) -> FolderFacts:
    """Read all files of the folder except segments and their sparse indexes."""
    try:
        names = sorted(os.listdir(path))
    except OSError as error:
        return FolderFacts([], None, "", {}, [], [], (error.strerror or str(error)).lower())
    reading = _Reading(path)
    for name in names:
        reading.add(name)
    reading.report_leftovers()
    reading.report_orphans(names)
    return FolderFacts(
        reading.segments,
        reading.epochs,
        reading.topic_id,
        reading.aborted,
        reading.snapshots,
        reading.remarks,
        producers=reading.producers,
    )


class _Reading:
    def __init__(self, path: str) -> None:
        self.path = path
        self.segments: list[int] = []
        self.epochs: list[tuple[int, int]] | None = None
        self.topic_id = ""
        self.aborted: dict[str, list[tuple[int, int, int, int]]] = {}
        self.snapshots: list[int] = []
        self.remarks: list[Remark] = []
        self.leftovers: list[str] = []
        self.producers: dict[str, tuple[int, int, int, int]] = {}

    def add(self, name: str) -> None:
        parsed = layout.parse_file(name)
        if name == layout.LEADER_EPOCHS:
            self._epochs(name)
        elif name == layout.PARTITION_METADATA:
            self._topic_id(name)
        elif parsed is None:
            if name not in KNOWN_NAMES and not name.endswith((".tmp", _METADATA_SNAPSHOT)):
                self._remark("foreign-file", name, "unknown file in a partition's folder")
        elif parsed.suffix:
            self.leftovers.append(name)
        else:
            self._segment_file(name, parsed)

    def _segment_file(self, name: str, parsed: FileName) -> None:
        if parsed.kind == layout.LOG:
            self.segments.append(parsed.base_offset)
        elif parsed.kind == layout.SNAPSHOT:
            self._snapshot(name, parsed.base_offset)
        elif parsed.kind == layout.TXN_INDEX:
            self._transactions(name)

    def _read(self, name: str) -> bytes | None:
        try:
            return read_whole(os.path.join(self.path, name))
        except Vanished:
            return None
        except CannotRead as error:
            self._remark("unreadable", name, error.why)
            return None

    def _remark(self, kind: str, file: str, text: str, position: int = 0) -> None:
        self.remarks.append(Remark(kind, file, position, -1, -1, text))

    def _epochs(self, name: str) -> None:
        data = self._read(name)
        if data is None:
            return
        try:
            self.epochs = [(e.epoch, e.start_offset) for e in checkpoint.parse_epochs(name, data)]
        except CheckpointError as error:
            self._remark("epoch-checkpoint", name, error.problem)

    def _topic_id(self, name: str) -> None:
        data = self._read(name)
        if data is None:
            return
        try:
            self.topic_id = layout.format_topic_id(checkpoint.parse_topic_metadata(name, data))
        except CheckpointError as error:
            self._remark("partition-metadata", name, error.problem)

    def _snapshot(self, name: str, offset: int) -> None:
        data = self._read(name)
        if not data:
            # An empty one is between its creation and its write, or the broker was killed there.
            return
        try:
            state = ProducerState()
            state.load_snapshot(data, offset)
            self.snapshots.append(offset)
            self._producers(name, state, offset)
        except CorruptSnapshot as error:
            self._remark("producer-snapshot", name, str(error))

    def _producers(self, name: str, state: ProducerState, offset: int) -> None:
        known = [(key, entry) for key, entry in state.producers.items() if entry.batches]
        self.producers = {
            str(key): (entry.epoch, entry.last_sequence, last.last_offset, last.timestamp)
            for key, entry in known[:PRODUCERS_MAX]
            for last in entry.batches[-1:]
        }
        for key, (_, _, last, _) in self.producers.items():
            if last >= offset:
                text = f"producer {key} wrote offset {last}; the snapshot is for offset {offset}"
                self._remark("producer-snapshot", name, text)
                break

    def _transactions(self, name: str) -> None:
        data = self._read(name)
        if data is None:
            return
        try:
            self.aborted[name] = [(e[0], e[1], e[2], e[3]) for e in decode_transactions(data)]
        except CorruptTransactionIndex as error:
            sound = 0
            with suppress(CorruptTransactionIndex):
                while decode_transactions(data[: sound + ENTRY_SIZE]) and sound < len(data):
                    sound += ENTRY_SIZE
            self._remark("transaction-index", name, str(error), sound)

    def report_orphans(self, names: list[str]) -> None:
        """Report indexes whose segment is missing.

        Brokers rename a segment's files one after another, so list the folder again first.
        """
        orphans = self._orphans(names)
        if orphans:
            time.sleep(RENAMING_PAUSE_S)
            with suppress(OSError):
                orphans &= self._orphans(os.listdir(self.path))
        for base_offset in sorted(orphans):
            name = layout.file_name(base_offset, layout.LOG)
            text = "the segment is missing, but its indexes exist"
            self.remarks.append(Remark("segment-missing", name, -1, base_offset, base_offset, text))

    def _orphans(self, names: list[str]) -> set[int]:
        found = [parsed for name in names if (parsed := layout.parse_file(name)) is not None]
        logs = {each.base_offset for each in found if each.kind == layout.LOG}
        kinds = (layout.OFFSET_INDEX, layout.TIME_INDEX)
        return {each.base_offset for each in found if each.kind in kinds and not each.suffix} - logs

    def report_leftovers(self) -> None:
        if self.leftovers:
            more = f" and {len(self.leftovers) - 1} more" if len(self.leftovers) > 1 else ""
            text = f"{self.leftovers[0]}{more}: left over from a deletion or a compaction"
            self._remark("leftover", self.leftovers[0], text)
