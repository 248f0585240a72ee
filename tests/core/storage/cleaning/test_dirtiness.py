"""Which part of a log is cleaned: not the active segment, no uncommitted records."""

from dataclasses import replace

import pytest
from cleaning_kit import COMPACT, close_segment, compact, look, plan_of, put
from storage_kit import new_log

from tidelog.core.record.encoder import Producer
from tidelog.core.storage.cleaning.dirtiness import dirtiness
from tidelog.core.storage.cleaning.plan import LastBatch
from tidelog.core.storage.log import Log
from tidelog.lab.memory_disk import MemoryDisk


@pytest.fixture
def disk() -> MemoryDisk:
    return MemoryDisk()


@pytest.fixture
def log(disk: MemoryDisk) -> Log:
    """A log of four closed segments and an active one."""
    log = new_log(disk, COMPACT)
    for number in range(4):
        put(log, ("a", str(number)), timestamp=1000 * (number + 1))
        close_segment(log)
    return log


def bases(log: Log) -> list[int]:
    return [segment.base_offset for segment in log.segments]


def test_the_active_segment_is_not_cleaned(log: Log) -> None:
    found = look(log)
    assert found is not None
    assert (found.first_dirty_offset, found.end_offset) == (0, log.segments.active.base_offset)
    assert found.ratio == 1.0
    assert look(new_log(MemoryDisk(), COMPACT)) is None


def test_nothing_at_or_above_the_last_stable_offset_is_cleaned(log: Log) -> None:
    third = bases(log)[2]
    for stable, end in ((third, third), (third + 1, third), (third - 1, bases(log)[1])):
        found = look(log, last_stable=stable)
        assert found is not None
        assert found.end_offset == end
    assert look(log, last_stable=0) is None


def test_unflushed_records_are_not_cleaned() -> None:
    log = new_log(MemoryDisk(), COMPACT)
    for _ in range(3):
        put(log, ("a", "1"))
        close_segment(log)
    assert dirtiness(log, 0, log.log_end_offset, 0) is None
    second = bases(log)[1]
    flush = log.start_flush(second)
    assert flush is not None
    log.flush_completed(flush)
    found = dirtiness(log, 0, log.log_end_offset, 0)
    assert found is not None
    assert found.end_offset == second


def test_log_is_cleaned_above_the_dirty_ratio(log: Log) -> None:
    log.config = replace(COMPACT, min_cleanable_dirty_ratio=0.5)
    _, second, third, fourth, _ = bases(log)
    assert look(log, second) is not None
    assert look(log, third) is None, "half of it is not more than half"
    assert look(log, fourth) is None
    assert look(log, log.segments.active.base_offset) is None


@pytest.mark.parametrize("first_dirty", [-5, 10**6])
def test_first_dirty_offset_outside_the_log_is_ignored(log: Log, first_dirty: int) -> None:
    found = look(log, first_dirty)
    assert found is not None
    assert found.first_dirty_offset == 0


def test_dirty_part_begins_at_the_log_start(log: Log) -> None:
    log.drop_before(bases(log)[1] + 1, now_ms=0)
    found = look(log, 0)
    assert found is not None
    assert found.first_dirty_offset == log.log_start_offset
    plan = plan_of(log, 0)
    assert plan is not None
    assert [segment.base_offset for segment in plan.segments] == bases(log)[:-1]


def test_young_records_are_not_cleaned(log: Log) -> None:
    log.config = replace(COMPACT, min_compaction_lag_ms=500)
    now_ms = log.segments.active.max_timestamp
    newest = [segment.max_timestamp for segment in log.segments]
    for number, newest_ms in enumerate(newest[:-1]):
        found = look(log, now_ms=newest_ms + 499)
        assert (found.end_offset if found else 0) == bases(log)[number]
        found = look(log, now_ms=newest_ms + 500)
        assert found is not None
        assert found.end_offset > bases(log)[number]
    # What was cleaned once is not young again.
    assert look(log, bases(log)[4], now_ms=now_ms) is None


def test_old_records_are_cleaned_however_few_they_are(log: Log) -> None:
    log.config = replace(COMPACT, min_cleanable_dirty_ratio=0.9, max_compaction_lag_ms=500)
    fourth = bases(log)[3]
    since = next(log.segments.from_offset(fourth)).first_timestamp
    assert since is not None
    assert look(log, fourth, now_ms=since + 500) is None
    found = look(log, fourth, now_ms=since + 501)
    assert found is not None
    assert found.overdue


def test_a_record_does_not_wait_in_an_active_segment_for_ever() -> None:
    log = new_log(MemoryDisk(), replace(COMPACT, max_compaction_lag_ms=500))
    put(log, ("a", "1"), timestamp=1000)
    put(log, ("a", "2"), timestamp=1500)
    assert bases(log) == [0]
    put(log, ("a", "3"), timestamp=1501)
    assert bases(log) == [0, 2]


def test_a_plan_names_producers_whose_last_batch_may_be_cleaned(log: Log) -> None:
    put(log, ("a", "1"), producer=Producer(5, 3, 0))
    close_segment(log)
    put(log, ("a", "1"), producer=Producer(6, 0, 0))
    plan = plan_of(log)
    assert plan is not None
    assert set(plan.producers) == {5}
    last = plan.producers[5].last_offset
    assert last is not None
    assert last < plan.end_offset
    assert plan.producers[5] == LastBatch(3, last)


def test_a_clean_log_is_not_cleaned_again(disk: MemoryDisk, log: Log) -> None:
    end = compact(disk, log).end_offset
    assert look(log, end) is None
