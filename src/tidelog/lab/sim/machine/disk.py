"""A simulated disk that loses unsynced data, corrupts it, fills up, fails and stalls.

A process that is killed loses no data: the operating system holds what the process wrote. Only a
power failure (`lose_power`) loses unsynced data, in the ways of real file systems:

- Of each file's unsynced end, nothing, a part or all survives, perhaps with a flipped bit or zeros.
- An unsynced truncation (`truncate`) may be undone.
- Of the names created, renamed or deleted in a directory since its last `sync_dir`, only the first
  few changes survive.

Invariant: bytes that were synced and not truncated since, under a synced name, survive unchanged.
The storage code may rely on nothing else.

A sync in progress proves nothing about bytes written after it began (`begin_sync`, `finish_sync`).

Only damage faults violate the invariant. They change bytes, shorten or remove files, make bytes
unreadable (`rot`, `shorten`, `remove_by_hand`, `spoil`), or let syncs report success and do nothing
(`lies_until_ms`). The fault notifies the oracle of each (machine/damage.py).
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from tidelog.core.record.crc32c import Buffer
from tidelog.core.storage.disk import DiskError, DiskFull, MissingFile, parent, sync_each
from tidelog.lab.sim.world import World

STALL_MAX_MS = 300
SECOND = "second"
"""The folder of a broker's second log directory (machine/directory.py)."""
FAILS_READS_AT_STARTUP = False
"""Whether unreadable bytes stay unreadable after a restart, so that recovery reads them.

If False, they read as zeros after a restart, as from a drive that replaced the sector.
"""


class ProcessDied(Exception):
    """The process was killed in the middle of a write."""


@dataclass(slots=True, eq=False)
class Inode:
    """The bytes of a file, and the length of the prefix that is on stable storage."""

    data: bytearray = field(default_factory=bytearray)
    synced: int = 0
    durable: bytes | None = None
    """The bytes on stable storage if they differ from `data[:synced]`: a truncation or rewrite
    is not synced yet."""
    cuts: int = 0
    unreadable: tuple[int, int] | None = None
    """The range of bytes that can't be read, until the file is rewritten or truncated before it."""

    def keep_old(self) -> None:
        """Save the synced bytes before a change: a power failure restores them."""
        if self.durable is None:
            self.durable = bytes(self.data[: self.synced])
        self.cuts += 1

    def sync(self) -> None:
        self.synced = len(self.data)
        self.durable = None


Tree: TypeAlias = dict[str, Inode | None]
"""Files by path; a directory has the value None."""


class Undo(NamedTuple):
    """How to undo one change of names: which paths to remove, and which to restore."""

    remove: tuple[str, ...]
    restore: Tree


class Sync(NamedTuple):
    """A sync in progress: the file, and its size and number of cuts when the sync began."""

    inode: Inode
    size: int
    cuts: int


@dataclass(slots=True)
class PowerLossWeights:
    """The weights of what a power failure does to the unsynced end of a file."""

    forget: float = 1.0
    tear: float = 1.0
    flip: float = 0.5
    zero: float = 0.5
    keep: float = 1.0


