"""Compare the sparse indexes of a segment with its batches.

An entry of the offset index has the last offset of a batch and the position where it begins. An
entry of the time index has a timestamp and an offset in the batch with that timestamp. Zeros at
the end are space that a running broker reserves.
"""

import os
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tidelog.apps.audit.scan.summary import Remark
from tidelog.apps.audit.scan.walk import Framed, Longs
from tidelog.apps.log_files.read_only_file import CannotRead, Vanished, read_whole
from tidelog.core.storage import layout

OFFSET_ENTRY = np.dtype([("relative", ">i4"), ("position", ">i4")])
TIME_ENTRY = np.dtype([("timestamp", ">i8"), ("relative", ">i4")])


class SegmentIndexes:
    """Both indexes of a segment.

    They are read before the segment, so that a growing segment has all batches they name.
    """

    def __init__(self, log_path: str, base_offset: int, check_whole: bool) -> None:
        self._base_offset = base_offset
        self._check_whole = check_whole
        """Whether to report errors of a whole file; true for one stretch of a segment only."""
        stem = log_path[: -len(layout.LOG)]
        self.remarks: list[Remark] = []
        self.missing: list[str] = []
        self.reserved: list[tuple[str, int]] = []
        """Files with zeros at their end, and the position where these begin."""
        self._offset_file = os.path.basename(stem + layout.OFFSET_INDEX)
        self._time_file = os.path.basename(stem + layout.TIME_INDEX)
        offsets = self._entries(stem + layout.OFFSET_INDEX, OFFSET_ENTRY, 0)
        times = self._entries(stem + layout.TIME_INDEX, TIME_ENTRY, 1)
        self._positions: Longs = offsets["position"].astype(np.int64)
        self._offsets: Longs = offsets["relative"].astype(np.int64) + base_offset
        self._timestamps: Longs = times["timestamp"].astype(np.int64)
        self._time_offsets: Longs = times["relative"].astype(np.int64) + base_offset
        if check_whole:
            self._must_rise(self._offset_file, 8, self._offsets, self._positions, self._offsets)
            rising = (self._timestamps, self._time_offsets)
            self._must_rise(self._time_file, 12, self._time_offsets, *rising)
        self._seen_times = np.zeros(len(times), bool)
        self.bare = 0
        """Maximum distance in bytes from a batch back to the entry before it, or to byte 0."""

    @property
    def time_last(self) -> tuple[int, int] | None:
        """The last entry of the time index: the newest timestamp, and its offset."""
        if not len(self._timestamps):
            return None
        return int(self._timestamps[-1]), int(self._time_offsets[-1])

    @property
    def offset_last(self) -> int:
        """The last offset in the offset index; -1 if it is empty."""
        return int(self._offsets[-1]) if len(self._offsets) else -1

    @property
    def gap(self) -> int:
        """The minimum distance in bytes between entries of the offset index; -1 if it is empty.

        It is larger than `index.interval.bytes`.
        """
        return int(np.diff(self._positions, prepend=0).min(initial=1 << 31)) if self.used else -1

    @property
    def used(self) -> int:
        """Number of entries in the offset index."""
        return len(self._offsets)

    def _entries(self, path: str, entry: "np.dtype[np.void]", keep: int) -> NDArray[Any]:
        name = os.path.basename(path)
        try:
            data = read_whole(path)
        except Vanished:
            self.missing.append(name)
            data = b""
        except CannotRead as error:
            if self._check_whole:
                self.remarks.append(Remark("unreadable", name, 0, -1, -1, error.why))
            data = b""
        whole = len(data) - len(data) % entry.itemsize
        if whole < len(data) and self._check_whole:
            text = f"{len(data) - whole} bytes at its end are an incomplete entry"
            self._add(_kind(name), name, whole, -1, text)
        entries = np.frombuffer(data[:whole], entry)
        used = -(-len(data[:whole].rstrip(b"\0")) // entry.itemsize)
        used = max(used, min(keep, len(entries)))
        if used < len(entries):
            self.reserved.append((name, used * entry.itemsize))
        return entries[:used]

    def _must_rise(self, name: str, size: int, offsets: Longs, *columns: Longs) -> None:
        fine = np.ones(max(len(offsets) - 1, 0), bool)
        for column in columns:
            fine &= column[1:] > column[:-1]
        bad = np.flatnonzero(~fine)
        if len(bad):
            at = int(bad[0]) + 1
            text = f"entry {at} is not greater than the entry before it"
            more = f"; {len(bad)} such entries" if len(bad) > 1 else ""
            self._add(_kind(name), name, at * size, int(offsets[at]), text + more)

    def _add(self, kind: str, name: str, position: int, offset: int, text: str) -> None:
        if all(known.file != name for known in self.remarks):
            self.remarks.append(Remark(kind, name, position, offset, offset, text))

    def compare(self, framed: Framed, last: Longs) -> None:
        """Compare the entries that name these batches with them."""
        self._compare_positions(framed, last)
        self._compare_times(framed, last)

    def _compare_positions(self, framed: Framed, last: Longs) -> None:
        begin, end = int(framed.positions[0]), int(framed.positions[-1] + framed.sizes[-1])
        before = np.concatenate(([0], self._positions))
        slots = np.searchsorted(self._positions, framed.positions, "right")
        self.bare = max(self.bare, int((framed.positions - before[slots]).max()))
        named = np.flatnonzero((self._positions >= begin) & (self._positions < end))
        if not len(named):
            return
        at = np.searchsorted(framed.positions, self._positions[named])
        at = np.minimum(at, len(last) - 1)
        fits = (framed.positions[at] == self._positions[named]) & (last[at] == self._offsets[named])
        fits |= (framed.positions[at] == self._positions[named]) & ~framed.sound[at]
        for bad in np.flatnonzero(~fits).tolist()[:1]:
            entry = int(named[bad])
            offset, position = int(self._offsets[entry]), int(self._positions[entry])
            there = int(framed.positions[at[bad]]) == position
            what = f"a batch ends with {int(last[at[bad]])}" if there else "no batch starts"
            text = f"entry {entry} has offset {offset} at byte {position}, where {what}"
            self._add("offset-index", self._offset_file, entry * 8, offset, text)

    def _compare_times(self, framed: Framed, last: Longs) -> None:
        base = framed.headers["base_offset"]
        named = np.flatnonzero(
            (self._time_offsets >= int(base[0])) & (self._time_offsets <= int(last[-1]))
        )
        if not len(named) or bool((last[1:] <= last[:-1]).any()):
            return
        self._seen_times[named] = True
        at = np.searchsorted(last, self._time_offsets[named])
        youngest = framed.headers["max_timestamp"][at]
        fits = (youngest == self._timestamps[named]) | ~framed.sound[at]
        for bad in np.flatnonzero(~fits).tolist()[:1]:
            entry = int(named[bad])
            if not entry and not self._timestamps[entry]:
                continue  # zeros: space that an active segment has not used yet
            offset, found = int(self._time_offsets[entry]), int(self._timestamps[entry])
            text = (
                f"entry {entry} has timestamp {found} at offset {offset},"
                f" where the batch's is {int(youngest[bad])}"
            )
            self._add("time-index", self._time_file, entry * 12, offset, text)

    def finish(self, log_size: int, last: int) -> None:
        """Report entries with positions or offsets that the segment does not have."""
        beyond = np.flatnonzero((self._positions >= log_size) | (self._positions < 0))
        for entry in beyond.tolist()[:1]:
            offset, position = int(self._offsets[entry]), int(self._positions[entry])
            text = f"entry {entry} has position {position}; the segment has {log_size} bytes"
            self._add("offset-index", self._offset_file, entry * 8, offset, text)
        beyond = np.flatnonzero(
            (self._time_offsets > last) | (self._time_offsets < self._base_offset)
        )
        for entry in beyond.tolist()[:1]:
            offset = int(self._time_offsets[entry])
            if (
                last < 0
                and len(self._timestamps) == 1
                and self.time_last in _unused(self._base_offset)
            ):
                continue
            text = f"entry {entry} has offset {offset}; the segment ends with {last}"
            self._add("time-index", self._time_file, entry * 12, offset, text)


def _unused(base_offset: int) -> tuple[tuple[int, int], ...]:
    """Return the entries that the time index of an empty segment may have."""
    return (0, base_offset), (-1, base_offset)


def _kind(name: str) -> str:
    return "time-index" if name.endswith(layout.TIME_INDEX) else "offset-index"
