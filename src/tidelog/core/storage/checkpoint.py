"""The checkpoint files: small text files, byte for byte as Kafka writes them.

Offsets (recovery points, high watermarks, log starts, cleaner offsets) and leader epochs have the
same format, shown here for two partitions and for two epochs:

    0                 version             0
    2                 count of rows       2
    orders 0 1500     topic, partition,   0 0       epoch, start offset
    orders 1 1477     offset              3 10898

An invalid file is rejected as a whole (`CheckpointError` says why): a partial list of epochs is
worse than none, because epochs can be rebuilt from the log. Every write replaces the file
atomically and is on disk when it returns. Entries are written in the given order. Checksums of the
files with offsets are in another file (`CheckpointChecksums`).
"""

import json
from collections.abc import Iterable, Mapping
from typing import NamedTuple
from zlib import crc32

from tidelog.core.record.crc32c import crc32c
from tidelog.core.storage import layout
from tidelog.core.storage.disk import (
    TEMPORARY_SUFFIX,
    Disk,
    DiskError,
    parent,
    read_file,
    replace_file,
)
from tidelog.core.storage.layout import format_topic_id, parse_topic_id
from tidelog.core.types import BrokerId, EpochEntry, Offset, StorePoint, TopicId, TopicPartition
from tidelog.core.wall_clock import ClockReading

VERSION = 0


class CheckpointError(Exception):
    """A checkpoint file is invalid."""

    def __init__(self, path: str, problem: str) -> None:
        super().__init__(f"{path}: {problem}")
        self.path = path
        self.problem = problem


def parse_rows(path: str, data: bytes, columns: int) -> list[list[str]]:
    """Return the rows after the version and the count; none for an empty file."""
    if not data:
        return []
    try:
        lines = data.decode().splitlines()
    except UnicodeDecodeError as error:
        raise CheckpointError(path, f"not UTF-8 at byte {error.start}") from None
    version = _number(path, 1, lines[0])
    if version != VERSION:
        raise CheckpointError(path, f"unknown version {version}, expected {VERSION}")
    if len(lines) < 2:
        raise CheckpointError(path, "the count line is missing")
    count = _number(path, 2, lines[1])
    rows = [line.split() for line in lines[2:]]
    for number, row in enumerate(rows, start=3):
        if len(row) != columns:
            raise CheckpointError(
                path, f"line {number}: expected {columns} columns, found {lines[number - 1]!r}"
            )
    if len(rows) != count:
        raise CheckpointError(path, f"has {len(rows)} entries, the count line says {count}")
    return rows


