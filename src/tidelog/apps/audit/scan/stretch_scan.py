"""Scan a stretch of a segment in one pass: find each batch and verify its checksum once.

Memory is limited to one piece of the file and to lists of at most `LIST_MAX` entries.
"""

import os
from functools import reduce
from operator import xor
from typing import NamedTuple
from zlib import crc32

import numpy as np

from tidelog.apps.audit.scan.index_check import SegmentIndexes
from tidelog.apps.audit.scan.producers import ProducerSpan, SequenceScan, TransactionScan
from tidelog.apps.audit.scan.summary import (
    LIST_MAX,
    EpochRun,
    Hole,
    Remark,
    Run,
    StretchSummary,
)
from tidelog.apps.audit.scan.walk import (
    OFFSET_MAX,
    WINDOW,
    Broken,
    Framed,
    Longs,
    SegmentWalk,
    digests,
)
from tidelog.core.record.record_batch import MAGIC, PREFIX_SIZE
from tidelog.core.storage.recovery import MAGIC_AT, OLD_RECORD_MIN

_CREDIBLE_SPAN = 1 << 20
"""Maximum number of offsets that the header of a batch with a wrong checksum may claim."""


class Stretch(NamedTuple):
    """The input of a scan: the batches that begin in `[start, end)` of a segment's file."""

    path: str
    base_offset: int
    start: int
    end: int
    to_end: bool
    """Whether the stretch extends to the end that the file has when it is read."""
    cleaned_upto: int
    """Below this offset, the cleaner explains gaps."""
    ends: tuple[int, ...] = ()
    """Offsets where the log may end: next segment's base, high watermark, recovery point."""


class StretchScan(NamedTuple):
    """The result of a scan."""

    summary: StretchSummary
    windows: list[tuple[int, int, int]]
    """Window number, digest, number of batches."""
    producers: list[ProducerSpan]


