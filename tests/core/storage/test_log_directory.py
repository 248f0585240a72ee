"""A whole log directory: start, stop, crash, checkpoints, creating and deleting logs (M27)."""

from copy import deepcopy

import pytest
from storage_kit import SMALL, Crash, StoppingDisk, batch, fill, write_offsets

from tidelog.core.storage import checkpoint, layout
from tidelog.core.storage.checkpoint import CheckpointError, MetaProperties
from tidelog.core.storage.layout import InvalidTopic
from tidelog.core.storage.log_config import LogConfig
from tidelog.core.storage.log_directory import DELETED_PARTITIONS_MAX, LogDirectory
from tidelog.core.types import TopicPartition
from tidelog.lab.memory_disk import MemoryDisk

ORDERS = TopicPartition("orders", 0)
BILLS = TopicPartition("bills", 3)
TOPIC_ID = bytes(range(16))


def small(_: TopicPartition) -> LogConfig:
    return SMALL


def two_logs(disk: MemoryDisk) -> LogDirectory:
    """`orders-0` with 20 records, log start 9; `bills-3` with 3."""
    directory = LogDirectory.open(disk, 0, small)
    fill(directory.create(ORDERS, TOPIC_ID, 0, SMALL), 20)
    orders = directory.logs[ORDERS]
    orders.epochs.drop_before(9)
    orders.write_epochs()
    orders.drop_before(9, 0)
    fill(directory.create(BILLS, TOPIC_ID, 0), 3)
    return directory


def folders(disk: MemoryDisk) -> list[str]:
    return [name for name in disk.list_dir("") if disk.is_dir(name)]


def test_a_new_directory_is_empty() -> None:
    directory = LogDirectory.open(MemoryDisk(), 0)
    assert (directory.logs, directory.clean, directory.broker_epoch) == ({}, False, -1)
    assert (directory.properties, directory.warnings) == (None, [])


def test_a_created_log_has_its_topic_id_on_disk() -> None:
    disk = MemoryDisk()
    log = LogDirectory.open(disk, 0).create(ORDERS, TOPIC_ID, 0)
    assert log.topic_id == TOPIC_ID
    assert (log.log_start_offset, log.log_end_offset, log.recovery_point) == (0, 0, 0)
    assert disk.list_dir("orders-0") == [
        f"{0:020d}.index",
        f"{0:020d}.log",
        f"{0:020d}.timeindex",
        "leader-epoch-checkpoint",
        "partition.metadata",
    ]
    assert LogDirectory.open(disk, 0).logs[ORDERS].topic_id == TOPIC_ID


def test_a_topic_cannot_escape_the_directory() -> None:
    with pytest.raises(InvalidTopic):
        LogDirectory.open(MemoryDisk(), 0).create(TopicPartition("../x", 0), TOPIC_ID, 0)


def test_a_clean_stop_and_start() -> None:
    disk = MemoryDisk()
    two_logs(disk).close({ORDERS: 15, BILLS: 3}, broker_epoch=12)
    assert disk.files[layout.RECOVERY_POINTS] == b"0\n2\norders 0 20\nbills 3 3\n"
    assert disk.files[layout.HIGH_WATERMARKS] == b"0\n2\norders 0 15\nbills 3 3\n"
    assert disk.files[layout.LOG_STARTS] == b"0\n1\norders 0 9\n"
    again = LogDirectory.open(disk, 0, small)
    assert (again.clean, again.broker_epoch) == (True, 12)
    assert again.high_watermarks == {ORDERS: 15, BILLS: 3}
    assert (again.logs[ORDERS].log_start_offset, again.logs[ORDERS].log_end_offset) == (9, 20)
    assert not any(report.changed for report in again.reports.values() if report.cuts)
    assert not disk.exists(layout.CLEAN_SHUTDOWN)


