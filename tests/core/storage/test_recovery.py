"""Recovery after a crash: what is truncated, rebuilt and reported (M04, M21)."""

from zlib import crc32

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from storage_kit import append, batch, contents, fill, names, new_log, reopen

from tidelog.core.record.control import ControlType
from tidelog.core.record.crc32c import crc32c
from tidelog.core.record.encoder import Producer, encode_marker
from tidelog.core.record.record_batch import TRANSACTIONAL, UINT32, parse
from tidelog.core.storage import layout
from tidelog.core.storage.log import Log
from tidelog.core.storage.log_config import LogConfig
from tidelog.core.storage.recovery import UnsupportedFormat
from tidelog.core.types import EpochEntry
from tidelog.lab.memory_disk import MemoryDisk

FIRST, SECOND, THIRD = (f"orders-0/{base:020d}.log" for base in (0, 7, 14))
EPOCHS = "orders-0/leader-epoch-checkpoint"


@pytest.fixture
def disk() -> MemoryDisk:
    """A disk with twenty records in three segments, written and not flushed."""
    disk = MemoryDisk()
    fill(new_log(disk), 20)
    assert sorted(path for path in disk.files if path.endswith(".log")) == [FIRST, SECOND, THIRD]
    return disk


def record_size() -> int:
    return batch(0).size


def test_an_undamaged_log_is_opened_unchanged(disk: MemoryDisk) -> None:
    log, report = reopen(disk)
    assert (log.log_start_offset, log.log_end_offset, log.recovery_point) == (0, 20, 0)
    assert report.scanned_bytes == 20 * record_size()
    assert (report.log_end_offset, report.cuts, report.deleted) == (20, [], [])
    assert report.damage is None


def test_log_is_read_from_the_recovery_point_on(disk: MemoryDisk) -> None:
    disk.files[FIRST][100] ^= 1
    log, report = reopen(disk, recovery_point=7)
    assert log.log_end_offset == 20
    assert report.scanned_bytes == 13 * record_size()


@pytest.mark.parametrize(("checkpointed", "settled"), [(0, 0), (5, 5), (20, 20), (99, 20)])
def test_the_recovery_point_is_never_raised_without_a_flush(
    disk: MemoryDisk, checkpointed: int, settled: int
) -> None:
    assert reopen(disk, recovery_point=checkpointed)[0].recovery_point == settled


def test_after_a_clean_stop_everything_counts_as_flushed(disk: MemoryDisk) -> None:
    reopen(disk)[0].close()
    log, report = reopen(disk, clean=True)
    assert log.recovery_point == 20
    assert report.scanned_bytes == 0
    assert not report.changed
    assert report.lines() == []


@pytest.mark.parametrize("kept", [0, 11, 16, 17, 60, 70], ids=lambda n: f"{n} bytes")
def test_a_torn_tail_is_cut(disk: MemoryDisk, kept: int) -> None:
    last = 5 * record_size()
    del disk.files[THIRD][last + kept :]
    log, report = reopen(disk)
    assert log.log_end_offset == 19
    assert disk.size(THIRD) == last
    assert [cut.to_size for cut in report.cuts] == ([last] if kept else [])
    assert len(contents(log)) == 19


@pytest.mark.parametrize(
    ("at", "reason"),
    [
        (8, "batch of "),
        (16, "unsupported magic 3"),
        (17, "checksum differs"),
        (70, "checksum differs"),
        (7, "offset 8 instead of 9"),
        (5, "offset 65545 instead of 9"),
    ],
    ids=["length", "magic", "crc", "records", "offset back", "offset ahead"],
)
def test_a_flipped_bit_ends_the_log_and_later_segments_are_deleted(
    disk: MemoryDisk, at: int, reason: str
) -> None:
    disk.files[SECOND][2 * record_size() + at] ^= 1
    log, report = reopen(disk)
    assert log.log_end_offset == 9
    assert [cut.path for cut in report.cuts] == [SECOND]
    assert report.cuts[0].reason.startswith(reason)
    assert report.deleted == [THIRD]
    assert not any(name.startswith(f"{14:020d}.log") for name in names(disk))
    told = f"{SECOND}: truncated from {7 * record_size()} to {2 * record_size()} bytes: "
    assert report.lines()[:2] == [told + report.cuts[0].reason, f"{THIRD}: deleted"]
    assert report.damage is not None
    assert report.damage.offset == 9
    fill(log, 2)
    assert contents(log)[-1][:8] == (10).to_bytes(8)


