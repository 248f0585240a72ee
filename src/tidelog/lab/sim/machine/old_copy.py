"""A fault that replaces a partition's folder with an old copy while all brokers are down.

The fault copies the folder, and the partition's checkpoint entries, after a clean stop of the
broker. Later all brokers stop cleanly. This broker stops last, so the cluster assumes that it
has every committed record. The fault then restores the copy, and this broker starts first.

The fault also removes the checksums of the checkpoints; a folder that Kafka wrote has none
either. So nothing on this disk shows that records are missing. Only the followers can detect
it (core/replication/follower.py).
"""

from collections.abc import Callable
from typing import NamedTuple

from tidelog.core.node import events as on
from tidelog.core.storage import layout
from tidelog.core.storage.checkpoint import format_offsets, read_offsets
from tidelog.core.types import Offset, TopicPartition
from tidelog.lab.sim.machine.disk import SimDisk
from tidelog.lab.sim.machine.process import Process, Site

OLD_COPY = "old copy put back"
"""The name under which `World.count` counts this fault."""
LOOK_MS = 50
DOWN_MAX_MS = 20_000
"""An upper bound; stopping all brokers takes less time."""
_CHECKPOINTS = (layout.RECOVERY_POINTS, layout.LOG_STARTS, layout.HIGH_WATERMARKS)


class LogCopy(NamedTuple):
    """A copy of a partition's files and of its entries in the checkpoints."""

    files: dict[str, bytes]
    checkpoints: dict[str, Offset | None]

    @property
    def log_end_offset(self) -> Offset:
        """The recovery point, which is the log end because the broker stopped cleanly."""
        return self.checkpoints[layout.RECOVERY_POINTS] or 0


def copy_log(disk: SimDisk, partition: TopicPartition) -> LogCopy:
    """Copy a replica's files and checkpoint entries after a clean stop of its broker."""
    folder = layout.partition_dir(partition)
    paths = [f"{folder}/{name}" for name in disk.list_dir(folder)]
    offsets = {path: read_offsets(disk, path)[0] for path in _CHECKPOINTS}
    return LogCopy(
        {path: disk.read(path, 0, disk.size(path)) for path in paths},
        {path: found.get(partition) for path, found in offsets.items()},
    )


def put_back(disk: SimDisk, partition: TopicPartition, copy: LogCopy) -> None:
    """Replace a replica's files and checkpoint entries with those of the copy."""
    folder = layout.partition_dir(partition)
    for name in disk.list_dir(folder):
        disk.remove_by_hand(f"{folder}/{name}")
    for path, data in copy.files.items():
        disk.write_by_hand(path, data)
    for path, offset in copy.checkpoints.items():
        offsets, _ = read_offsets(disk, path)
        offsets.pop(partition, None)
        if offset is not None:
            offsets[partition] = offset
        disk.write_by_hand(path, format_offsets(offsets))
    if disk.exists(layout.CHECKPOINT_CHECKSUMS):
        disk.remove_by_hand(layout.CHECKPOINT_CHECKSUMS)


class OldCopy:
    """One run of the fault: makes the copy and restores it later."""

    def __init__(self, site: Site, process: Process, partition: TopicPartition) -> None:
        self._site = site
        self._world = site.world
        self._process = process
        self._partition = partition

    def make(self, later_ms: int, apart_ms: int) -> None:
        """Copy the folder, restore it after `later_ms`, then start brokers `apart_ms` apart."""

        def stopped() -> None:
            self._return(self._process, 0)
            if self._process.disk.exists(layout.partition_dir(self._partition)):
                copy = copy_log(self._process.disk, self._partition)
                self._world.after(later_ms, self._stop_all, copy, apart_ms)

        self._stop_in_turn([self._process], stopped)

    def _stop_all(self, copy: LogCopy, apart_ms: int) -> None:
        process, partition = self._process, self._partition
        others = [other for other in self._site.brokers.values() if other is not process]

        def stopped() -> None:
            if self._site.observer.may_put_back(process, partition, copy.log_end_offset):
                self._world.count(OLD_COPY)
                put_back(process.disk, partition, copy)
                self._site.observer.outdated(process, partition)
            for number, each in enumerate([process, *others]):
                self._return(each, number * apart_ms)

        self._stop_in_turn([*others, process], stopped)

    def _stop_in_turn(
        self, running: list[Process], then: Callable[[], None], requested: bool = False
    ) -> None:
        """Stop brokers cleanly, one by one, then call `then`. None restarts before that."""
        if not running:
            then()
            return
        first = running[0]
        if first.node is None:
            self._stop_in_turn(running[1:], then)
            return
        if not requested:
            self._world.count("process shut down")
            first.down_until_ms = self._world.now_ms + DOWN_MAX_MS
            first.receive(on.ShutdownRequested)
        self._world.after(LOOK_MS, self._stop_in_turn, running, then, True)

    def _return(self, process: Process, after_ms: int) -> None:
        process.down_until_ms = 0
        self._world.after(after_ms, process.start)
