"""Read the files of a log directory: ids, mark of a clean shutdown, checkpoints."""

import json
import os
from typing import Any, NamedTuple

from tidelog.apps.audit.folders.discovery import FoundLogDir
from tidelog.apps.audit.scan.summary import Remark
from tidelog.apps.log_files.checkpoint_files import OFFSET_FILES
from tidelog.apps.log_files.read_only_file import CannotRead, Vanished, read_whole
from tidelog.core.storage import checkpoint, layout
from tidelog.core.storage.checkpoint import CheckpointError
from tidelog.core.types import TopicPartition

KNOWN_NAMES = frozenset(
    {
        layout.META_PROPERTIES,
        layout.CLEAN_SHUTDOWN,
        layout.METADATA_REVISION,
        layout.METADATA_COPY,
        layout.CHECKPOINT_CHECKSUMS,
        layout.EPOCH_CHECKSUMS,
        layout.DAMAGED_LOGS,
        layout.LOSSES,
        layout.OLD_LOSSES,
        layout.LOSSES_PUBLISHED,
        *OFFSET_FILES,
        ".lock",
        "bootstrap.checkpoint",
        "lost+found",
        "remote_log_snapshot",
        layout.CONFIRMED_CLOCK,
    }
)


class LogDirFacts(NamedTuple):
    """The contents of a log directory's own files."""

    path: str
    name: str
    """A short name for reports."""
    clean: bool
    """Whether the broker shut down cleanly: then no batch may be incomplete."""
    node_id: str
    cluster_id: str
    directory_id: str
    offsets: dict[str, dict[str, int]]
    """By checkpoint (`log_start`, `recovery_point`, `high_watermark`, `cleaner`), by folder."""
    folders: list[str] | None
    """Names of all partition folders; None if only some of them are audited."""
    remarks: list[Remark]

    def offset(self, what: str, partition: str) -> int | None:
        return self.offsets.get(what, {}).get(partition)

    def to_json(self) -> str:
        return json.dumps(self, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> "LogDirFacts":
        values: list[Any] = json.loads(text)
        made = cls(*values)
        return made._replace(remarks=[Remark(*each) for each in made.remarks])


def read_log_dir(found: FoundLogDir, name: str) -> LogDirFacts:
    """Read the files of a log directory, but none of its partition folders."""
    remarks: list[Remark] = []
    if found.error:
        remarks.append(Remark("unreadable", "", 0, -1, -1, found.error))
        return LogDirFacts(found.path, name, False, "", "", "", {}, [], remarks)
    properties: dict[str, str] = {}
    data = _read(found.path, layout.META_PROPERTIES, remarks)
    if data is not None:
        path = layout.META_PROPERTIES
        try:
            properties = checkpoint.parse_properties(path, data).values
            _identity(properties, remarks)
        except CheckpointError as error:
            remarks.append(Remark("meta-properties", path, 0, -1, -1, error.problem))
    elif not remarks and not set(OFFSET_FILES).isdisjoint(found.others):
        text = "the file is missing; a broker does not start without it"
        remarks.append(Remark("meta-properties", layout.META_PROPERTIES, -1, -1, -1, text))
    offsets = {}
    for file, what in OFFSET_FILES.items():
        data = _read(found.path, file, remarks)
        parsed = None if data is None else _offsets(file, data, remarks)
        if parsed is not None:
            offsets[what] = parsed
    remarks += _strangers(found)
    return LogDirFacts(
        found.path,
        name,
        is_stopped(found.path),
        properties.get("node.id", properties.get("broker.id", "")),
        properties.get("cluster.id", ""),
        properties.get("directory.id", ""),
        offsets,
        [os.path.basename(each.path) for each in found.folders] if found.whole else None,
        remarks,
    )


def _identity(properties: dict[str, str], remarks: list[Remark]) -> None:
    """Report a missing node id or cluster id; version 1 of the file requires both."""
    missing = [name for name in ("node.id", "cluster.id") if not properties.get(name)]
    if properties["version"] == "1" and missing:
        text = f"{' and '.join(missing)} missing"
        remarks.append(Remark("meta-properties", layout.META_PROPERTIES, 0, -1, -1, text))


def is_stopped(path: str) -> bool:
    """Return whether the mark of a clean shutdown exists; a broker removes it at startup."""
    return os.path.exists(os.path.join(path, layout.CLEAN_SHUTDOWN))


def _read(folder: str, file: str, remarks: list[Remark]) -> bytes | None:
    try:
        return read_whole(os.path.join(folder, file))
    except Vanished:
        return None
    except CannotRead as error:
        remarks.append(Remark("unreadable", file, 0, -1, -1, error.why))
        return None


def _offsets(file: str, data: bytes, remarks: list[Remark]) -> dict[str, int] | None:
    try:
        rows = checkpoint.parse_rows(file, data, 3)
        parsed = checkpoint.parse_offsets(file, data)
    except CheckpointError as error:
        remarks.append(Remark("checkpoint-format", file, 0, -1, -1, error.problem))
        return None
    seen: set[TopicPartition] = set()
    for line, (topic, number, offset) in enumerate(rows, start=3):
        partition = TopicPartition(topic, int(number))
        problem = f"line {line}: duplicate entry for {partition}" if partition in seen else ""
        if int(offset) < 0 or int(number) < 0:
            problem = f"line {line}: {' '.join((topic, number, offset))!r} has a negative number"
        if problem:
            remarks.append(Remark("checkpoint-format", file, 0, -1, -1, problem))
        seen.add(partition)
    return {str(partition): offset for partition, offset in parsed.items() if offset >= 0}


def _strangers(found: FoundLogDir) -> list[Remark]:
    remarks = []
    for name in found.others:
        if name in KNOWN_NAMES or name.endswith(".tmp"):
            continue
        mark = layout.parse_mark(name)
        if mark is not None:
            text = f"a folder with suffix {mark!r}: a broker was about to remove or move it"
            remarks.append(Remark("leftover", name, 0, -1, -1, text))
        else:
            remarks.append(
                Remark("foreign-file", name, 0, -1, -1, "unknown file in a log directory")
            )
    return remarks
