"""Faults on request, for `tidelog verify` and tests: an isolated broker, a full disk.

A broker has them only if it was started with `tidelog.fault.switches=true`. They are set over its
internal listener. Other faults (kill -9, SIGSTOP) need no support in the broker.
"""

from collections.abc import Callable, Sequence
from typing import Any

from tidelog.core.record.crc32c import Buffer
from tidelog.core.storage.disk import DiskFull
from tidelog.shell.os_disk import OsDisk


class FaultyDisk(OsDisk):
    """A disk that fails writes while `full` is set."""

    full = False

    def append(self, path: str, buffers: Sequence[Buffer]) -> int:
        self._check(path)
        return super().append(path, buffers)

    def write(self, path: str, data: Buffer) -> None:
        self._check(path)
        super().write(path, data)

    def _check(self, path: str) -> None:
        if self.full:
            raise DiskFull("No space left on device (fault switch)", path)


class FaultSwitches:
    """The faults of one broker, and which of them are on."""

    def __init__(self, disk: FaultyDisk, isolate: Callable[[bool], None]) -> None:
        self._disk = disk
        self._isolate = isolate
        self._isolated = False

    def set(self, wanted: dict[str, Any]) -> dict[str, Any]:
        """Set `isolate` (drop all messages between brokers) and `disk_full`; return both states."""
        if "disk_full" in wanted:
            self._disk.full = bool(wanted["disk_full"])
        if "isolate" in wanted and bool(wanted["isolate"]) != self._isolated:
            self._isolated = bool(wanted["isolate"])
            self._isolate(self._isolated)
        return {"disk_full": self._disk.full, "isolate": self._isolated}
