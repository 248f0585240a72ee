"""The small text files: checkpoints of a log directory, epochs of a partition.

Files are recognised by their names, which are Kafka's. Always true: a file that is not in
its form gives a problem that says where, and none of its content.
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
"""Files of offsets, and what a row's offset is called."""
DIRECTORY_FILES = (layout.META_PROPERTIES, layout.CLEAN_SHUTDOWN, *OFFSET_FILES)


class Checkpoints(NamedTuple):
    """What the files of one log directory say."""

    files: list[str]
    """Those that are there."""
    properties: dict[str, str]
    clean_shutdown: dict[str, int] | None
    """The mark of a clean stop; None if there is none."""
    offsets: dict[str, dict[TopicPartition, Offset]]
    """By what they are: `log_start`, `recovery_point`, `high_watermark`, `cleaner`."""
    problems: list[str]

    def partitions(self) -> list[TopicPartition]:
        """All that are named in any file."""
        return sorted({partition for found in self.offsets.values() for partition in found})


def read_checkpoints(path: str) -> Checkpoints:
    """Of a log directory, or of one of its files. Raises CannotRead."""
    found = Checkpoints([], {}, None, {}, [])
    if not os.path.isdir(path):
        return _take(found, path)
    for name in DIRECTORY_FILES:
        if os.path.exists(os.path.join(path, name)):
            found = _take(found, os.path.join(path, name))
    return found


def _take(found: Checkpoints, path: str) -> Checkpoints:
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
    """Older releases left the mark empty."""
    try:
        mark = json.loads(data or b"{}")
    except ValueError:
        raise CheckpointError(path, "neither empty nor JSON") from None
    if not isinstance(mark, dict):
        raise CheckpointError(path, "no JSON object")
    return mark


class Epochs(NamedTuple):
    """What a partition's epoch file says."""

    path: str
    entries: list[EpochEntry]
    problems: list[str]

    def ends(self) -> list[Offset | None]:
        """Where each epoch ends: where the next begins. None for the last."""
        return [*(entry.start_offset for entry in self.entries[1:]), None][: len(self.entries)]


def read_epochs(path: str) -> Epochs:
    """Of a partition's directory, or of the file. Raises CannotRead."""
    if os.path.isdir(path):
        path = os.path.join(path, layout.LEADER_EPOCHS)
    try:
        return Epochs(path, checkpoint.parse_epochs(path, read_whole(path)), [])
    except CheckpointError as error:
        return Epochs(path, [], [str(error)])


def is_checkpoint(name: str) -> bool:
    """Whether `read_checkpoints` knows a file of that name."""
    return name in DIRECTORY_FILES
