import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.core.lineage.transaction_index import (
    ENTRY_SIZE,
    AbortedTransaction,
    CorruptTransactionIndex,
    aborted_transactions,
    decode_transactions,
    ended_from,
    kept_below,
)

# Producer, first offset, marker, last stable offset at the marker.
FIRST = AbortedTransaction(7, 10, 15, 12)
SECOND = AbortedTransaction(8, 12, 20, 18)
THIRD = AbortedTransaction(9, 18, 30, 31)
LATER = AbortedTransaction(7, 40, 45, 46)
ALL = [FIRST, SECOND, THIRD, LATER]


def encoded(*entries: AbortedTransaction) -> bytes:
    return b"".join(entry.encode() for entry in entries)


def test_entry_is_34_bytes_in_kafkas_order() -> None:
    assert FIRST.encode() == struct.pack(">hqqqq", 0, 7, 10, 15, 12)
    assert ENTRY_SIZE == 34


@given(st.lists(st.tuples(st.integers(0, 2**40), st.integers(0, 50), st.integers(1, 50))))
def test_round_trip(steps: list[tuple[int, int, int]]) -> None:
    entries = []
    marker = 100
    for producer_id, length, gap in steps:
        marker += gap
        entries.append(AbortedTransaction(producer_id, marker - length, marker, marker + 1))
    assert decode_transactions(encoded(*entries)) == entries


BAD = {
    "half an entry": (encoded(FIRST)[:-1], "whole number"),
    "newer version": (struct.pack(">hqqqq", 1, 7, 10, 15, 16), "version 1"),
    "ends before it begins": (encoded(AbortedTransaction(7, 16, 15, 16)), "before it begins"),
    "out of order": (encoded(SECOND, FIRST), "out of order"),
    "twice": (encoded(FIRST, FIRST), "out of order"),
}


@pytest.mark.parametrize(("data", "reason"), BAD.values(), ids=BAD)
def test_bad_files(data: bytes, reason: str) -> None:
    with pytest.raises(CorruptTransactionIndex, match=reason):
        decode_transactions(data)


KEPT = {
    "all": (46, 4),
    "marker itself cut": (45, 3),
    "between markers": (16, 1),
    "marker just kept": (21, 2),
    "none": (0, 0),
}


@pytest.mark.parametrize(("end", "kept"), KEPT.values(), ids=KEPT)
def test_truncation_keeps_markers_below_the_end(end: int, kept: int) -> None:
    assert kept_below(ALL, end) == kept


@pytest.mark.parametrize("offset", [0, 10, 15, 16, 20, 21, 30, 45, 46])
def test_entries_below_an_offset_are_skipped(offset: int) -> None:
    found = [entry for entry in ALL if entry.last_offset >= offset]
    assert list(ended_from(ALL, offset)) == found


LOOKUPS = {
    "everything": (0, 100, ALL),
    "ends before the first begins": (0, 10, []),
    "first record of the first": (0, 11, [FIRST]),
    "marker is still touched": (15, 16, [FIRST, SECOND]),
    "past the first marker": (16, 18, [SECOND]),
    "stops at the stable offset": (0, 31, [FIRST, SECOND, THIRD]),
    "between transactions": (31, 40, []),
    "after all": (46, 100, []),
}


@pytest.mark.parametrize(("start", "end", "found"), LOOKUPS.values(), ids=LOOKUPS)
def test_lookup(start: int, end: int, found: list[AbortedTransaction]) -> None:
    assert aborted_transactions(ALL, start, end) == found


def test_lookup_stops_at_the_last_needed_entry() -> None:
    entries = iter(ALL)
    assert aborted_transactions(entries, 0, 18) == [FIRST, SECOND]
    assert list(entries) == [THIRD, LATER]
