"""Brokers on a machine whose power can fail.

Each broker runs with a disk that records what was synced. After the process has ended,
`cut_power` removes everything else: bytes after the synced size, and files that were never
synced. This is the worst case: a real machine loses at most that much.

Runs inside the broker's process as `power_loss:run_brokers`, and inside the test.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress

from tidelog.core.record.crc32c import Buffer
from tidelog.core.settings.broker_settings import BrokerSettings
from tidelog.shell.broker import process
from tidelog.shell.os_disk import SYNCFS_FROM, OsDisk

ENTRY = "power_loss:run_brokers"
GONE = -1


class NotingDisk(OsDisk):
    """A disk that records the synced size of each file, in a file next to the log directory.

    It identifies files by inode, so a rename keeps the recorded size.
    """

    def __init__(self, root: str, max_open_files: int = 1024) -> None:
        super().__init__(root, max_open_files)
        self._notes = os.open(notes_of(root), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def sync(self, path: str) -> None:
        before = os.stat(self._absolute(path))
        super().sync(path)
        self._note(before.st_ino, before.st_size)

    def sync_many(self, files: Sequence[str], directories: Sequence[str]) -> None:
        if len(files) + len(directories) < SYNCFS_FROM:
            super().sync_many(files, directories)  # calls `sync` for each file
            return
        before = [(found.st_ino, found.st_size) for _, found in files_under(self.root)]
        super().sync_many(files, directories)
        for inode, size in before:
            self._note(inode, size)

    def truncate(self, path: str, size: int) -> None:
        super().truncate(path, size)
        self._note(os.stat(self._absolute(path)).st_ino, size, at_most=True)

    def write(self, path: str, data: Buffer) -> None:
        self._forget_inode(path)
        super().write(path, data)

    def rename(self, old: str, new: str) -> None:
        if not os.path.isdir(self._absolute(old)):
            self._forget_inode(new)
        super().rename(old, new)

    def delete(self, path: str) -> None:
        self._forget_inode(path)
        super().delete(path)

    def delete_dir(self, path: str) -> None:
        for _, found in files_under(self._absolute(path)):
            self._note(found.st_ino, GONE)
        super().delete_dir(path)

    def _forget_inode(self, path: str) -> None:
        with suppress(FileNotFoundError):
            self._note(os.stat(self._absolute(path)).st_ino, GONE)

    def _note(self, inode: int, size: int, *, at_most: bool = False) -> None:
        os.write(self._notes, b"%d %d %d\n" % (inode, size, at_most))


def run_brokers(settings: list[BrokerSettings], report: Callable[[dict[str, object]], None]) -> int:
    """Run the brokers as `process.run_brokers` does, but on a `NotingDisk`."""
    process.OsDisk = NotingDisk  # type: ignore[attr-defined]
    return process.run_brokers(settings, report)


def cut_power(log_dir: str) -> int:
    """Remove everything that was not synced; return the number of segment bytes removed."""
    safe: dict[int, int] = {}
    with open(notes_of(log_dir)) as notes:
        for line in notes:
            inode, size, at_most = map(int, line.split())
            if at_most:
                safe[inode] = min(safe.get(inode, 0), size)
            else:
                safe[inode] = size if size == GONE else max(safe.get(inode, 0), size)
    lost = 0
    for path, found in list(files_under(log_dir)):
        kept = safe.get(found.st_ino, GONE)
        if path.endswith(".log"):
            lost += max(found.st_size - max(kept, 0), 0)
        if kept == GONE:
            os.unlink(path)
        elif kept < found.st_size:
            os.truncate(path, kept)
    return lost


def files_under(root: str) -> Iterator[tuple[str, os.stat_result]]:
    for folder, _, names in os.walk(root):
        for name in names:
            path = os.path.join(folder, name)
            with suppress(FileNotFoundError):
                if name != ".lock":
                    yield path, os.stat(path)


def notes_of(log_dir: str) -> str:
    return f"{log_dir}.synced"