def test_an_offset_outside_the_segments_range_ends_the_log(disk: MemoryDisk) -> None:
    far = batch(2**32)
    disk.append(THIRD, [far.view()])
    log, report = reopen(disk)
    assert log.log_end_offset == 20
    assert report.cuts[0].reason == "offset 4294967296 instead of 20"


def test_a_gap_between_segments_ends_the_log(disk: MemoryDisk) -> None:
    """A power failure removed the end of one segment, but not the next segment."""
    del disk.files[SECOND][6 * record_size() :]
    log, report = reopen(disk)
    assert log.log_end_offset == 13
    assert report.deleted == [THIRD]
    assert "ends at offset 13, the next segment starts at 14" in report.warnings[0]


@pytest.mark.parametrize("compacted", [False, True])
def test_a_deleted_segment_that_reappeared_is_deleted_again(
    disk: MemoryDisk, compacted: bool
) -> None:
    """Its deletion was not durable when the power failed; its replacement was."""
    disk.append(SECOND, [batch(14).view(), batch(15).view()])
    log, report = reopen(disk, compacted=compacted)
    assert log.log_end_offset == 16
    assert report.deleted == [THIRD]
    assert "ends at offset 16, the next segment starts at 14" in report.warnings[0]


@pytest.mark.parametrize("recovery_point", [0, 3, 7, 20])
def test_records_of_a_later_segment_are_damage_in_a_compacted_log_too(
    disk: MemoryDisk, recovery_point: int
) -> None:
    """Otherwise the missing offsets count as compacted, and the segments after them are deleted."""
    own = disk.read(FIRST, 0, disk.size(FIRST))
    disk.write(FIRST, disk.read(THIRD, 0, disk.size(THIRD)))
    log, report = reopen(disk, compacted=True, cleaned_upto=0, recovery_point=recovery_point)
    assert report.damage is not None
    assert (report.damage.offset, log.log_end_offset, report.deleted) == (0, 20, [])
    disk.write(FIRST, own)
    log, report = reopen(disk, compacted=True, cleaned_upto=0, recovery_point=recovery_point)
    assert (report.damage, len(contents(log))) == (None, 20)


@pytest.mark.parametrize("how", ["policy", "cleaned before", "below the recovery point"])
def test_gaps_of_compaction_are_kept(disk: MemoryDisk, how: str) -> None:
    del disk.files[SECOND][: record_size()]
    del disk.files[SECOND][5 * record_size() :]
    log, _ = reopen(
        disk,
        LogConfig(cleanup_compact=how == "policy"),
        compacted=how == "cleaned before",
        recovery_point=14 if how == "below the recovery point" else 0,
    )
    assert log.log_end_offset == 20


def test_offsets_never_go_back_even_with_gaps(disk: MemoryDisk) -> None:
    disk.files[THIRD][record_size() + 7] ^= 1
    log, report = reopen(disk, compacted=True)
    assert log.log_end_offset == 15
    assert report.cuts[0].reason == "offset 14 instead of 15"


def test_sound_records_of_an_old_format_are_refused_not_cut(disk: MemoryDisk) -> None:
    body = b"\x01\x00" + bytes(8) + b"\xff\xff\xff\xff" + (5).to_bytes(4) + b"hello"
    old = (20).to_bytes(8) + (len(body) + 4).to_bytes(4) + crc32(body).to_bytes(4) + body
    old += bytes(61)
    disk.append(THIRD, [old])
    size = disk.size(THIRD)
    with pytest.raises(UnsupportedFormat, match="format 1"):
        reopen(disk)
    assert disk.size(THIRD) == size


def test_a_magic_byte_turned_into_an_old_one_is_damage(disk: MemoryDisk) -> None:
    disk.files[THIRD][16] = 1
    log, report = reopen(disk)
    assert log.log_end_offset == 14
    assert report.cuts[0].reason == "unsupported magic 1"


def test_a_tail_of_zeros_is_cut(disk: MemoryDisk) -> None:
    """A file system may keep the length and lose the bytes; zeros have the CRC of no data."""
    disk.append(THIRD, [bytes(500)])
    log, report = reopen(disk)
    assert log.log_end_offset == 20
    assert report.cuts[0].reason == "unsupported magic 0"


