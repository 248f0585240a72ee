"""Aborted transactions, as a segment's `.txnindex` lists them.

Entries stand in the order of their abort markers, so the last offsets rise. Each carries
the last stable offset at the time of its marker: no transaction that ends later can have
begun before it, so a look-up may stop at the first entry whose last stable offset reaches
the end of what is read.
"""

from collections.abc import Iterable, Sequence
from struct import Struct
from typing import NamedTuple

from tidelog.core.types import Offset

_ENTRY = Struct(">hqqqq")
ENTRY_SIZE = _ENTRY.size
VERSION = 0


class CorruptTransactionIndex(Exception):
    """The bytes of a `.txnindex` that can't be right."""


class AbortedTransaction(NamedTuple):
    """One aborted transaction."""

    producer_id: int
    first_offset: Offset
    last_offset: Offset
    """Of the abort marker."""
    last_stable_offset: Offset

    def describe(self) -> str:
        first, last = self.first_offset, self.last_offset
        return f"the abort of producer {self.producer_id}, offsets {first} to {last},"

    def encode(self) -> bytes:
        return _ENTRY.pack(VERSION, *self)


def decode_transactions(data: bytes) -> list[AbortedTransaction]:
    """The entries of one file. Raises CorruptTransactionIndex."""
    if len(data) % ENTRY_SIZE:
        raise CorruptTransactionIndex(f"{len(data)} bytes are no whole number of entries")
    entries: list[AbortedTransaction] = []
    for version, *fields in _ENTRY.iter_unpack(data):
        if version != VERSION:
            raise CorruptTransactionIndex(f"version {version}")
        entry = AbortedTransaction(*fields)
        if entry.first_offset > entry.last_offset:
            raise CorruptTransactionIndex(f"{entry.describe()} ends before it begins")
        if entries and entries[-1].last_offset >= entry.last_offset:
            raise CorruptTransactionIndex(f"{entry.describe()} is out of order")
        entries.append(entry)
    return entries


def kept_below(entries: Sequence[AbortedTransaction], end: Offset) -> int:
    """How many entries remain when the log is truncated to `end`."""
    return sum(1 for entry in entries if entry.last_offset < end)


def aborted_transactions(
    entries: Iterable[AbortedTransaction], fetch_offset: Offset, upper_bound: Offset
) -> list[AbortedTransaction]:
    """Those that touch offsets from `fetch_offset` up to, not including, `upper_bound`.

    `entries` are those of the fetched segment and the ones after it: an abort marker may lie
    segments away from the records it takes back.
    """
    found = []
    for entry in entries:
        if entry.last_offset >= fetch_offset and entry.first_offset < upper_bound:
            found.append(entry)
        if entry.last_stable_offset >= upper_bound:
            break
    return found