@pytest.mark.parametrize("damage", ["torn", "segment gone", "log gone"])
def test_records_that_are_missing_after_a_clean_stop_are_noticed(damage: str) -> None:
    disk = MemoryDisk()
    directory = two_logs(disk)
    active = directory.logs[ORDERS].segments.active
    directory.close({ORDERS: 20, BILLS: 3}, broker_epoch=12)
    if damage == "torn":
        disk.truncate(active.path, active.size - 1)
    elif damage == "segment gone":
        disk.delete(active.path)
    else:
        disk.delete_dir("orders-0")
    again = LogDirectory.open(disk, 0, small)
    ends = {"torn": 19, "segment gone": 14}
    assert {p: log.log_end_offset for p, log in again.logs.items()} == {
        BILLS: 3,
        **({ORDERS: ends[damage]} if damage in ends else {}),
    }
    if damage in ends:
        assert again.damaged[ORDERS].offset == ends[damage]
    else:
        assert again.broker_epoch == checkpoint.NO_BROKER_EPOCH


def test_a_crash_while_loading_counts_as_unclean() -> None:
    """KAFKA-10471: the mark is removed before anything is loaded."""
    disk = StoppingDisk()
    two_logs(disk).close({})
    disk.changes = 3
    with pytest.raises(Crash):
        LogDirectory.open(disk, 0, small)
    assert not LogDirectory.open(disk.survivor(), 0, small).clean


def test_a_crash_before_the_end_of_a_stop_counts_as_unclean() -> None:
    disk = StoppingDisk()
    directory = two_logs(disk)
    disk.changes = 10**6
    directory.close({})
    needed = 10**6 - disk.changes
    for changes in range(needed):
        disk = StoppingDisk()
        directory = two_logs(disk)
        disk.changes = changes
        with pytest.raises(Crash):
            directory.close({})
        again = LogDirectory.open(disk.survivor(), 0, small)
        assert again.clean == (changes == needed - 1)
        assert {p: log.log_end_offset for p, log in again.logs.items()} == {ORDERS: 20, BILLS: 3}


@pytest.mark.parametrize(
    ("checkpointed", "loaded"), [(None, 9), (0, 9), (9, 9), (15, 15), (20, 20), (99, 20)]
)
def test_the_high_watermark_lies_within_the_log(checkpointed: int | None, loaded: int) -> None:
    disk = MemoryDisk()
    directory = two_logs(disk)
    directory.write_log_starts()
    directory.write_high_watermarks({} if checkpointed is None else {ORDERS: checkpointed})
    assert LogDirectory.open(disk, 0, small).high_watermarks[ORDERS] == loaded


def test_a_high_watermark_beyond_the_log_is_corrected_on_disk() -> None:
    # Else records appended later would be found below it after the next restart, though
    # nobody ever confirmed them. Found by the simulator.
    disk = MemoryDisk()
    directory = LogDirectory.open(disk, 0, small)
    log = directory.create(ORDERS, TOPIC_ID, 0, SMALL)
    fill(log, 3)
    directory.write_high_watermarks({ORDERS: 70})
    restarted = LogDirectory.open(disk, 0, small)
    fill(restarted.logs[ORDERS], 5)
    assert LogDirectory.open(disk, 0, small).high_watermarks == {ORDERS: 3}


def test_a_log_start_beyond_the_log_is_corrected_on_disk() -> None:
    # Else the log would count as damaged after every restart. Found by the simulator.
    disk = MemoryDisk()
    fill(LogDirectory.open(disk, 0, small).create(ORDERS, TOPIC_ID, 0, SMALL), 3)
    write_offsets(disk, layout.LOG_STARTS, {ORDERS: 70})
    directory = LogDirectory.open(disk, 0, small)
    assert ORDERS in directory.damaged
    del directory.damaged[ORDERS]
    directory.save_damage()
    assert ORDERS not in LogDirectory.open(disk, 0, small).damaged


def test_a_recovery_point_beyond_the_log_is_corrected_on_disk() -> None:
    # Else what is appended later would count as flushed after the next crash, unread.
    disk = MemoryDisk()
    directory = LogDirectory.open(disk, 0, small)
    fill(directory.create(ORDERS, TOPIC_ID, 0, SMALL), 3)
    write_offsets(disk, layout.RECOVERY_POINTS, {ORDERS: 70})
    log = LogDirectory.open(disk, 0, small).logs[ORDERS]
    fill(log, 20)
    torn = log.segments.first
    disk.truncate(torn.path, torn.size - 1)
    again = LogDirectory.open(disk, 0, small).logs[ORDERS]
    assert again.log_end_offset == torn.next_offset() - 1


