import struct

import pytest

from tidelog.core.record.control import ControlType
from tidelog.core.record.decoder import read_committed
from tidelog.core.record.encoder import Producer, encode_batch, encode_marker
from tidelog.core.record.record import Record
from tidelog.core.record.record_batch import CONTROL, TRANSACTIONAL, RecordBatch, parse

A, B = 1, 2


def log(*steps: tuple[str, int]) -> list[RecordBatch]:
    """One batch an offset: data, txn (transactional data), abort, commit, other (control)."""
    found = []
    for offset, (kind, producer_id) in enumerate(steps):
        producer = Producer(producer_id, 0, 0)
        if kind in ("abort", "commit"):
            data = encode_marker(ControlType[kind.upper()], producer, 0, 0)
        elif kind == "other":
            key = struct.pack(">hh", 0, ControlType.LEADER_CHANGE)
            data = encode_batch([Record(key, None)], attributes=CONTROL, producer=producer)
        else:
            attributes = TRANSACTIONAL if kind == "txn" else 0
            data = encode_batch([Record(None, b"v")], attributes=attributes, producer=producer)
        batch = parse(data)
        batch.assign(offset, 0)
        found.append(batch)
    return found


CASES: dict[str, tuple[list[RecordBatch], list[tuple[int, int]], list[int]]] = {
    "nothing aborted": (log(("txn", A), ("data", B), ("commit", A)), [], [0, 1]),
    "aborted": (log(("txn", A), ("data", B), ("abort", A), ("data", B)), [(A, 0)], [1, 3]),
    "committed after an abort": (
        log(("txn", A), ("abort", A), ("txn", A), ("commit", A)),
        [(A, 0)],
        [2],
    ),
    "aborted after a commit": (
        log(("txn", A), ("commit", A), ("txn", A), ("abort", A)),
        [(A, 2)],
        [0],
    ),
    "two at once, one aborted": (
        log(("txn", A), ("txn", B), ("txn", A), ("commit", B), ("abort", A)),
        [(A, 0)],
        [1],
    ),
    "both aborted, listed by end": (
        log(("txn", A), ("txn", B), ("abort", B), ("txn", A), ("abort", A)),
        [(B, 1), (A, 0)],
        [],
    ),
    "begun before the fetch": (log(("txn", A), ("abort", A), ("txn", A)), [(A, -50)], [2]),
    "plain records of the same producer": (
        log(("txn", A), ("data", A), ("abort", A)),
        [(A, 0)],
        [1],
    ),
    "a commit marker takes no abort back": (
        log(("txn", A), ("commit", A), ("txn", A)),
        [(A, 0)],
        [],
    ),
    "other control records": (log(("txn", A), ("other", A), ("txn", A)), [(A, 0)], []),
}


@pytest.mark.parametrize(("batches", "aborted", "visible"), CASES.values(), ids=CASES)
def test_what_a_reader_of_committed_data_gets(
    batches: list[RecordBatch], aborted: list[tuple[int, int]], visible: list[int]
) -> None:
    assert [batch.base_offset for batch in read_committed(batches, aborted)] == visible
