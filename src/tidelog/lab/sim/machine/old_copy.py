"""An old copy replaces a partition's folder while all brokers are down.

The folder is copied after a clean stop of its broker, with what the checkpoints say of the
partition. Later all brokers stop cleanly, that one last, so that it counts as having every
committed record; then the copy is put back, and it is the first to return. There are no
checksums of the checkpoints, as in a folder that Kafka wrote: nothing on this disk tells what
is missing. Its followers know (core/replication/follower.py).
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
"""What `World.count` counts."""
LOOK_MS = 50
DOWN_MAX_MS = 20_000
"""Longer than it takes to stop all brokers."""
_CHECKPOINTS = (layout.RECOVERY_POINTS, layout.LOG_STARTS, layout.HIGH_WATERMARKS)


class LogCopy(NamedTuple):
    """A partition's files, and what the checkpoints say of it."""

    files: dict[str, bytes]
    checkpoints: dict[str, Offset | None]

    @property
    def log_end_offset(self) -> Offset:
        """After a clean stop all records are on disk."""
        return self.checkpoints[layout.RECOVERY_POINTS] or 0


def copy_log(disk: SimDisk, partition: TopicPartition) -> LogCopy:
    """Copy a replica's files after a clean stop of its broker."""
    folder = layout.partition_dir(partition)
    paths = [f"{folder}/{name}" for name in disk.list_dir(folder)]
    offsets = {path: read_offsets(disk, path)[0] for path in _CHECKPOINTS}
    return LogCopy(
        {path: disk.read(path, 0, disk.size(path)) for path in paths},
        {path: found.get(partition) for path, found in offsets.items()},
    )


def put_back(disk: SimDisk, partition: TopicPartition, copy: LogCopy) -> None:
    """Replace a replica's files by the copy."""
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
    """One copy, from its making to when it is put back."""

    def __init__(self, site: Site, process: Process, partition: TopicPartition) -> None:
        self._site = site
        self._world = site.world
        self._process = process
        self._partition = partition

    def make(self, later_ms: int, apart_ms: int) -> None:
        """Copy the folder, put it back after `later_ms`, and start brokers `apart_ms` apart."""

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
        self, running: list[Process], then: Callable[[], None], asked: bool = False
    ) -> None:
        """Stop them cleanly, one after the other; none returns before the last has stopped."""
        if not running:
            then()
            return
        first = running[0]
        if first.node is None:
            self._stop_in_turn(running[1:], then)
            return
        if not asked:
            self._world.count("process shut down")
            first.down_until_ms = self._world.now_ms + DOWN_MAX_MS
            first.receive(on.ShutdownRequested)
        self._world.after(LOOK_MS, self._stop_in_turn, running, then, True)

    def _return(self, process: Process, after_ms: int) -> None:
        process.down_until_ms = 0
        self._world.after(after_ms, process.start)
