"""Reading a whole log: from its leader, and from the disk of a stopped broker."""

from itertools import chain
from pathlib import Path

import pytest

from tidelog.apps.verify.checker.findings import Findings
from tidelog.apps.verify.journals import ReadBatch
from tidelog.apps.verify.record_value import ABSENT, STRANGER, pack, value_id
from tidelog.apps.verify.whole_logs import stored_batches, value_ids
from tidelog.core.record.compression import Codec
from tidelog.core.record.encoder import Producer, encode_batch
from tidelog.core.record.record import Header, Record
from tidelog.core.record.record_batch import CONTROL, RecordBatch, parse
from tidelog.core.types import TopicPartition

TAG = b"run-0001"
PLACE = TopicPartition("orders", 3)


def record(sequence: int, **changed: object) -> Record:
    made = Record(None, pack(TAG, 1, 3, sequence, sequence), 1000 + sequence)
    for name, value in changed.items():
        setattr(made, name, value)
    return made


def batch(
    records: list[Record], codec: Codec = Codec.NONE, deltas: list[int] | None = None
) -> RecordBatch:
    return parse(encode_batch(records, attributes=codec, base_offset=40, offset_deltas=deltas))


def ids(made: RecordBatch) -> tuple[list[int], dict[str, int]]:
    found = Findings()
    values = value_ids(made, TAG, 3, found)
    return values, dict(found.counts)


OURS = [value_id(1, n) for n in range(300)]


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP, Codec.ZSTD], ids=str)
def test_the_values_of_a_batch(codec: Codec) -> None:
    assert ids(batch([record(n) for n in range(300)], codec)) == (OURS, {})


@pytest.mark.parametrize(
    ("odd", "expected"),
    [
        (record(1, value=b"something else"), STRANGER),
        (record(1, value=None), STRANGER),
        (record(1, value=pack(TAG, 1, 4, 1, 1)), STRANGER),
        (record(1, value=b""), STRANGER),
        (record(1, key=b"k"), OURS[1]),
        (record(1, headers=(Header("a", b"b"),)), OURS[1]),
        (record(1, value=b"x" + pack(TAG, 1, 3, 1, 1)), STRANGER),
    ],
    ids=["stranger", "null", "another partition", "empty", "key", "header", "longer"],
)
def test_one_foreign_record_in_a_batch(odd: Record, expected: int) -> None:
    assert ids(batch([record(0), odd, record(2)])) == ([OURS[0], expected, OURS[2]], {})


def test_compacted_offsets_are_absent() -> None:
    made = batch([record(0), record(1)], deltas=[0, 3])
    assert ids(made) == ([OURS[0], ABSENT, ABSENT, OURS[1]], {})


def test_control_record_is_not_a_record() -> None:
    data = encode_batch(
        [Record(b"\x00\x00\x00\x01", b"\x00\x00\x00\x00\x00\x00", 1)], attributes=CONTROL
    )
    assert ids(parse(data)) == ([ABSENT], {})


@pytest.mark.parametrize("at", [61, 70, -1], ids=["first length", "first record", "last byte"])
def test_a_flipped_bit_is_corrupt(at: int) -> None:
    data = encode_batch([record(n) for n in range(3)], producer=Producer(7, 0, 0))
    data[at] ^= 0x10
    assert ids(parse(data)) == ([ABSENT] * 3, {"corrupt": 1})


# -- on disk


def write_log(folder: Path, *segments: tuple[int, list[bytes]]) -> None:
    (folder / "orders-3").mkdir(parents=True)
    for base, batches in segments:
        (folder / "orders-3" / f"{base:020d}.log").write_bytes(b"".join(batches))


def stored(base: int, count: int, epoch: int = 0) -> bytes:
    records = [record(base + n) for n in range(count)]
    return bytes(encode_batch(records, base_offset=base, leader_epoch=epoch))


def test_batches_are_read_segment_by_segment(tmp_path: Path) -> None:
    batches = [stored(0, 2), stored(2, 1), stored(3, 4, 5), stored(7, 1, 5)]
    write_log(tmp_path, (3, batches[2:]), (0, batches[:2]))
    (tmp_path / "orders-3" / f"{9:020d}.log.deleted").write_bytes(stored(9, 1))
    (tmp_path / "orders-3" / f"{0:020d}.index").write_bytes(b"")
    found = list(stored_batches(str(tmp_path), PLACE))
    assert [each.data for each in found] == batches
    assert all(each.sound for each in found)
    assert [each.batch[:3] for each in found] == [(0, 1, 0), (2, 2, 0), (3, 6, 5), (7, 7, 5)]
    assert found[2].batch == ReadBatch(3, 6, 5, parse(batches[2]).crc)


def test_missing_folder_has_no_batches(tmp_path: Path) -> None:
    assert list(stored_batches(str(tmp_path), PLACE)) == []


def test_damage_is_reported_and_ends_the_segment(tmp_path: Path) -> None:
    damaged = bytearray(chain.from_iterable([stored(0, 2), stored(2, 2), stored(4, 2)]))
    damaged[len(stored(0, 2)) + 80] ^= 1
    write_log(tmp_path, (0, [bytes(damaged)]))
    found = list(stored_batches(str(tmp_path), PLACE))
    assert [each.sound for each in found] == [True, False]
