"""Find log directories and partitions below the paths that a user gives.

A path may be a partition's folder, a broker's log directory, a folder that contains several of
those, or a single file of a partition. `broker-1` could be partition 1 of a topic `broker`; the
files in it decide.

Invariant: each folder is found once, however many paths and links lead to it.
"""

import os
from collections.abc import Iterable
from typing import NamedTuple

from tidelog.core.storage import layout
from tidelog.core.types import TopicPartition

DEPTH_MAX = 5
_LOG_DIR_FILES = frozenset(
    {
        layout.META_PROPERTIES,
        layout.CLEAN_SHUTDOWN,
        layout.RECOVERY_POINTS,
        layout.HIGH_WATERMARKS,
        layout.LOG_STARTS,
        layout.CLEANER_OFFSETS,
    }
)


class NothingThere(Exception):
    """A path contains no log; the text is one line for users."""


class FoundFolder(NamedTuple):
    """The folder of a partition."""

    path: str
    partition: TopicPartition
    only: str = ""
    """The one file to read, if the user gave a file; empty for the whole folder."""


class FoundLogDir(NamedTuple):
    """A log directory and its entries."""

    path: str
    folders: list[FoundFolder]
    others: list[str]
    """Names of entries that are not partition folders."""
    error: str = ""
    whole: bool = True
    """Whether all its folders are included."""


def find_log_dirs(paths: Iterable[str]) -> list[FoundLogDir]:
    """Return all log directories below the paths, sorted by path. Raises NothingThere."""
    found: dict[str, FoundLogDir] = {}
    for path in paths:
        before = len(found)
        _look(path, found, DEPTH_MAX)
        if len(found) == before and not any(_within(path, each) for each in found):
            raise NothingThere(
                f"no log found in {path!r}; give the data folder of a broker, a folder that"
                " contains several of them, or the folder of a partition"
            )
    return [found[path] for path in sorted(found)]


def _within(path: str, log_dir: str) -> bool:
    real = os.path.realpath(path)
    return log_dir == real or log_dir.startswith(real + os.sep) or real.startswith(log_dir + os.sep)


def _look(path: str, found: dict[str, FoundLogDir], depth: int) -> None:
    path = os.path.realpath(path)
    if not os.path.exists(path):
        raise NothingThere(f"file or folder {path!r} does not exist")
    if not os.path.isdir(path):
        folder, name = os.path.split(path)
        partition = layout.parse_dir(os.path.basename(folder))
        parsed = layout.parse_file(name)
        if partition is not None and parsed is not None:
            name = layout.file_name(parsed.base_offset, layout.LOG)  # its indexes are read with it
            _add(found, FoundFolder(folder, partition, name))
        return
    try:
        names = sorted(os.listdir(path))
    except OSError as error:
        found[path] = FoundLogDir(path, [], [], (error.strerror or str(error)).lower())
        return
    partition = layout.parse_dir(os.path.basename(path))
    if partition is not None and _is_partition(names):
        _add(found, FoundFolder(path, partition))
        return
    is_log_dir = not _LOG_DIR_FILES.isdisjoint(names)
    folders, others = _partitions(path, names, is_log_dir)
    if folders or is_log_dir:
        found[path] = FoundLogDir(path, folders, others)
    elif depth:
        for name in names:
            below = os.path.join(path, name)
            if os.path.isdir(below) and not name.startswith("."):
                _look(below, found, depth - 1)


def _add(found: dict[str, FoundLogDir], folder: FoundFolder) -> None:
    parent = os.path.dirname(folder.path)
    known = found.setdefault(parent, FoundLogDir(parent, [], [], whole=False))
    if folder not in known.folders:
        known.folders.append(folder)


def _partitions(
    path: str, names: list[str], is_log_dir: bool
) -> tuple[list[FoundFolder], list[str]]:
    folders, others, closed = [], [], []
    for name in names:
        below = os.path.join(path, name)
        partition = layout.parse_dir(name)
        if partition is None or not os.path.isdir(below):
            others.append(name)
            continue
        try:
            inside = os.listdir(below)
        except OSError:
            closed.append(FoundFolder(below, partition))
            continue
        if _is_partition(inside) or (is_log_dir and not inside):
            folders.append(FoundFolder(below, partition))
        else:
            others.append(name)
    if folders or is_log_dir:
        folders += closed  # the task that reads them reports the error
    return folders, others


def _is_partition(names: list[str]) -> bool:
    known = (layout.PARTITION_METADATA, layout.LEADER_EPOCHS)
    return any(name in known or layout.parse_file(name) is not None for name in names)


def replica_names(paths: list[str]) -> dict[str, str]:
    """Return a short unique name for each log directory, by path."""
    if len(paths) == 1:
        return {paths[0]: os.path.basename(paths[0]) or paths[0]}
    above = os.path.commonpath(paths) if paths else ""
    return {path: os.path.relpath(path, above) for path in paths}
