"""Damage inside a segment: header fields, single batches, ranges of bytes.

In a short log, one segment may be the first, an older and the active one at the same time.
"""

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path

from tidelog.core.record.record_batch import CorruptRecord, RecordBatch, parse
from tidelog.core.storage import layout

Way = Callable[[Path], None]
"""A way to damage files, given the partition's folder."""
FIRST, OLDER, ACTIVE = "first", "older", "active"


def segments(folder: Path) -> list[Path]:
    """Return the `.log` files, oldest first."""
    return sorted(folder.glob(f"*{layout.LOG}"))


def segment(folder: Path, which: str) -> Path:
    """Return the segment at that place in the log; the active one is the last with records."""
    found = segments(folder)
    if which == FIRST:
        return found[0]
    if which == OLDER:
        return found[(len(found) - 1) // 2]
    return next((file for file in reversed(found) if records(file)), found[-1])


def records(file: Path) -> bytes:
    """Return the bytes of a segment, without the reserved space after the last record."""
    return file.read_bytes().rstrip(b"\0")


def batches(file: Path) -> list[RecordBatch]:
    """Return the batches of a segment, up to the first bytes that are not a batch."""
    data, found, at = file.read_bytes(), [], 0
    while at < len(data):
        try:
            batch = parse(data, at)
        except CorruptRecord:
            break
        found.append(batch)
        at += batch.size
    return found


def base_offset(file: Path) -> int:
    """Return the base offset in the name of a segment."""
    return int(file.stem)


ZEROED_BYTES = 5000
CUT_BYTES = 9999
SECTOR_BYTES = 512
GARBAGE = bytes(range(1, 256)) * 3
LOW_BIT, HIGH_BIT = 0x01, 0x40

FIELDS = {
    "base offset": (0, 8),
    "batch length": (8, 4),
    "leader epoch": (12, 4),
    "magic byte": (16, 1),
    "checksum": (17, 4),
    "attributes": (21, 2),
    "last offset delta": (23, 4),
    "first timestamp": (27, 8),
    "largest timestamp": (35, 8),
    "producer id": (43, 8),
    "producer epoch": (51, 2),
    "base sequence": (53, 4),
    "record count": (57, 4),
}
"""Position and size of each field of a batch's header."""
UNCHECKED_FIELDS = ("base offset", "batch length", "leader epoch")
"""Fields that the checksum does not cover, in addition to the magic byte."""


def _overwrite(file: Path, at: int, new: bytes) -> None:
    """Overwrite bytes in place, because a broker may have the file open."""
    with file.open("r+b") as opened:
        opened.seek(at)
        opened.write(new)


def _flip_bit(file: Path, at: int, bit: int) -> None:
    _overwrite(file, at, bytes([file.read_bytes()[at] ^ bit]))


def flip(folder: Path, which: str) -> None:
    """Flip a bit of a record, two thirds into the segment."""
    file = segment(folder, which)
    size = len(records(file))
    if size:
        _flip_bit(file, size * 2 // 3, 0x10)


def _flip_field(folder: Path, which: str, field: str, bit: int) -> None:
    """Flip a bit of a header field: the lowest changes it by one, a high one makes it huge."""
    file = segment(folder, which)
    found = batches(file)
    if found:
        at, size = FIELDS[field]
        byte = at if bit == HIGH_BIT else at + size - 1
        _flip_bit(file, found[len(found) // 2].position + byte, bit)


def _zero(folder: Path, which: str) -> None:
    file = segment(folder, which)
    size = len(records(file))
    at = size // 2
    _overwrite(file, at, bytes(min(ZEROED_BYTES, size - at)))


def _garble_sector(folder: Path, which: str) -> None:
    file = segment(folder, which)
    size = len(records(file))
    at = size // 2 // SECTOR_BYTES * SECTOR_BYTES
    _overwrite(file, at, GARBAGE[: min(SECTOR_BYTES, size - at)])


def cut(folder: Path, which: str) -> None:
    """Truncate the segment by the last `CUT_BYTES` bytes of its records."""
    file = segment(folder, which)
    os.truncate(file, max(0, len(records(file)) - CUT_BYTES))


def _replace_batches(folder: Path, which: str, order: str) -> None:
    """Rewrite the segment with its two middle batches replaced as `order` says.

    In `order`, `1` is the middle batch and `2` the batch after it.
    """
    file = segment(folder, which)
    found = batches(file)
    if len(found) < 2:
        return
    middle = min(len(found) // 2, len(found) - 2)
    chosen = {"1": found[middle], "2": found[middle + 1]}
    new = [*found[:middle], *(chosen[number] for number in order), *found[middle + 2 :]]
    _write_batches(file, new)


def _remove_last_batch(folder: Path, which: str) -> None:
    file = segment(folder, which)
    _write_batches(file, batches(file)[:-1])


def _write_batches(file: Path, kept: list[RecordBatch]) -> None:
    file.write_bytes(b"".join(bytes(batch.view()) for batch in kept))


def _append(folder: Path, which: str, what: bytes) -> None:
    file = segment(folder, which)
    file.write_bytes(records(file) + what)


def _append_first_batch(folder: Path, which: str) -> None:
    """Append a valid batch with lower offsets after the last one."""
    file = segment(folder, which)
    found = batches(file)
    if found:
        _append(folder, which, bytes(found[0].view()))


PLACES = (OLDER, ACTIVE)

BATCH_WAYS: dict[str, Way] = {
    **{f"a flipped bit in the {which} segment": partial(flip, which=which)
       for which in (FIRST, *PLACES)},
    **{f"the {field} of a batch in the {which} segment off by a bit":
       partial(_flip_field, which=which, field=field, bit=LOW_BIT)
       for which in PLACES for field in FIELDS},
    **{f"a huge {field} in the {which} segment":
       partial(_flip_field, which=which, field=field, bit=HIGH_BIT)
       for which in PLACES for field in UNCHECKED_FIELDS},
    **{f"zeros in the {which} segment": partial(_zero, which=which) for which in PLACES},
    **{f"a sector of garbage in the {which} segment": partial(_garble_sector, which=which)
       for which in PLACES},
    **{f"the tail of the {which} segment cut": partial(cut, which=which) for which in PLACES},
    **{f"the last batch of the {which} segment removed": partial(_remove_last_batch, which=which)
       for which in PLACES},
    **{f"a batch removed from the {which} segment":
       partial(_replace_batches, which=which, order="2") for which in PLACES},
    **{f"a batch written twice in the {which} segment":
       partial(_replace_batches, which=which, order="112") for which in PLACES},
    **{f"two batches swapped in the {which} segment":
       partial(_replace_batches, which=which, order="21") for which in PLACES},
    **{f"garbage behind the {which} segment": partial(_append, which=which, what=GARBAGE)
       for which in PLACES},
    **{f"zeros behind the {which} segment":
       partial(_append, which=which, what=bytes(ZEROED_BYTES)) for which in PLACES},
    **{f"an old batch behind the {which} segment": partial(_append_first_batch, which=which)
       for which in PLACES},
}  # fmt: skip
"""Damage inside a segment, by its description."""
