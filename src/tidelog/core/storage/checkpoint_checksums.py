"""Checksums of the checkpoint files, in a file of Tidelog's own: `checkpoint-checksums`.

The checkpoints of a log directory are Kafka's text files and have no checksum, so a wrong offset
within the log would be accepted. This file lists each checkpoint with the CRC-32C of its bytes:

    0                                                   version
    recovery-point-offset-checkpoint 5f0c2a11 -         name, new bytes, bytes before them
    replication-offset-checkpoint 9b1de704 1f22ab30
    71c3fe0a                                            checksum of all lines above

It is renamed into place before the checkpoints that it lists, and has both the old and the new
checksum; `-` is a missing file. So after a crash between the two renames the checkpoint still
matches. A checkpoint that is not listed is accepted, as in a folder that Kafka wrote, and listed
from then on. If the file itself is damaged, all checkpoints are accepted.

The file is not synced before it is renamed, except at a clean stop: a power failure may damage it,
which its own checksum shows.
"""

from collections.abc import Mapping

from tidelog.core.record.crc32c import crc32c
from tidelog.core.storage import layout
from tidelog.core.storage.checkpoint import CheckpointError
from tidelog.core.storage.disk import TEMPORARY_SUFFIX, Disk, DiskError, read_file

VERSION = "0"
MISSING = "-"


class CheckpointChecksums:
    """The checksums of one log directory's checkpoints."""

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
    text = "".join(f"{line}\n" for line in (VERSION, *rows)).encode()
    return text + f"{crc32c(text):08x}\n".encode()


def _parse(data: bytes | None) -> dict[str, tuple[str, ...]]:
    """Parse the file. Raises ValueError if it is damaged."""
    if data is None:
        return {}
    end = data.rfind(b"\n", 0, -1) + 1
    if data[end:] != f"{crc32c(data[:end]):08x}\n".encode():
        raise ValueError("its own checksum does not match")
    version, *rows = data[:end].decode().splitlines()
    if version != VERSION:
        raise ValueError(f"unknown version {version}")
    return {name: tuple(values) for name, *values in map(str.split, rows)}
