"""Compaction removes aborted records, and markers of transactions without records."""

import pytest
from cleaning_kit import (
    COMPACT,
    all_batches,
    close_segment,
    compact,
    pairs,
    plan_of,
    put,
    put_marker,
)
from storage_kit import names, new_log, reopen

from tidelog.core.lineage.transaction_index import AbortedTransaction
from tidelog.core.record.control import ControlType
from tidelog.core.record.encoder import Producer
from tidelog.core.record.record_batch import HEADER_SIZE, TRANSACTIONAL, RecordBatch
from tidelog.core.storage.log import Log
from tidelog.lab.memory_disk import MemoryDisk

ONE, TWO = Producer(1, 0, 0), Producer(2, 0, 0)
ABORT, COMMIT = ControlType.ABORT, ControlType.COMMIT


@pytest.fixture
def disk() -> MemoryDisk:
    return MemoryDisk()


@pytest.fixture
def log(disk: MemoryDisk) -> Log:
    return new_log(disk, COMPACT)


def transact(
    log: Log, producer: Producer, end: ControlType, *written: tuple[str, str | None]
) -> Producer:
    put(log, *written, attributes=TRANSACTIONAL, producer=producer)
    put_marker(log, end, producer)
    return producer._replace(sequence=producer.sequence + len(written))


def markers(log: Log) -> list[RecordBatch]:
    return [one for one in all_batches(log) if one.is_control]


def test_aborted_records_replace_no_earlier_record(disk: MemoryDisk, log: Log) -> None:
    one = transact(log, ONE, COMMIT, ("a", "1"), ("b", "1"))
    one = transact(log, one, ABORT, ("a", "taken back"))
    two = transact(log, TWO, ABORT, ("c", "taken back"))
    transact(log, one, COMMIT, ("b", "2"))
    transact(log, two, COMMIT, ("d", "1"))
    close_segment(log)
    compact(disk, log)
    assert pairs(log) == [("a", "1"), ("b", "2"), ("d", "1")]


def test_an_abort_whose_marker_is_far_away_is_known(disk: MemoryDisk, log: Log) -> None:
    """The records are in a closed segment, the marker is in the active one."""
    put(log, ("a", "1"))
    put(log, ("a", "taken back"), attributes=TRANSACTIONAL, producer=ONE)
    close_segment(log)
    put_marker(log, ABORT, ONE)
    compact(disk, log)
    assert pairs(log) == [("a", "1")]


def test_an_earlier_abort_is_not_the_next_transaction(disk: MemoryDisk, log: Log) -> None:
    """The first pass begins after the marker, and must not wait for it."""
    one = transact(log, ONE, ABORT, ("a", "taken back"))
    close_segment(log)
    first_dirty = compact(disk, log).end_offset
    transact(log, one, COMMIT, ("a", "1"))
    transact(log, one._replace(sequence=2), COMMIT, ("a", "2"))
    close_segment(log)
    compact(disk, log, first_dirty)
    assert pairs(log) == [("a", "2")]


def test_the_index_of_aborted_transactions_follows_the_markers(disk: MemoryDisk, log: Log) -> None:
    transact(log, ONE, ABORT, ("a", "taken back"))
    close_segment(log)
    entry = AbortedTransaction(1, 0, 1, 2)
    assert log.aborted_transactions(0, 2) == [entry]
    compact(disk, log)
    assert log.aborted_transactions(0, 2) == [entry], "the marker is still there"
    assert f"{0:020d}.txnindex" in names(disk)
    put(log, ("b", "1"), producer=ONE._replace(sequence=1))
    close_segment(log)
    compact(disk, log, now_ms=5000)
    assert log.aborted_transactions(0, 2) == [entry], "so was the header of its last batch"
    close_segment(log)
    compact(disk, log, now_ms=5000)
    assert log.aborted_transactions(0, 2) == [], "nothing of it is left"
    assert f"{0:020d}.txnindex" not in names(disk)
    again, _ = reopen(disk, COMPACT, recovery_point=log.log_end_offset)
    assert again.aborted_transactions(0, 2) == []


@pytest.mark.parametrize("end", [ABORT, COMMIT])
def test_a_marker_is_removed_after_its_records_and_its_retention_time(
    disk: MemoryDisk, log: Log, end: ControlType
) -> None:
    transact(log, ONE, end, ("a", "1"))
    transact(log, ONE._replace(sequence=1), COMMIT, ("a", "2"))
    put(log, ("a", "3"))
    close_segment(log)
    compact(disk, log, now_ms=5000)
    assert len(markers(log)) == 2, "the records were there when they were met"
    close_segment(log)
    compact(disk, log, now_ms=5000)
    first, second = markers(log)
    assert first.has_delete_horizon
    assert first.base_timestamp == 6000
    assert first.max_timestamp == 1000
    assert not second.has_delete_horizon, "the header of the producer's last batch is kept"
    close_segment(log)
    compact(disk, log, now_ms=6000)
    assert len(markers(log)) == 1


def test_a_producer_of_which_only_a_marker_is_known_keeps_it(disk: MemoryDisk, log: Log) -> None:
    """The marker has the producer's epoch, which fences earlier epochs."""
    put_marker(log, COMMIT, Producer(9, 4, -1))
    close_segment(log)
    for now_ms in (5000, 6000, 7000):
        compact(disk, log, now_ms=now_ms)
        close_segment(log)
    (marker,) = markers(log)
    assert (marker.producer_id, marker.producer_epoch, marker.size) == (9, 4, HEADER_SIZE)


def test_open_transactions_are_not_touched(log: Log) -> None:
    put(log, ("a", "1"), attributes=TRANSACTIONAL, producer=ONE)
    close_segment(log)
    unstable = log.producers.first_unstable_offset(log.log_end_offset)
    assert unstable == 0
    assert plan_of(log, last_stable=unstable) is None