@pytest.mark.parametrize("restarted", [False, True])
def test_a_recreated_log_inherits_nothing_from_the_checkpoints(restarted: bool) -> None:
    # Else a crash before the next checkpoint would begin it anew at the old one's log start.
    disk = MemoryDisk()
    directory = two_logs(disk)
    directory.logs[ORDERS].flush()
    directory.write_recovery_points()
    directory.write_log_starts()
    directory.write_high_watermarks({ORDERS: 15, BILLS: 2})
    directory.set_cleaner_offset(ORDERS, 12)
    directory.delete(ORDERS, 0)
    if restarted:
        directory = LogDirectory.open(disk, 0, small)
    fill(directory.create(ORDERS, bytes(16), 0, SMALL), 5)
    again = LogDirectory.open(disk, 0, small)
    log = again.logs[ORDERS]
    assert (log.log_start_offset, log.log_end_offset, log.recovery_point) == (0, 5, 0)
    assert again.high_watermarks == {ORDERS: 0, BILLS: 2}
    assert checkpoint.read_offsets(disk, layout.CLEANER_OFFSETS) == ({}, [])


def test_recovery_reads_from_the_checkpoint_on() -> None:
    disk = MemoryDisk()
    directory = two_logs(disk)
    directory.logs[ORDERS].flush()
    directory.write_recovery_points()
    again = LogDirectory.open(disk, 0, small)
    assert again.reports[ORDERS].scanned_bytes == again.logs[ORDERS].segments.active.size
    assert again.logs[ORDERS].recovery_point == 20
    assert again.logs[BILLS].recovery_point == 0


def test_broken_checkpoints_count_as_empty_with_a_warning() -> None:
    disk = MemoryDisk()
    two_logs(disk).close({ORDERS: 20})
    for name in (layout.RECOVERY_POINTS, layout.LOG_STARTS, layout.HIGH_WATERMARKS):
        disk.write(name, b"0\n9\n")
    again = LogDirectory.open(disk, 0, small)
    assert len(again.warnings) == 3
    assert again.high_watermarks[ORDERS] == again.logs[ORDERS].log_start_offset == 7


def test_a_copy_of_a_compacted_log_may_have_gaps_too() -> None:
    """The follower did not compact the log; the checkpoint is written before the first gap."""
    disk = StoppingDisk()
    log = LogDirectory.open(disk, 0, small).create(ORDERS, TOPIC_ID, 0)
    log.append([batch(0), batch(1)], 0)
    assert not disk.exists(layout.CLEANER_OFFSETS)
    log.append([batch(5)], 0)
    assert disk.read(layout.CLEANER_OFFSETS, 0, 99) == b"0\n1\norders 0 0\n"
    written, disk.changes = disk.files[layout.CLEANER_OFFSETS], 1
    log.append([batch(9)], 0)  # once is enough
    assert disk.files[layout.CLEANER_OFFSETS] is written
    again = LogDirectory.open(disk.survivor(), 0, small)
    assert again.logs[ORDERS].log_end_offset == 10
    assert not again.reports[ORDERS].cuts


def test_a_first_dirty_offset_is_never_above_the_log_end() -> None:
    """Records appended there later were never cleaned (KAFKA-3330)."""
    disk = MemoryDisk()
    directory = two_logs(disk)
    directory.set_cleaner_offset(ORDERS, 15)
    directory.cut_cleaner_offset(ORDERS, 15)
    directory.cut_cleaner_offset(BILLS, 0)
    assert disk.read(layout.CLEANER_OFFSETS, 0, 99) == b"0\n1\norders 0 15\n"
    directory.cut_cleaner_offset(ORDERS, 12)
    assert disk.read(layout.CLEANER_OFFSETS, 0, 99) == b"0\n1\norders 0 12\n"
    write_offsets(disk, layout.CLEANER_OFFSETS, {ORDERS: 25})
    assert LogDirectory.open(disk, 0, small).cleaner_offsets == {ORDERS: 20}
    assert disk.read(layout.CLEANER_OFFSETS, 0, 99) == b"0\n1\norders 0 20\n"


