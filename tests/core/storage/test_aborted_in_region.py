"""A reader gets the aborted transactions of the records that it reads, not of all later ones."""

import pytest
from storage_kit import SMALL, batch, fill, new_log

from tidelog.core.lineage.transaction_index import AbortedTransaction
from tidelog.core.record.control import ControlType
from tidelog.core.record.encoder import Producer, encode_marker
from tidelog.core.record.record_batch import TRANSACTIONAL, batches, parse
from tidelog.core.storage.log import Log
from tidelog.lab.memory_disk import MemoryDisk

TRANSACTIONS = 40


def append_aborted(log: Log, producer_id: int) -> None:
    """Append a transaction of one record, another record, and the abort marker."""
    producer = Producer(producer_id, 0, 0)
    log.append([batch(log.log_end_offset, producer=producer, attributes=TRANSACTIONAL)], 0)
    fill(log, 1)
    marker = parse(encode_marker(ControlType.ABORT, producer, 0, 5))
    marker.assign(log.log_end_offset, 0)
    log.append([marker], 0)


@pytest.fixture(scope="module")
def log() -> Log:
    log = new_log(MemoryDisk())
    for producer_id in range(TRANSACTIONS):
        append_aborted(log, producer_id)
    return log


def read(log: Log, offset: int, limit: int) -> tuple[list[AbortedTransaction], int]:
    """Return the listed transactions, and the end of the records that were read."""
    region = log.read(offset, limit)
    *_, last = batches(log.read_bytes(region))
    end = last.next_offset
    return log.aborted_in(region, offset, log.log_end_offset), end


@pytest.mark.parametrize("limit", [1, 100, 250, 10_000])
def test_the_transactions_of_what_was_read_are_listed(log: Log, limit: int) -> None:
    every = log.aborted_transactions(0, log.log_end_offset)
    assert len(every) == TRANSACTIONS
    for offset in range(log.log_end_offset):
        listed, end = read(log, offset, limit)
        needed = [each for each in every if each.last_offset >= offset and each.first_offset < end]
        # More transactions only up to the next index entry.
        assert listed[: len(needed)] == needed
        assert len(listed) <= len(needed) + 3


def test_later_segments_are_not_listed(log: Log) -> None:
    first, second = (segment.base_offset for segment in list(log.segments)[:2])
    listed, end = read(log, first, SMALL.segment_bytes)
    assert end == second
    assert [each for each in listed if each.first_offset >= second] == []
