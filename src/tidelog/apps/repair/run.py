"""One run of `tidelog repair`: lock the folder, check it, and repair it with `--from`.

Invariant: nothing is written without a source, or with `plan`.
"""

import os
from typing import Any, NamedTuple

from tidelog.apps.repair.log_check import Checkpoints, LogCheck, check_folder, read_checkpoints
from tidelog.apps.repair.mending import Source, mend
from tidelog.apps.repair.overlay_disk import OverlayDisk
from tidelog.core.storage import layout
from tidelog.core.storage.checkpoint import CheckpointError
from tidelog.core.storage.disk import Disk, DiskError
from tidelog.core.storage.recovery import UnsupportedFormat
from tidelog.core.storage.repair import CannotRepair
from tidelog.core.storage.segment.verification import DamagedRecords
from tidelog.shell.os_disk import OsDisk
from tidelog.shell.store.log_dir_lock import LOCK_NAME, LogDirInUse, LogDirLock, is_free


class CannotCheck(Exception):
    """The folder can't be checked or is in use. The text says what to do."""


class Repaired(NamedTuple):
    """One log and what was done about it."""

    check: LogCheck
    problem: str | None = None
    """Why it could not be mended."""
    mended: bool | None = None
    """None if nothing was tried, False if it was only planned."""


class Report(NamedTuple):
    """The whole folder."""

    folder: str
    partitions: list[Repaired]
    remarks: list[str]

    @property
    def holds(self) -> bool:
        return all(each.mended or not each.check.damaged for each in self.partitions)

    def as_data(self) -> dict[str, Any]:
        partitions = [
            {**each.check.as_data(), "problem": each.problem, "mended": bool(each.mended)}
            for each in self.partitions
        ]
        return {"folder": self.folder, "partitions": partitions, "remarks": self.remarks}


def run(folder: str, source: str | None, *, plan: bool) -> Report:
    """Check a broker's folder, and replace its damaged records with those of `source`.

    Raises CannotCheck.
    """
    for each in (folder, source):
        _refuse_if_used(each)
    try:
        return _run(folder, source, plan)
    except LogDirInUse as error:
        raise CannotCheck(str(error)) from error
    except (CheckpointError, DiskError, UnsupportedFormat) as error:
        raise CannotCheck(f"can't check {folder}: {error}") from error


def _refuse_if_used(folder: str | None) -> None:
    if folder is None:
        return
    names = os.listdir(folder) if os.path.isdir(folder) else []
    if not any(layout.parse_dir(name) for name in names):
        raise CannotCheck(
            f"{folder} has no partition's folder; give a broker's folder, such as"
            " tidelog-data/broker-1"
        )
    lock = os.path.join(folder, LOCK_NAME)
    if os.path.exists(lock) and not is_free(lock):
        raise CannotCheck(f"a broker is running in {folder}; stop it first")


def _run(folder: str, source: str | None, plan: bool) -> Report:
    disk = OsDisk(folder)
    checks, remarks = check_folder(disk)
    damaged = any(check.damaged for check in checks)
    if source is None or not damaged:
        return Report(folder, [Repaired(check) for check in checks], remarks)
    overlay = OverlayDisk(OsDisk(source))
    other = Source(overlay, check_folder(overlay)[0])
    lock = None if plan else LogDirLock.acquire(folder)
    try:
        target: Disk = OverlayDisk(disk) if plan else disk
        checkpoints = read_checkpoints(disk)
        done = [_mend(target, check, checkpoints, other, plan=plan) for check in checks]
    finally:
        if lock is not None:
            lock.release()
        disk.close()
    return Report(folder, done, remarks)


def _mend(
    disk: Disk, check: LogCheck, checkpoints: Checkpoints, other: Source, *, plan: bool
) -> Repaired:
    if not check.damaged:
        return Repaired(check)
    problem = other.problem(check)
    if problem is not None:
        return Repaired(check, problem)
    try:
        mend(disk, check, checkpoints, other.log(check.partition))
    except (CannotRepair, DamagedRecords, DiskError) as error:
        return Repaired(check, str(error))
    return Repaired(check, mended=not plan)