@pytest.mark.parametrize("clean", [False, True])
def test_missing_indexes_are_rebuilt(disk: MemoryDisk, clean: bool) -> None:
    reopen(disk)[0].close()
    good = dict(disk.files)
    for base in (0, 14):
        del disk.files[f"orders-0/{base:020d}.index"]
        del disk.files[f"orders-0/{base:020d}.timeindex"]
    _, report = reopen(disk, clean=clean)
    assert [path[-8:] for path in report.rebuilt] == ["00.index", "14.index"]
    assert disk.files == good


def test_a_missing_index_over_a_broken_log_ends_the_log_there(disk: MemoryDisk) -> None:
    reopen(disk)[0].close()
    del disk.files[f"orders-0/{7:020d}.index"]
    disk.files[SECOND][3 * record_size() + 16] = 9
    log, report = reopen(disk)
    assert log.log_end_offset == 10
    assert (report.cuts[0].path, report.deleted) == (SECOND, [THIRD])


@pytest.mark.parametrize("flipped", [0, 2, 3])
def test_a_missing_index_over_offsets_out_of_place_ends_the_log_there(
    disk: MemoryDisk, flipped: int
) -> None:
    """The checksum does not cover a batch's base offset."""
    reopen(disk)[0].close()
    del disk.files[f"orders-0/{7:020d}.index"]
    disk.files[SECOND][3 * record_size() + flipped] ^= 0xC0
    log, report = reopen(disk)
    assert log.log_end_offset == 10
    assert (report.cuts[0].path, report.deleted) == (SECOND, [THIRD])


def test_index_files_without_a_log_are_deleted(disk: MemoryDisk) -> None:
    for kind in layout.SEGMENT_KINDS[1:]:
        disk.write(f"orders-0/{99:020d}{kind}", b"")
    _, report = reopen(disk)
    assert len(report.deleted) == 3
    assert not any(name.startswith(f"{99:020d}") for name in names(disk))


def test_a_torn_log_is_read_even_if_the_stop_was_clean(disk: MemoryDisk) -> None:
    reopen(disk)[0].close()
    del disk.files[THIRD][-20:]
    log, report = reopen(disk, clean=True)
    assert log.log_end_offset == 19
    assert len(report.cuts) == 1
    assert "the log is read from here on" in report.warnings[0]


def test_an_empty_directory_becomes_an_empty_log() -> None:
    log, report = reopen(MemoryDisk(), log_start_offset=42)
    assert (log.log_start_offset, log.log_end_offset, log.topic_id) == (42, 42, None)
    assert not report.changed


def test_a_log_start_beyond_the_log_end_is_ignored(disk: MemoryDisk) -> None:
    log, report = reopen(disk, log_start_offset=50, known_end=50)
    assert (log.log_start_offset, log.log_end_offset) == (0, 20)
    assert report.deleted == []
    assert "ends at offset 20, below log start 50 in its checkpoint" in report.warnings[0]
    assert report.damage is not None
    assert report.damage.reason == "the log ends at offset 20, its checkpoints say 50"


def test_the_log_start_is_from_the_checkpoint_or_the_first_segment(disk: MemoryDisk) -> None:
    log, report = reopen(disk, log_start_offset=9)
    assert (log.log_start_offset, report.deleted) == (9, [FIRST])
    assert reopen(disk, log_start_offset=3)[0].log_start_offset == 7


def test_opening_twice_changes_nothing(disk: MemoryDisk) -> None:
    del disk.files[THIRD][-20:]
    reopen(disk)
    before = {path: bytes(data) for path, data in disk.files.items()}
    _, report = reopen(disk)
    assert disk.files == before
    assert not report.changed


# -- leader epochs


def with_epochs(log: Log) -> None:
    """Epoch 0 at 0, 1 at 5, 3 at 12."""
    log.restart_at(0)
    log.epochs.clear()
    for epoch, count in ((0, 5), (1, 7), (3, 8)):
        fill(log, count, epoch=epoch)


ALL_EPOCHS = [EpochEntry(0, 0), EpochEntry(1, 5), EpochEntry(3, 12)]


@pytest.fixture
def lineage(disk: MemoryDisk) -> MemoryDisk:
    log, _ = reopen(disk)
    with_epochs(log)
    log.close()
    return disk


