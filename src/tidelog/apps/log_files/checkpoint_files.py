"""Read checkpoints of a log directory, and leader epochs of a partition.

Files are recognised by their names, which are Kafka's. Invariant: an invalid file results in a
problem with its place, and its content is ignored.
"""

import json
import os
from typing import NamedTuple

from tidelog.apps.log_files.read_only_file import read_whole
from tidelog.core.storage import checkpoint, layout
from tidelog.core.storage.checkpoint import CheckpointError
from tidelog.core.types import EpochEntry, Offset, TopicPartition

OFFSET_FILES = {
    layout.LOG_STARTS: "log_start",
    layout.RECOVERY_POINTS: "recovery_point",
    layout.HIGH_WATERMARKS: "high_watermark",
    layout.CLEANER_OFFSETS: "cleaner",
}
"""Checkpoint files, and the names of their offsets."""
DIRECTORY_FILES = (layout.META_PROPERTIES, layout.CLEAN_SHUTDOWN, *OFFSET_FILES)


class Checkpoints(NamedTuple):
    """The contents of the checkpoints of one log directory."""

    files: list[str]
    """The files that exist."""
    properties: dict[str, str]
    clean_shutdown: dict[str, int] | None
    """The clean-shutdown file; None if it does not exist."""
    offsets: dict[str, dict[TopicPartition, Offset]]
    """By name: `log_start`, `recovery_point`, `high_watermark`, `cleaner`."""
    problems: list[str]

    def partitions(self) -> list[TopicPartition]:
        """Return the partitions that any file names."""
        return sorted({partition for found in self.offsets.values() for partition in found})


def read_checkpoints(path: str) -> Checkpoints:
    """Read the checkpoints of a log directory, or one file. Raises CannotRead."""
    found = Checkpoints([], {}, None, {}, [])
    if not os.path.isdir(path):
        return _add_file(found, path)
    for name in DIRECTORY_FILES:
        if os.path.exists(os.path.join(path, name)):
            found = _add_file(found, os.path.join(path, name))
    return found


def _add_file(found: Checkpoints, path: str) -> Checkpoints:
    name = os.path.basename(path)
    found.files.append(name)
    data = read_whole(path)
    try:
        if name == layout.META_PROPERTIES:
            found.properties.update(checkpoint.parse_properties(path, data).values)
        elif name == layout.CLEAN_SHUTDOWN:
            return found._replace(clean_shutdown=_clean_shutdown(path, data))
        else:
            found.offsets[OFFSET_FILES[name]] = checkpoint.parse_offsets(path, data)
    except CheckpointError as error:
        found.problems.append(str(error))
    return found


def _clean_shutdown(path: str, data: bytes) -> dict[str, int]:
    """Parse the clean-shutdown file, which older releases left empty."""
    try:
        mark = json.loads(data or b"{}")
    except ValueError:
        raise CheckpointError(path, "invalid JSON") from None
    if not isinstance(mark, dict):
        raise CheckpointError(path, "not a JSON object")
    return mark


class Epochs(NamedTuple):
    """The contents of a leader-epoch checkpoint."""

    path: str
    entries: list[EpochEntry]
    problems: list[str]

    def ends(self) -> list[Offset | None]:
        """Return where each epoch ends: at the start of the next. None for the last."""
        return [*(entry.start_offset for entry in self.entries[1:]), None][: len(self.entries)]


def read_epochs(path: str) -> Epochs:
    """Read the leader epochs of a partition's folder, or the file. Raises CannotRead."""
    if os.path.isdir(path):
        path = os.path.join(path, layout.LEADER_EPOCHS)
    try:
        return Epochs(path, checkpoint.parse_epochs(path, read_whole(path)), [])
    except CheckpointError as error:
        return Epochs(path, [], [str(error)])


def is_checkpoint(name: str) -> bool:
    """Return whether `read_checkpoints` can read a file of that name."""
    return name in DIRECTORY_FILES