def test_logs_that_were_compacted_may_have_gaps() -> None:
    def with_gap() -> MemoryDisk:
        disk = MemoryDisk()
        log = LogDirectory.open(disk, 0).create(ORDERS, TOPIC_ID, 0)
        log.append([batch(0), batch(5)], 0)
        disk.delete(layout.CLEANER_OFFSETS)
        disk.delete(layout.CHECKPOINT_CHECKSUMS)
        return disk

    assert LogDirectory.open(with_gap(), 0).logs[ORDERS].log_end_offset == 6
    assert LogDirectory.open(with_gap(), 0, small).logs[ORDERS].log_end_offset == 1
    disk = with_gap()
    write_offsets(disk, layout.CLEANER_OFFSETS, {ORDERS: 5})
    assert LogDirectory.open(deepcopy(disk), 0, small).logs[ORDERS].log_end_offset == 6
    disk.write(layout.CLEANER_OFFSETS, b"0\n2\norders 0 5\n")  # nobody knows what it said
    assert LogDirectory.open(disk, 0, small).logs[ORDERS].log_end_offset == 6


def test_deleted_log_is_removed_after_the_delay() -> None:
    disk = MemoryDisk()
    directory = two_logs(disk)
    directory.delete(ORDERS, now_ms=1000)
    marked = f"orders-0.{TOPIC_ID.hex()}-delete"
    assert folders(disk) == ["bills-3", marked]
    assert directory.logs.keys() == directory.high_watermarks.keys() == {BILLS}
    directory.create(ORDERS, bytes(16), 2000)
    directory.delete_due(60_999)
    assert marked in disk.list_dir("")
    directory.delete_due(61_000)
    assert folders(disk) == ["bills-3", "orders-0"]


def test_log_deleted_before_a_crash_is_removed_after_it() -> None:
    disk = MemoryDisk()
    two_logs(disk).delete(ORDERS, now_ms=1000)
    again = LogDirectory.open(disk, 2000, small)
    assert again.logs.keys() == {BILLS}
    again.delete_due(2000)
    assert folders(disk) == ["bills-3"]


def test_deleted_segments_are_removed_after_the_delay() -> None:
    disk = MemoryDisk()
    directory = two_logs(disk)
    assert any(name.endswith(".deleted") for name in disk.list_dir("orders-0"))
    directory.delete_due(59_999)
    assert any(name.endswith(".deleted") for name in disk.list_dir("orders-0"))
    directory.logs[ORDERS].offline = True
    directory.delete_due(60_000)
    directory.logs[ORDERS].offline = False
    assert any(name.endswith(".deleted") for name in disk.list_dir("orders-0"))
    directory.delete_due(60_000)
    assert not any(name.endswith(".deleted") for name in disk.list_dir("orders-0"))


def test_other_folders_are_not_changed() -> None:
    disk = MemoryDisk()
    two_logs(disk)
    for name in ("__cluster_metadata-0", "orders-1.0123456789abcdef-future", "lost+found"):
        disk.make_dir(name)
    disk.write("bootstrap.checkpoint", b"x")
    disk.write("core-1234", b"x")
    directory = LogDirectory.open(disk, 0, small)
    assert directory.logs.keys() == {ORDERS, BILLS}
    assert directory.warnings == ["core-1234 has a partition's name but is not a folder; ignored"]


def test_properties() -> None:
    disk = MemoryDisk()
    directory = LogDirectory.open(disk, 0)
    directory.write_properties(MetaProperties({"version": "1", "node.id": "4"}))
    again = LogDirectory.open(disk, 0)
    assert (
        again.properties == directory.properties == MetaProperties({"version": "1", "node.id": "4"})
    )
    disk.write(layout.META_PROPERTIES, b"version=9\n")
    with pytest.raises(CheckpointError):
        LogDirectory.open(disk, 0)


def test_names_of_deleted_logs_are_not_kept_for_ever() -> None:
    """Otherwise a broker would keep a name for each partition that was ever deleted."""
    disk = MemoryDisk()
    directory = two_logs(disk)
    directory.close({ORDERS: 15, BILLS: 3}, broker_epoch=12)
    directory.delete(BILLS, 0)
    for number in range(2 * DELETED_PARTITIONS_MAX):
        churned = TopicPartition(f"topic-{number}", 0)
        directory.create(churned, TOPIC_ID, 0)
        directory.delete(churned, 0)
    assert len(directory._deleted_partitions) <= DELETED_PARTITIONS_MAX
    assert disk.files[layout.RECOVERY_POINTS] == b"0\n1\norders 0 20\n"
    assert disk.files[layout.HIGH_WATERMARKS] == b"0\n1\norders 0 15\n"