class SimDisk:
    """One broker's log directory."""

    def __init__(self, world: World, name: str, power_loss: PowerLossWeights) -> None:
        self._world = world
        self._random = world.random(f"disk/{name}")
        self._power_loss = power_loss
        self._names: Tree = {"": None}
        self._journals: dict[str, list[Undo]] = {}
        self.full_until_ms = 0
        self.broken_until_ms = 0
        self.slow_until_ms = 0
        self.lies_until_ms = 0
        """Before this time a sync reports success and does nothing."""
        self.dies_in: int | None = None
        """How many more disk operations succeed before the process is killed, perhaps in the
        middle of a write."""
        self.died_of_power = False
        """Whether the process died because the power failed."""
        self.stall_ms = 0
        """The total delay of slow syncs since this was last set to 0."""
        self.cuts = 0
        """Increases whenever log files may have lost or changed bytes, or were removed."""

    def mount(self, path: str) -> None:
        """Create a directory that a power failure does not remove."""
        self._names[path] = None

    # -- operations of the storage code ---------------------------------------------------

    def append(self, path: str, buffers: Sequence[Buffer]) -> int:
        inode = self._created(path)
        position = len(inode.data)
        if self._write_fails():
            self._write_part(path, inode, b"".join(buffers))
        for buffer in buffers:
            inode.data += buffer
        return position

    def read(self, path: str, position: int, length: int) -> bytes:
        inode = self._inode(path)
        if inode.unreadable is not None:
            first, end = inode.unreadable
            if position < end and first < min(position + length, len(inode.data)):
                self._world.count("read failed")
                raise DiskError("input/output error", path)
        return bytes(memoryview(inode.data)[position : position + length])

    def write(self, path: str, data: Buffer) -> None:
        inode = self._created(path)
        inode.keep_old()
        inode.data = bytearray()
        inode.synced = 0
        inode.unreadable = None
        if self._write_fails():
            self._write_part(path, inode, bytes(data))
        inode.data += data

    def size(self, path: str) -> int:
        return len(self._inode(path).data)

    def exists(self, path: str) -> bool:
        return path in self._names

    def is_dir(self, path: str) -> bool:
        return self._names.get(path) is None and (path in self._names or bool(self.list_dir(path)))

    def list_dir(self, path: str) -> list[str]:
        prefix = path + "/" if path else ""
        cut = len(prefix)
        inside = {name[cut:].partition("/")[0] for name in self._names if name.startswith(prefix)}
        return sorted(inside - {""})

    def scan_dir(self, path: str) -> tuple[list[str], list[str]]:
        names, inside = self.list_dir(path), path + "/" if path else ""
        files = [name for name in names if self._names.get(inside + name) is not None]
        return files, [name for name in names if self._names.get(inside + name) is None]

    def make_dir(self, path: str) -> None:
        if path not in self._names:
            self._names[path] = None
            self._journal(path, Undo((path,), {}))

    def truncate(self, path: str, size: int) -> None:
        inode = self._inode(path)
        if size >= len(inode.data):
            return
        self._may_die()
        if size < inode.synced:
            inode.keep_old()
            inode.synced = size
        inode.cuts += 1
        self._note_cut(path)
        # A new buffer: a reader may still hold a view of the old one.
        inode.data = inode.data[:size]
        if inode.unreadable is not None and size <= inode.unreadable[0]:
            inode.unreadable = None

    def preallocate(self, path: str, size: int) -> None:
        """Do nothing: the simulation does not model blocks."""

    def rename(self, old: str, new: str) -> None:
        if old not in self._names:
            raise MissingFile("rename of a missing file", old)
        self._may_die()
        if self._names[old] is None and self.list_dir(new):
            raise DiskError("rename over a directory that is not empty", new)
        moved = self._subtree(old)
        replaced = self._subtree(new)
        self._note_cut(old)
        for name in (*moved, *replaced):
            del self._names[name]
        there = {new + name[len(old) :]: inode for name, inode in moved.items()}
        self._names.update(there)
        self._journal(old, Undo((new,), moved | replaced))

    def delete(self, path: str) -> None:
        if isinstance(self._names.get(path), Inode):
            self._may_die()
            self._note_cut(path)
            self._journal(path, Undo((), {path: self._names.pop(path)}))

    def delete_dir(self, path: str) -> None:
        if path in self._names:
            self._may_die()
            self._note_cut(path)
            removed = self._subtree(path)
            for name in removed:
                del self._names[name]
            self._journal(path, Undo((), removed))

    def sync(self, path: str) -> None:
        inode = self._inode(path)
        self._may_die()
        self._check_broken(path)
        self._stall_if_slow()
        if not self._lies():
            inode.sync()

    def sync_dir(self, path: str) -> None:
        if path not in self._names:
            raise MissingFile("sync of a missing directory", path)
        self._may_die()
        self._check_broken(path)
        self._stall_if_slow()
        if not self._lies():
            self._journals.pop(path, None)

    def sync_many(self, files: Sequence[str], directories: Sequence[str]) -> None:
        sync_each(self, files, directories)

    # -- asynchronous syncs --------------------------------------------------------------

    def begin_sync(self, path: str) -> Sync | None:
        """Start a sync that `finish_sync` completes; return None if the file is missing."""
        inode = self._names.get(path)
        return None if inode is None else Sync(inode, len(inode.data), inode.cuts)

    def finish_sync(self, sync: Sync) -> None:
        """Mark the bytes that the sync covers as synced, unless the file was cut since."""
        inode = sync.inode
        if inode.cuts == sync.cuts and not self._lies():
            inode.synced = max(inode.synced, sync.size)
            inode.durable = None

    def finish_sync_dir(self, path: str) -> None:
        """Mark the names in a directory as synced."""
        if not self._lies():
            self._journals.pop(path, None)

    def slow(self) -> bool:
        """Draw whether the next sync is slow."""
        slow = self._world.now_ms < self.slow_until_ms and self._random.random() < 0.5
        if slow:
            self._world.count("slow sync")
        return slow

    def broken(self) -> bool:
        return self._world.now_ms < self.broken_until_ms

    # -- faults ----------------------------------------------------------------------------

    def lose_power(self) -> None:
        """Lose or damage unsynced names and bytes, or some of them."""
        for directory in sorted(self._journals):
            journal = self._journals[directory]
            kept = self._random.randint(0, len(journal))
            if kept < len(journal):
                self._world.count("names forgotten")
            for undo in reversed(journal[kept:]):
                for path in undo.remove:
                    for name in self._subtree(path):
                        del self._names[name]
                self._names.update(undo.restore)
        self._journals.clear()
        for path in sorted(self._names):
            inode = self._names[path]
            if inode is not None:
                if parent(path) in self._names:
                    self._lose_bytes(inode)
                else:
                    del self._names[path]
        self.cuts += 1

    def contents(self, path: str) -> bytes:
        """Return a file's bytes, including unreadable ones."""
        return bytes(self._inode(path).data)

    def remove_by_hand(self, path: str) -> None:
        """Remove a file or directory; a power failure does not restore it."""
        for name in self._subtree(path):
            del self._names[name]
        for directory in ("", parent(path), path):
            self._journals.pop(directory, None)
        self.cuts += 1

    def write_by_hand(self, path: str, data: Buffer) -> None:
        """Replace a file's bytes; the new bytes survive a power failure."""
        inode = self._names[path] = Inode(bytearray(data))
        inode.sync()
        self._journals.pop(parent(path), None)
        self.cuts += 1

    def rot(self, path: str, at: int, data: Buffer) -> None:
        """Overwrite bytes of a file in place, in memory and on stable storage."""
        inode = self._inode(path)
        # A new buffer: a reader may still hold a view of the old one.
        inode.data = inode.data[:at] + data + inode.data[at + len(data) :]
        if inode.durable is not None:
            inode.durable = inode.durable[:at] + bytes(data) + inode.durable[at + len(data) :]
        self.cuts += 1

    def shorten(self, path: str, size: int) -> None:
        """Remove the end of a file; a power failure does not restore it."""
        inode = self._inode(path)
        inode.data = inode.data[:size]
        inode.synced = min(size, inode.synced)
        if inode.durable is not None:
            inode.durable = inode.durable[:size]
        inode.cuts += 1
        self.cuts += 1

    def spoil(self, path: str, first: int, end: int) -> None:
        """Let all later reads of these bytes fail."""
        inode = self._inode(path)
        inode.unreadable = first, min(end, len(inode.data))
        self.cuts += 1

    def restarted(self) -> None:
        """Replace unreadable bytes with zeros before a process starts
        (see `FAILS_READS_AT_STARTUP`)."""
        for inode in self._names.values():
            if inode is not None and inode.unreadable and not FAILS_READS_AT_STARTUP:
                first, end = inode.unreadable
                inode.unreadable = None
                inode.data[first:end] = bytes(len(inode.data[first:end]))

    @property
    def lying(self) -> bool:
        return self._world.now_ms < self.lies_until_ms

    def stop_lying(self) -> None:
        """Sync everything that was falsely reported as synced."""
        if not self.lying:
            return
        self.lies_until_ms = 0
        self._journals.clear()
        for inode in self._names.values():
            if inode is not None:
                inode.sync()

    def _lies(self) -> bool:
        if self.lying:
            self._world.count("sync lied")
        return self.lying

    def _lose_bytes(self, inode: Inode) -> None:
        stable = inode.data[: inode.synced] if inode.durable is None else inode.durable
        if inode.durable is None and len(inode.data) == inode.synced:
            return
        power_loss = self._power_loss
        weights = (
            power_loss.forget,
            power_loss.tear,
            power_loss.flip,
            power_loss.zero,
            power_loss.keep,
        )
        fates = ("forget", "tear", "flip", "zero", "keep")
        fate = self._random.choices(fates, weights)[0]
        unsynced = len(inode.data) - inode.synced
        if fate == "keep":
            inode.sync()
            return
        if fate == "forget" or unsynced == 0:
            self._world.count("unsynced bytes forgotten")
            inode.data = bytearray(stable)
        else:
            kept = inode.synced + self._random.randint(1, unsynced)
            inode.data = inode.data[:kept]
            self._spoil(inode, fate)
        inode.cuts += 1
        inode.sync()

    def _spoil(self, inode: Inode, fate: str) -> None:
        """Damage unsynced bytes at a random place; the file has at least one."""
        at = self._random.randrange(inode.synced, len(inode.data))
        if fate == "flip":
            self._world.count("bit flipped")
            inode.data[at] ^= 1 << self._random.randrange(8)
        elif fate == "zero":
            self._world.count("bytes zeroed")
            inode.data[at:] = bytes(len(inode.data) - at)
        else:
            self._world.count("torn at power failure")

    def heal(self) -> None:
        self.full_until_ms = self.broken_until_ms = self.slow_until_ms = self.lies_until_ms = 0
        self.dies_in = None

    # -- internals -------------------------------------------------------------------------

    def _write_fails(self) -> bool:
        """Return whether this write fails or kills the process."""
        now = self._world.now_ms
        if self.dies_in is not None:
            self.dies_in -= 1
            if self.dies_in < 0:
                return True
        return now < self.full_until_ms or now < self.broken_until_ms

    def _write_part(self, path: str, inode: Inode, data: bytes) -> None:
        inode.data += data[: self._random.randint(0, len(data))]
        if self.dies_in is not None and self.dies_in < 0:
            self._world.count("torn write")
            self._die()
        if self._world.now_ms < self.full_until_ms:
            self._world.count("disk full")
            raise DiskFull("no space left", path)
        self._world.count("disk error")
        raise DiskError("input/output error", path)

    def _may_die(self) -> None:
        if self.dies_in is not None:
            self.dies_in -= 1
            if self.dies_in < 0:
                self._world.count("killed between writes")
                self._die()

    def die_now(self, *, power: bool) -> None:
        """Kill the process, or let the power fail, in the middle of its step."""
        self.died_of_power = power
        self._world.count("killed between writes")
        self._die()

    def _die(self) -> None:
        self.dies_in = None
        raise ProcessDied

    def _check_broken(self, path: str) -> None:
        if self.broken():
            self._world.count("disk error")
            raise DiskError("input/output error", path)

    def _stall_if_slow(self) -> None:
        if self.slow():
            self.stall_ms += self._random.randint(1, STALL_MAX_MS)

    def _note_cut(self, path: str) -> None:
        if path.endswith(".log") or self._names.get(path) is None:
            self.cuts += 1

    def _journal(self, path: str, undo: Undo) -> None:
        self._journals.setdefault(parent(path), []).append(undo)

    def _subtree(self, path: str) -> Tree:
        inside = path + "/"
        return {
            name: inode
            for name, inode in self._names.items()
            if name == path or name.startswith(inside)
        }

    def _inode(self, path: str) -> Inode:
        inode = self._names.get(path)
        folder = path.partition("/")[0]
        if inode is None and folder not in self._names:
            # The oracle reads logs of both log directories.
            inode = self._names.get(f"{SECOND}/{path}")
        if inode is None:
            raise MissingFile("no such file", path)
        return inode

    def _created(self, path: str) -> Inode:
        inode = self._names.get(path)
        if inode is None:
            if parent(path) not in self._names:
                raise MissingFile("no such directory", path)
            inode = self._names[path] = Inode()
            self._journal(path, Undo((path,), {}))
        return inode

    def fingerprint(self) -> list[tuple[str, bytes]]:
        """Return every file with its bytes, to compare two runs."""
        return [(path, bytes(i.data)) for path, i in sorted(self._names.items()) if i is not None]