def scan_stretch(wanted: Stretch, deep: bool = False) -> StretchScan:
    """Scan a stretch. The summary reports a file that is missing or unreadable."""
    try:
        indexes = SegmentIndexes(wanted.path, wanted.base_offset, wanted.start == 0)
        fd = os.open(wanted.path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        dangling = "a broken symbolic link" if os.path.islink(wanted.path) else ""
        missing = StretchSummary(
            wanted.start, wanted.start, 0, vanished=not dangling, error=dangling
        )
        return StretchScan(missing, [], [])
    except OSError as error:
        why = (error.strerror or str(error)).lower()
        return StretchScan(StretchSummary(wanted.start, wanted.start, 0, error=why), [], [])
    try:
        return _Scan(wanted, fd, indexes, deep).run()
    except OSError as error:
        why = (error.strerror or str(error)).lower()
        return StretchScan(StretchSummary(wanted.start, wanted.start, 0, error=why), [], [])
    finally:
        os.close(fd)


class _Scan:
    def __init__(self, wanted: Stretch, fd: int, indexes: SegmentIndexes, deep: bool) -> None:
        self.wanted = wanted
        self.deep = deep
        self.fd = fd
        self.size = os.fstat(fd).st_size
        self.indexes = indexes
        self.producers = SequenceScan()
        self.transactions = TransactionScan()
        self.batches = self.records = self.thinned = 0
        self.first = self.highest = self.max_timestamp = -1
        self.peak = -1
        self.runs: list[Run] = []
        self.epochs: list[EpochRun] = []
        self.holes: list[Hole] = []
        self.remarks: list[Remark] = []
        self.bad: list[tuple[int, int]] = []
        self.marks: list[tuple[int, int]] = []
        self.windows: dict[int, tuple[int, int]] = {}
        self.crowded = False

    def run(self) -> StretchScan:
        wanted = self.wanted
        end = self.size if wanted.to_end else min(wanted.end, self.size)
        walk = SegmentWalk(self.fd, wanted.start, end, self.size, wanted.base_offset)
        for stretch in walk.stretches():
            if isinstance(stretch, Broken):
                self._hole(stretch)
            else:
                self._add_batches(stretch)
        if wanted.to_end:
            self.indexes.finish(self.size, self.highest)
        summary = StretchSummary(
            wanted.start,
            walk.position,
            self.size,
            self.batches,
            self.records,
            self.first,
            self.highest,
            self.max_timestamp,
            self.thinned,
            self.runs,
            self.epochs,
            self.holes,
            self.remarks + self.indexes.remarks,
            self.producers.breaks[:LIST_MAX],
            self.transactions.aborted[:LIST_MAX],
            self.bad,
            self._listed(self.transactions.open),
            self._listed(self.transactions.ended),
            time_last=self.indexes.time_last,
            offset_last=self.indexes.offset_last,
            marks=self.marks[:LIST_MAX],
            index_gap=self.indexes.gap,
            index_bare=self.indexes.bare,
            indexes_missing=self.indexes.missing,
            indexes_reserved=self.indexes.reserved,
            digest=reduce(xor, (digest for digest, _ in self.windows.values()), 0),
            producers=len(self.producers.spans),
            crowded=self.crowded,
        )
        windows = [(window, *found) for window, found in self.windows.items()]
        return StretchScan(summary, windows, list(self.producers.spans.values()))

    def _listed(self, offsets: dict[int, int]) -> list[tuple[int, int]]:
        self.crowded |= len(offsets) > LIST_MAX
        return list(offsets.items())[:LIST_MAX]

    def _hole(self, broken: Broken) -> None:
        old = self._old_format(broken)
        torn = broken.end == self.size and self._is_torn(broken.first)
        hole = Hole(broken.position, broken.end, broken.reason, broken.zeros, old, torn)
        self.holes.append(hole)
        self.peak = -1

    def _is_torn(self, first: bytes) -> bool:
        """Return whether bytes at the end of the file could be the beginning of the next batch."""
        if len(first) <= MAGIC_AT:
            return True
        base, size = int.from_bytes(first[:8]), int.from_bytes(first[8:12]) + PREFIX_SIZE
        fits = self.highest < base <= self.highest + _CREDIBLE_SPAN or self.highest < 0
        return first[MAGIC_AT] == MAGIC and fits and size >= len(first)

    def _old_format(self, broken: Broken) -> int:
        """Return 0 or 1 if the bytes begin with a valid record of that format, else -1.

        These formats have a CRC-32 over all bytes after it.
        """
        if broken.magic not in (0, 1) or len(broken.first) <= MAGIC_AT:
            return -1
        size = int.from_bytes(broken.first[8:12]) + PREFIX_SIZE
        if not OLD_RECORD_MIN <= size <= self.size - broken.position:
            return -1
        data = os.pread(self.fd, size, broken.position)
        right = crc32(data[MAGIC_AT:]) == int.from_bytes(data[12:MAGIC_AT])
        return broken.magic if right else -1

    def _add_batches(self, framed: Framed) -> None:
        base = framed.headers["base_offset"].astype(np.int64)
        last = self._credible_last_offsets(framed, base)
        self.batches += len(base)
        if self.first < 0:
            self.first = int(base[0])
        for at in np.flatnonzero(np.isin(base, self.wanted.ends)).tolist():
            self.marks.append((int(base[at]), int(framed.positions[at])))
        self._count(framed, base, last)
        self._follow_offsets(framed, base, last)
        self._follow_epochs(framed, base, last)
        self._digest(framed, base, last)
        self.producers.add(framed.headers, last, framed.positions, framed.sound)
        self.transactions.add(framed)
        self.indexes.compare(framed, last)
        if self.deep:
            self._open(framed, base, last)
        self.highest = max(self.highest, int(last.max()))

    def _credible_last_offsets(self, framed: Framed, base: Longs) -> Longs:
        """Return the last offset of each batch, corrected where the header is wrong.

        A damaged batch ends where the next one begins. So does a batch with an impossible last
        offset: below its base offset, inside the next batch, or too low for its record count.
        A last offset that fits the count is kept: then a base offset is wrong.
        """
        last = framed.last.copy()
        count = framed.headers["count"].astype(np.int64)
        into_next = (last[:-1] >= base[1:]) & (base[:-1] + count[:-1] == base[1:])
        into_next &= base[:-1] < base[1:]
        short = (last[:-1] + 1 < base[1:]) & (base[:-1] + count[:-1] == base[1:])
        wrong = np.append(into_next | short, False) | (last < base)
        for at in np.flatnonzero(framed.sound & wrong).tolist():
            last[at] = self._credible_end(framed, base, at) - 1
            text = f"the header claims offsets up to {int(framed.last[at])}"
            offsets = (int(base[at]), int(last[at]))
            self._remark("record-count", int(framed.positions[at]), offsets, text)
            self.bad.append(offsets)
        for at in np.flatnonzero(~framed.sound).tolist():
            last[at] = self._credible_end(framed, base, at) - 1
            self._remark(
                "batch-checksum",
                int(framed.positions[at]),
                (int(base[at]), int(last[at])),
                f"batch of {int(framed.sizes[at])} bytes does not match its checksum",
            )
            self.bad.append((int(base[at]), int(last[at])))
        return last

    def _credible_end(self, framed: Framed, base: Longs, at: int) -> int:
        """Return the end offset of a damaged batch, from the next batch or from its header."""
        first = int(base[at])
        if at + 1 < len(base) and first < base[at + 1] <= first + _CREDIBLE_SPAN:
            return int(base[at + 1])
        header = framed.headers[at]
        claimed = [first + int(header["last_offset_delta"]) + 1, first + int(header["count"])]
        fits = [end for end in claimed if end in self.wanted.ends and end > first]
        sane = [end for end in claimed if first < end <= first + _CREDIBLE_SPAN]
        return min(fits or sane or [first + 1])

    def _remark(self, kind: str, position: int, offsets: tuple[int, int], text: str) -> None:
        if len(self.remarks) < LIST_MAX:
            self.remarks.append(Remark(kind, "", position, *offsets, text))
        else:
            self.crowded = True

    def _count(self, framed: Framed, base: Longs, last: Longs) -> None:
        count = framed.headers["count"].astype(np.int64)
        span = last - base + 1
        wrong = framed.sound & ((count < 0) | (count > span)) & (base < OFFSET_MAX - count)
        for at in np.flatnonzero(wrong).tolist()[:LIST_MAX]:
            text = f"the header claims {int(count[at])} records for {int(span[at])} offsets"
            offsets = (int(base[at]), int(last[at]))
            if offsets not in self.bad:
                self._remark("record-count", int(framed.positions[at]), offsets, text)
                self.bad.append(offsets)
        fine = framed.sound & ~wrong
        self.records += int(count[fine].sum())
        self.thinned += int((count[fine] < span[fine]).sum())
        youngest = framed.headers["max_timestamp"][fine]
        self.max_timestamp = max(self.max_timestamp, int(youngest.max(initial=-1)))

    def _open(self, framed: Framed, base: Longs, last: Longs) -> None:
        from tidelog.apps.audit.scan.record_check import wrong_batches

        for at, text in wrong_batches(framed):
            offsets = (int(base[at]), int(last[at]))
            self._remark("record-count", int(framed.positions[at]), offsets, text)

    def _follow_offsets(self, framed: Framed, base: Longs, last: Longs) -> None:
        before = np.concatenate(([self.runs[-1].last if self.runs else -2], last[:-1]))
        jumps = base != before + 1
        # A cleaner's gap is not a jump, unless offsets fall after it: then an offset is wrong.
        continues = np.concatenate((base[1:] > last[:-1], [False]))
        jumps &= ~((base > before) & (base <= self.wanted.cleaned_upto) & continues)
        if not self.runs or self.peak < 0:
            jumps[0] = True  # the first batch, or the first batch after a hole
        begins = np.flatnonzero(jumps).tolist()
        if not begins or begins[0] != 0:
            begins.insert(0, 0)
        for at, end in zip(begins, [*begins[1:], len(base)], strict=True):
            cut = end
            if self.peak >= base[at] and jumps[at]:  # offsets fell: end the run at new offsets
                cut = at + int(np.searchsorted(base[at:end], self.peak, "right"))
            self._add_run(framed, base, last, at, cut, bool(jumps[at]))
            if cut < end:
                self._add_run(framed, base, last, cut, end, True)

    def _add_run(
        self, framed: Framed, base: Longs, last: Longs, at: int, end: int, begins: bool
    ) -> None:
        if at == end:
            return
        stop = int(framed.positions[end - 1] + framed.sizes[end - 1])
        self.peak = max(self.peak, int(last[end - 1]))
        if not begins:
            run = self.runs[-1]
            self.runs[-1] = run._replace(
                last=int(last[end - 1]), end=stop, batches=run.batches + end - at
            )
            return
        start, first = int(framed.positions[at]), int(base[at])
        if len(self.runs) < LIST_MAX:
            self.runs.append(Run(first, int(last[end - 1]), start, stop, end - at))
            return
        self.crowded = True
        run = self.runs[-1]
        if first > run.last:  # too many gaps to list; extend the last run
            batches = run.batches + end - at
            self.runs[-1] = run._replace(last=int(last[end - 1]), end=stop, batches=batches)
        else:
            offsets = (first, int(last[end - 1]))
            self._remark("offset-order", start, offsets, f"offsets from {first} appear again")

    def _follow_epochs(self, framed: Framed, base: Longs, last: Longs) -> None:
        epochs = framed.headers["leader_epoch"]
        changes = np.flatnonzero(epochs[1:] != epochs[:-1]) + 1
        begins = [0, *changes.tolist()]
        for at, end in zip(begins, [*begins[1:], len(base)], strict=True):
            epoch, stop = int(epochs[at]), int(last[end - 1])
            run = self.epochs[-1] if self.epochs else None
            if run is not None and run.epoch == epoch:
                self.epochs[-1] = run._replace(last=stop, batches=run.batches + end - at)
            elif len(self.epochs) < LIST_MAX:
                place = int(framed.positions[at])
                self.epochs.append(EpochRun(epoch, int(base[at]), stop, place, end - at))
            else:
                self.crowded = True

    def _digest(self, framed: Framed, base: Longs, last: Longs) -> None:
        numbers = digests(framed.headers, last)
        windows = base // WINDOW
        order = np.argsort(windows, kind="stable")
        windows, numbers = windows[order], numbers[order]
        begins = np.flatnonzero(np.concatenate(([True], windows[1:] != windows[:-1])))
        sums = np.bitwise_xor.reduceat(numbers, begins)
        counts = np.diff(np.concatenate((begins, [len(windows)])))
        rows = zip(windows[begins].tolist(), sums.tolist(), counts.tolist(), strict=True)
        for window, digest, count in rows:
            known = self.windows.get(window, (0, 0))
            self.windows[window] = (known[0] ^ digest, known[1] + count)