@pytest.mark.parametrize("clean", [False, True])
@pytest.mark.parametrize(
    ("data", "told"),
    [
        (None, []),
        (b"0\n4\n0 0\n1 5\n3 12\n", ["has 3 entries, the count line says 4"]),
        (b"7\n0\n", ["unknown version 7, expected 0"]),
    ],
    ids=["missing", "wrong count", "wrong version"],
)
def test_epochs_without_a_sound_file_come_from_the_log(
    lineage: MemoryDisk, clean: bool, data: bytes | None, told: list[str]
) -> None:
    del lineage.files[EPOCHS]
    if data is not None:
        lineage.write(EPOCHS, data)
    log, report = reopen(lineage, clean=clean)
    assert log.epochs.entries == ALL_EPOCHS
    assert report.warnings == [f"{EPOCHS}: {problem}; rebuilt from the log" for problem in told]
    assert report.rebuilt == [EPOCHS]
    assert lineage.files[EPOCHS] == b"0\n3\n0 0\n1 5\n3 12\n"


def test_epochs_above_the_log_end_and_below_its_start_are_removed(lineage: MemoryDisk) -> None:
    """The file may hold more than the log after a crash (KAFKA-16541)."""
    lineage.write(EPOCHS, b"0\n4\n0 0\n1 5\n3 12\n9 20\n")
    log, report = reopen(lineage, log_start_offset=6)
    assert log.epochs.entries == [EpochEntry(1, 6), EpochEntry(3, 12)]
    assert lineage.files[EPOCHS] == b"0\n2\n1 6\n3 12\n"
    assert report.rebuilt == []


def test_epochs_missing_from_the_file_are_found_by_the_scan(lineage: MemoryDisk) -> None:
    """Epoch 0 counts too (KAFKA-10432)."""
    lineage.write(EPOCHS, b"0\n0\n")
    assert reopen(lineage)[0].epochs.entries == ALL_EPOCHS


def test_a_log_without_epochs_has_an_empty_list() -> None:
    disk = MemoryDisk()
    log = new_log(disk)
    log.append([batch(0, epoch=-1)], 0)
    assert reopen(disk)[0].epochs.entries == []


# -- producers


def produce(log: Log, count: int, producer_id: int = 7) -> None:
    for _ in range(count):
        offset = log.log_end_offset
        log.append([batch(offset, producer=Producer(producer_id, 0, offset))], 0)


@pytest.mark.parametrize("clean", [False, True])
@pytest.mark.parametrize("count", [3, 8, 20, 21, 22])
def test_the_last_five_batches_are_known_after_a_restart(clean: bool, count: int) -> None:
    disk = MemoryDisk()
    log = new_log(disk)
    produce(log, count)
    if clean:
        log.close()
    again, _ = reopen(disk, clean=clean)
    assert again.producers.end_offset == count
    assert again.producers.producers[7].batches == log.producers.producers[7].batches


def test_producer_state_before_the_recovery_point_is_from_the_snapshot() -> None:
    disk = MemoryDisk()
    log = new_log(disk)
    produce(log, 3, producer_id=1)
    produce(log, 17, producer_id=2)
    disk.files[FIRST][100] ^= 1  # not read: it lies below the recovery point
    again, _ = reopen(disk, recovery_point=14)
    assert again.producers.producers.keys() == {1, 2}


@pytest.mark.parametrize("clean", [False, True])
def test_damaged_snapshots_are_skipped(clean: bool) -> None:
    disk = MemoryDisk()
    log = new_log(disk)
    produce(log, 20)
    log.close()
    for base in (14, 20):
        disk.files[f"orders-0/{base:020d}.snapshot"][-1] ^= 1
    again, _ = reopen(disk, clean=clean, recovery_point=14)
    assert again.producers.producers[7].last_sequence == 19
    assert again.producers.end_offset == 20


def test_snapshots_beyond_the_log_are_deleted(disk: MemoryDisk) -> None:
    reopen(disk)[0].close()
    del disk.files[THIRD][3 * record_size() :]
    reopen(disk)
    assert snapshots_of(disk) == [7, 14]


def snapshots_of(disk: MemoryDisk) -> list[int]:
    return [int(name[:20]) for name in names(disk) if name.endswith(".snapshot")]


@pytest.mark.parametrize(("producer_id", "snapshots"), [(7, [7, 14, 20]), (-1, [7, 14])])
def test_after_a_crash_the_end_has_a_snapshot_where_producers_are_known(
    producer_id: int, snapshots: list[int]
) -> None:
    """Without producers no snapshot is needed: only the newest segment is replayed."""
    disk = MemoryDisk()
    produce(new_log(disk), 20, producer_id=producer_id)
    again, _ = reopen(disk)
    assert snapshots_of(disk) == snapshots
    assert bool(again.producers.producers) is (producer_id >= 0)