def _number(path: str, line: int, text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise CheckpointError(path, f"line {line}: {text!r} is not a number") from None


def _format_rows(rows: list[str]) -> bytes:
    return "".join(f"{line}\n" for line in (VERSION, len(rows), *rows)).encode()


def parse_offsets(path: str, data: bytes) -> dict[TopicPartition, Offset]:
    """Return the offset of each partition, in the file's order."""
    offsets: dict[TopicPartition, Offset] = {}
    for line, (topic, partition, offset) in enumerate(parse_rows(path, data, 3), start=3):
        key = TopicPartition(topic, _number(path, line, partition))
        offsets[key] = _number(path, line, offset)
    return offsets


def format_offsets(offsets: Mapping[TopicPartition, Offset]) -> bytes:
    """Return the bytes of a file with these offsets."""
    return _format_rows([f"{p.topic} {p.partition} {offset}" for p, offset in offsets.items()])


def parse_epochs(path: str, data: bytes) -> list[EpochEntry]:
    """Return the leader epochs, oldest first; both columns must rise."""
    entries: list[EpochEntry] = []
    for line, (epoch, start) in enumerate(parse_rows(path, data, 2), start=3):
        entry = EpochEntry(_number(path, line, epoch), _number(path, line, start))
        if min(entry) < 0:
            raise CheckpointError(
                path,
                f"line {line}: epoch or offset is negative: {entry.epoch} {entry.start_offset}",
            )
        if entries and not (
            entry.epoch > entries[-1].epoch and entry.start_offset > entries[-1].start_offset
        ):
            raise CheckpointError(path, f"line {line}: epochs and offsets must rise")
        entries.append(entry)
    return entries


def format_epochs(entries: Iterable[EpochEntry]) -> bytes:
    """Return the bytes of a file with these epochs."""
    return _format_rows([f"{entry.epoch} {entry.start_offset}" for entry in entries])


def read_offsets(disk: Disk, path: str) -> tuple[dict[TopicPartition, Offset], list[str]]:
    """Return the offsets and warnings. An invalid file counts as empty: recovery then reads more
    of the log, but loses nothing."""
    try:
        data = read_file(disk, path)
        return ({}, []) if data is None else (parse_offsets(path, data), [])
    except (CheckpointError, DiskError) as error:
        return {}, [f"{error}; treated as empty"]


def read_epochs(disk: Disk, path: str) -> list[EpochEntry] | None:
    """Return the epochs; None if the file is missing. Raises CheckpointError."""
    data = read_file(disk, path)
    return None if data is None else parse_epochs(path, data)


def write_epochs(disk: Disk, path: str, entries: Iterable[EpochEntry]) -> None:
    """Replace the file with these epochs."""
    replace_file(disk, path, format_epochs(entries))


def parse_topic_metadata(path: str, data: bytes) -> TopicId:
    """Return the topic id in a `partition.metadata` file. Raises CheckpointError."""
    lines = data.decode(errors="replace").splitlines()
    fields = dict(line.split(": ", 1) for line in lines if ": " in line)
    if fields.get("version") != "0":
        raise CheckpointError(path, f"unknown version {fields.get('version')}, expected 0")
    topic_id = parse_topic_id(fields.get("topic_id", ""))
    if topic_id is None:
        raise CheckpointError(path, f"invalid topic_id {fields.get('topic_id')!r}")
    return topic_id


def format_topic_metadata(topic_id: TopicId) -> bytes:
    """Return the bytes of a `partition.metadata` file."""
    return f"version: 0\ntopic_id: {format_topic_id(topic_id)}".encode()


def write_topic_metadata(disk: Disk, path: str, topic_id: TopicId) -> None:
    """Replace a `partition.metadata` file."""
    replace_file(disk, path, format_topic_metadata(topic_id))


NO_BROKER_EPOCH = -1


def remove_clean_shutdown(disk: Disk) -> int | None:
    """Remove the mark of a clean stop; return its broker epoch, or None if there is no mark.

    It is removed before anything is loaded: a crash during startup must count as unclean
    (KAFKA-10471). Older releases left the mark empty.
    """
    data = read_file(disk, layout.CLEAN_SHUTDOWN)
    if data is None:
        return None
    disk.delete(layout.CLEAN_SHUTDOWN)
    disk.sync_dir(parent(layout.CLEAN_SHUTDOWN))
    try:
        return int(json.loads(data)["brokerEpoch"])
    except (ValueError, KeyError, TypeError):
        return NO_BROKER_EPOCH


def write_clean_shutdown(disk: Disk, broker_epoch: int) -> None:
    """Write the mark of a clean stop."""
    mark = f'{{"version":0,"brokerEpoch":{broker_epoch}}}'
    replace_file(disk, layout.CLEAN_SHUTDOWN, mark.encode())


class MetadataRevision(NamedTuple):
    """The file `metadata-revision`: how far this broker has followed the metadata store."""

    made: int | None = None
    """All logs of the metadata up to this revision were created; None if unknown."""
    seen: StorePoint | None = None
    """The latest point of the store's history that this broker has applied."""

    def format(self) -> bytes:
        made = -1 if self.made is None else self.made
        revision, checksum = self.seen or (-1, 0)
        text = b"1\n%d\n%d %d\n" % (made, revision, checksum)
        return b"%s%d\n" % (text, crc32(text))


def parse_revision(data: bytes) -> MetadataRevision:
    """Parse the file; version 0 has only the first number. Raises ValueError if it is damaged."""
    if data.startswith(b"0\n"):
        _, made = map(int, data.split())
        return MetadataRevision(made, StorePoint(made, 0))
    version, made, revision, checksum, written = map(int, data.split())
    if version != 1 or crc32(data[: data.rindex(b"\n", 0, -1) + 1]) != written:
        raise ValueError("checksum mismatch")
    seen = StorePoint(revision, checksum) if revision >= 0 else None
    return MetadataRevision(made if made >= 0 else None, seen)


def read_revision(disk: Disk) -> MetadataRevision | None:
    """Read the file: an empty value if it is missing, None if it is damaged."""
    data = read_file(disk, layout.METADATA_REVISION)
    try:
        return MetadataRevision() if data is None else parse_revision(data)
    except ValueError:
        return None


def read_clock(disk: Disk) -> ClockReading | None:
    """Return the clock reading that an earlier run saved; None if there is none."""
    try:
        version, boot_id, boot_ms, wall_ms = (
            (read_file(disk, layout.CONFIRMED_CLOCK) or b"").decode().splitlines()
        )
        return ClockReading(int(wall_ms), boot_id, int(boot_ms)) if version == "0" else None
    except (ValueError, DiskError):
        return None


def write_clock(disk: Disk, clock: ClockReading) -> None:
    """Save a confirmed clock reading."""
    lines = (VERSION, clock.boot_id, clock.boot_ms, clock.wall_ms)
    replace_file(disk, layout.CONFIRMED_CLOCK, "".join(f"{line}\n" for line in lines).encode())


class MetaProperties(NamedTuple):
    """The file `meta.properties`: the cluster and broker that own the log directory. Comments and
    order are kept."""

    values: dict[str, str]
    comments: tuple[str, ...] = ()

    def mismatch(self, cluster_id: str, node_id: BrokerId) -> str | None:
        """Return why the directory belongs to another broker or cluster; None if it does not.
        Missing values match: older formats have fewer."""
        found = self.values.get("cluster.id", cluster_id)
        if found != cluster_id:
            return f"it belongs to cluster {found}, not to {cluster_id}"
        found = self.values.get("node.id", self.values.get("broker.id", str(node_id)))
        if found != str(node_id):
            return f"it belongs to broker {found}, not to {node_id}"
        return None

    def format(self) -> bytes:
        pairs = [f"{key}={value}" for key, value in self.values.items()]
        return "".join(f"{line}\n" for line in (*self.comments, *pairs)).encode()


class DamagedProperties(CheckpointError):
    """A `meta.properties` file that no release writes; the broker rewrites it."""


def parse_properties(path: str, data: bytes) -> MetaProperties:
    """Parse the subset of Java properties that the file uses. Versions other than 0 and 1 are not
    damage: a later release wrote the file."""
    values: dict[str, str] = {}
    comments: list[str] = []
    for line in data.decode(errors="replace").splitlines():
        if line.startswith(("#", "!")):
            comments.append(line)
        elif line.strip():
            key, separator, value = line.partition("=")
            if not separator:
                raise DamagedProperties(path, f"{line!r} is not key=value")
            values[key.strip()] = value.strip()
    version = values.get("version", "")
    if not version.isdecimal():
        raise DamagedProperties(path, "the version is missing")
    if version not in ("0", "1"):
        raise CheckpointError(path, f"unknown version {version}, expected 0 or 1")
    if not data.endswith(b"\n"):
        raise DamagedProperties(path, "the last line is incomplete")
    return MetaProperties(values, tuple(comments))


def read_properties(disk: Disk) -> MetaProperties | None:
    """Read `meta.properties`; None if it is missing. Raises CheckpointError."""
    if disk.is_dir(layout.META_PROPERTIES):
        raise DamagedProperties(layout.META_PROPERTIES, "is a directory, not a file")
    data = read_file(disk, layout.META_PROPERTIES)
    return None if data is None else parse_properties(layout.META_PROPERTIES, data)


_CHECKSUMS_VERSION = "0"
MISSING = "-"


class CheckpointChecksums:
    """The checksums of one log directory's checkpoints, in a file of Tidelog's own.

    The checkpoints of a log directory are Kafka's text files and have no checksum, so a wrong
    offset within the log would be accepted. This file lists each checkpoint with the CRC-32C of its
    bytes:

        0                                                   version
        recovery-point-offset-checkpoint 5f0c2a11 -         name, new bytes, bytes before them
        replication-offset-checkpoint 9b1de704 1f22ab30
        71c3fe0a                                            checksum of all lines above

    It is renamed into place before the checkpoints that it lists, and has both the old and the new
    checksum; `-` is a missing file. So after a crash between the two renames the checkpoint still
    matches. A checkpoint that is not listed is accepted, as in a folder that Kafka wrote, and
    listed from then on. If the file itself is damaged, all checkpoints are accepted.

    The file is not synced before it is renamed, except at a clean stop: a power failure may damage
    it, which its own checksum shows.
    """

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._sums: dict[str, tuple[str, ...]] = {}
        """The checksums that each checkpoint may have, by its name."""
        self._adopted = False
        """Whether there are checkpoints that are not listed in the file."""
        self.warnings: list[str] = []
        try:
            self._sums = _parse(read_file(disk, layout.CHECKPOINT_CHECKSUMS))
        except (ValueError, DiskError):
            effect = "wrong values in checkpoints can't be detected"
            self.warnings.append(f"{layout.CHECKPOINT_CHECKSUMS} is damaged: {effect}")

    def check(self, name: str, data: bytes | None) -> None:
        """Raise CheckpointError if these bytes do not match; None is a missing file."""
        found = _checksum(data)
        if name not in self._sums:
            self._sums[name] = (found,)
            self._adopted = True
        elif found in self._sums[name]:
            self._sums[name] = (found,)
        elif data is None:
            raise CheckpointError(name, "the file is missing")
        else:
            raise CheckpointError(
                name, "checksum mismatch: the file was changed after it was written"
            )

    def replace(self, contents: Mapping[str, bytes]) -> None:
        """Replace these checkpoints; a crash leaves the old or the new version of each."""
        before = self._sums
        written = {name: (_checksum(data),) for name, data in contents.items()}
        both = {name: now + before.get(name, (MISSING,)) for name, now in written.items()}
        all_contents = {layout.CHECKPOINT_CHECKSUMS: _format({**before, **both}), **contents}
        for name, data in all_contents.items():
            self._disk.write(name + TEMPORARY_SUFFIX, data)
        self._disk.sync_many([name + TEMPORARY_SUFFIX for name in contents], ())
        for name in all_contents:
            self._disk.rename(name + TEMPORARY_SUFFIX, name)
        self._disk.sync_dir("")
        self._sums = {**before, **written}
        self._adopted = False

    def adopt(self) -> None:
        """List all checkpoints that were found or are missing: one that appears later was not
        written by this broker."""
        if self._adopted:
            self.replace({})

    def settled(self) -> bytes:
        """Return the file's content after all checkpoints are in place."""
        return _format(self._sums)


def _checksum(data: bytes | None) -> str:
    return MISSING if data is None else f"{crc32c(data):08x}"


def _format(sums: Mapping[str, tuple[str, ...]]) -> bytes:
    rows = (" ".join((name, *dict.fromkeys(values))) for name, values in sums.items())
    text = "".join(f"{line}\n" for line in (_CHECKSUMS_VERSION, *rows)).encode()
    return text + f"{crc32c(text):08x}\n".encode()


def _parse(data: bytes | None) -> dict[str, tuple[str, ...]]:
    """Parse the file. Raises ValueError if it is damaged."""
    if data is None:
        return {}
    end = data.rfind(b"\n", 0, -1) + 1
    if data[end:] != f"{crc32c(data[:end]):08x}\n".encode():
        raise ValueError("its own checksum does not match")
    version, *rows = data[:end].decode().splitlines()
    if version != _CHECKSUMS_VERSION:
        raise ValueError(f"unknown version {version}")
    return {name: tuple(values) for name, *values in map(str.split, rows)}
