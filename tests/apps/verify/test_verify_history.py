"""Values and journals are read back as they were written."""

from pathlib import Path

import pytest

from tidelog.apps.verify.checker.final_log import FinalLog
from tidelog.apps.verify.checker.partition_check import History, check_partition
from tidelog.apps.verify.journals import (
    Ack,
    Journal,
    Kind,
    Mark,
    MarkKind,
    Outcome,
    Read,
    ReadBatch,
    read_acks,
    read_rows,
)
from tidelog.apps.verify.record_value import (
    PRODUCERS_MAX,
    STRANGER,
    VALUE_SIZE,
    name,
    pack,
    read_id,
    split_id,
    value_id,
)

TAG = b"run-0001"


def test_packed_value_is_recognised() -> None:
    value = pack(TAG, 7, 3, 2**40, 2**41)
    assert len(value) == VALUE_SIZE
    assert read_id(value, TAG, 3) == value_id(7, 2**40)
    assert split_id(value_id(7, 2**40)) == (7, 2**40)


@pytest.mark.parametrize(
    ("value", "partition"),
    [
        (None, 3),
        (b"", 3),
        (pack(TAG, 7, 3, 1, 1)[:-1], 3),
        (pack(TAG, 7, 3, 1, 1)[:-1] + b"\x00", 3),
        (pack(b"run-0002", 7, 3, 1, 1), 3),
        (pack(TAG, 7, 3, 1, 1), 4),
        (pack(TAG, PRODUCERS_MAX, 3, 1, 1), 3),
    ],
    ids=["null", "empty", "short", "filler", "another run", "another partition", "producer"],
)
def test_foreign_value_is_not_recognised(value: bytes | None, partition: int) -> None:
    assert read_id(value, TAG, partition) == STRANGER
    assert "never wrote" in name(STRANGER)


@pytest.mark.parametrize(
    ("kind", "rows"),
    [
        (Kind.ACKS, [Ack(2**40, 5, 9, 1), Ack(1, Outcome.REFUSED, 2**32 - 1, 0)]),
        (Kind.READS, [Read(2**40, STRANGER, -1), Read(0, 1, 7)]),
        (Kind.BATCHES, [ReadBatch(1, 2**40, 3, 2**32 - 1)]),
        (Kind.MARKS, [Mark(MarkKind.FETCH, -1, 2**32 - 1, -1, 2**60, 5)]),
    ],
    ids=lambda value: value.prefix if isinstance(value, Kind) else "",
)
def test_rows_are_read_as_written(tmp_path: Path, kind: Kind, rows: list[tuple[int, ...]]) -> None:
    journal = Journal(str(tmp_path), kind, "c", 2)
    for row in rows:
        journal.add(1, *row)
    journal.close()
    assert list(read_rows(str(tmp_path), kind, "c", 1)) == rows
    assert list(read_rows(str(tmp_path), kind, "c", 0)) == []


def test_many_rows_are_written_before_close(tmp_path: Path) -> None:
    journal = Journal(str(tmp_path), Kind.ACKS, "1", 1)
    count = 20_000
    for number in range(count):
        journal.add(0, number, number * 2, 3, 4)
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) >= count * 20
    journal.close()
    rows = list(read_acks(str(tmp_path), "1", 0))
    assert [row.sequence for row in rows] == list(range(count))
    assert rows[-1] == Ack(count - 1, 2 * count - 2, 3, 4)


def write(folder: Path, kind: Kind, client: str, rows: list[tuple[int, ...]]) -> None:
    journal = Journal(str(folder), kind, client, 1)
    for row in rows:
        journal.add(0, *row)
    journal.close()


@pytest.mark.parametrize(
    ("kind", "client", "row", "finding"),
    [
        (Kind.ACKS, "4", Ack(2, 2, 1, 1), "lost"),
        (Kind.READS, "consumer", Read(2, value_id(4, 2), 0), "read, then gone"),
        (Kind.BATCHES, "reader", ReadBatch(0, 1, 0, 8), "changed after read"),
        (Kind.MARKS, "reader", Mark(MarkKind.LIST_LATEST, 0, 1, 3, -1, -1), "offsets backwards"),
        (
            Kind.MARKS,
            "consumer",
            Mark(MarkKind.OUT_OF_RANGE, -1, 1, -1, -1, -1),
            "offsets backwards",
        ),
        (None, "", Ack(0, 0, 0, 0), ""),
    ],
    ids=["acks", "reads", "batches", "marks", "out of range", "clean"],
)
def test_a_partition_is_checked_over_all_journals(
    tmp_path: Path, kind: Kind | None, client: str, row: tuple[int, ...], finding: str
) -> None:
    log = FinalLog(0)
    log.add_batch(ReadBatch(0, 1, 0, 9), [value_id(4, 0), value_id(4, 1)])
    write(tmp_path, Kind.ACKS, "4", [Ack(0, 0, 1, 1), Ack(1, 1, 1, 1)])
    write(
        tmp_path, Kind.READS, "consumer", [Read(0, value_id(4, 0), 0), Read(1, value_id(4, 1), 0)]
    )
    write(tmp_path, Kind.MARKS, "consumer", [])
    write(tmp_path, Kind.BATCHES, "reader", [ReadBatch(0, 1, 0, 9)])
    write(tmp_path, Kind.MARKS, "reader", [Mark(MarkKind.FETCH, 0, 1, 2, 2, 1)])
    if kind is not None:
        write(tmp_path, kind, client, [row])
    history = History(str(tmp_path), {4: [3]}, ["consumer"], ["reader"])
    assert dict(check_partition(log, history).counts) == ({finding: 1} if finding else {})
