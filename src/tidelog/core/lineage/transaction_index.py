"""The index of aborted transactions, a segment's `.txnindex` file.

Entries are in the order of their abort markers, so their last offsets rise. Each has the last
stable offset at the time of its marker: no transaction that ends later can have started before
it. So a lookup can stop at the first entry whose last stable offset reaches the end of the range.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from struct import Struct
from typing import NamedTuple

from tidelog.core.types import Offset

_ENTRY = Struct(">hqqqq")
ENTRY_SIZE = _ENTRY.size
VERSION = 0


class CorruptTransactionIndex(Exception):
    """The bytes of a `.txnindex` file are invalid."""


class AbortedTransaction(NamedTuple):
    """One aborted transaction."""

    producer_id: int
    first_offset: Offset
    last_offset: Offset
    """The offset of the abort marker."""
    last_stable_offset: Offset

    def describe(self) -> str:
        first, last = self.first_offset, self.last_offset
        return f"the aborted transaction of producer {self.producer_id}, offsets {first} to {last},"

    def encode(self) -> bytes:
        return _ENTRY.pack(VERSION, *self)


def decode_transactions(data: bytes) -> list[AbortedTransaction]:
    """Decode the entries of one file. Raises CorruptTransactionIndex."""
    if len(data) % ENTRY_SIZE:
        raise CorruptTransactionIndex(f"{len(data)} bytes are not a whole number of entries")
    entries: list[AbortedTransaction] = []
    for version, *fields in _ENTRY.iter_unpack(data):
        if version != VERSION:
            raise CorruptTransactionIndex(f"unknown version {version}")
        entry = AbortedTransaction(*fields)
        if entry.first_offset > entry.last_offset:
            raise CorruptTransactionIndex(f"{entry.describe()} ends before it begins")
        if entries and entries[-1].last_offset >= entry.last_offset:
            raise CorruptTransactionIndex(f"{entry.describe()} is out of order")
        entries.append(entry)
    return entries


def kept_below(entries: Sequence[AbortedTransaction], end: Offset) -> int:
    """Return how many entries remain when the log is truncated to `end`."""
    return sum(1 for entry in entries if entry.last_offset < end)


def ended_from(
    entries: Sequence[AbortedTransaction], offset: Offset
) -> Iterator[AbortedTransaction]:
    """Return the entries whose abort marker is at or after `offset`, without a look at the others:
    a segment may have many thousands."""
    first = bisect_left(entries, offset, key=_marker)
    return (entries[at] for at in range(first, len(entries)))


def _marker(entry: AbortedTransaction) -> Offset:
    return entry.last_offset


def aborted_transactions(
    entries: Iterable[AbortedTransaction], fetch_offset: Offset, upper_bound: Offset
) -> list[AbortedTransaction]:
    """Return the entries that overlap the range from `fetch_offset` to `upper_bound` (exclusive).

    `entries` are those of the fetched segment and all later ones: an abort marker may be several
    segments after the records of its transaction.
    """
    found = []
    for entry in entries:
        if entry.last_offset >= fetch_offset and entry.first_offset < upper_bound:
            found.append(entry)
        if entry.last_stable_offset >= upper_bound:
            break
    return found