def open_transaction(log: Log, producer_id: int) -> None:
    producer = Producer(producer_id, 0, 0)
    log.append([batch(log.log_end_offset, producer=producer, attributes=TRANSACTIONAL)], 0)


def abort(log: Log, producer_id: int) -> None:
    marker = parse(encode_marker(ControlType.ABORT, Producer(producer_id, 0), 0, 5))
    marker.assign(log.log_end_offset, 0)
    log.append([marker], 0)


@pytest.mark.parametrize("damage", ["none", "lost", "torn"])
def test_aborted_transactions_are_rebuilt(damage: str) -> None:
    disk = MemoryDisk()
    log = new_log(disk)
    open_transaction(log, 1)
    fill(log, 8)
    abort(log, 1)
    open_transaction(log, 2)
    log.close()
    expected = log.aborted_transactions(0, 100)
    assert len(expected) == 1
    path = f"orders-0/{7:020d}.txnindex"
    if damage == "torn":
        disk.append(path, [b"x"])
    elif damage == "lost":
        disk.delete(path)
    again, report = reopen(disk, clean=damage == "torn")
    assert again.aborted_transactions(0, 100) == expected
    assert again.producers.open_transactions == {2: 10}
    assert len(report.warnings) == (damage == "torn")


@pytest.fixture
def marked() -> MemoryDisk:
    """A stopped log whose last batch is an abort marker that has lost its key."""
    disk = MemoryDisk()
    log = new_log(disk)
    produce(log, 2)
    open_transaction(log, 1)
    abort(log, 1)
    log.close()
    file = disk.files[FIRST]
    marker = len(file) - len(encode_marker(ControlType.ABORT, Producer(1, 0), 0, 5))
    file[marker + 65] = 1  # the length of the key: null
    return disk


def test_a_damaged_marker_does_not_prevent_a_clean_start(marked: MemoryDisk) -> None:
    log, _ = reopen(marked, clean=True)
    assert log.log_end_offset == 4
    assert log.producers.producers[7].last_sequence == 1


def test_a_damaged_marker_that_has_to_be_replayed_is_damage(marked: MemoryDisk) -> None:
    del marked.files[f"orders-0/{4:020d}.snapshot"]
    log, report = reopen(marked, clean=True)
    assert (log.log_end_offset, log.producers.end_offset) == (4, 4)
    assert report.damage is not None
    assert report.damage.offset == 3
    assert "transaction marker at offset 3: record length" in report.damage.reason


def test_empty_marker_ends_the_log(marked: MemoryDisk) -> None:
    file = marked.files[FIRST]
    marker = len(file) - len(encode_marker(ControlType.ABORT, Producer(1, 0), 0, 5))
    UINT32.pack_into(file, marker + 17, crc32c(bytes(file[marker + 21 :])))
    log, report = reopen(marked)
    assert log.log_end_offset == log.producers.end_offset == 3
    assert log.producers.open_transactions == {1: 2}
    assert "transaction marker: " in report.cuts[0].reason


# -- properties


@settings(max_examples=120, deadline=None)
@given(
    st.lists(st.tuples(st.integers(1, 3), st.integers(0, 60)), min_size=1, max_size=12),
    st.data(),
)
def test_any_damage_to_the_last_segment_leaves_a_prefix_of_whole_batches(
    shapes: list[tuple[int, int]], data: st.DataObject
) -> None:
    disk = MemoryDisk()
    log = new_log(disk)
    for count, size in shapes:
        append(log, [batch(log.log_end_offset, count, size=size, epoch=log.log_end_offset // 9)])
    before = contents(log)
    intact = list(log.segments.active.spans())
    active = log.segments.active
    file = disk.files[active.path]
    at = data.draw(st.integers(0, len(file) - 1), label="byte")
    if data.draw(st.booleans(), label="cut"):
        del file[at:]
    else:
        file[at] ^= 1 << data.draw(st.integers(0, 7), label="bit")
    recovery_point = data.draw(st.integers(0, active.base_offset), label="recovery point")
    again, _ = reopen(disk, recovery_point=recovery_point)
    after = contents(again)
    assert after == before[: len(after)]
    undamaged = sum(span.position + span.size <= at for span in intact)
    assert len(after) >= len(before) - len(intact) + undamaged
    fill(again, 1, epoch=99)
    assert contents(reopen(disk)[0]) == contents(again)
