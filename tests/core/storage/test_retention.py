"""Which old segments expire by time and size, up to the high watermark."""

from dataclasses import replace

import pytest
from storage_kit import SMALL, batch, fill, new_log, retention_point

from tidelog.core.storage.log import Log
from tidelog.core.storage.log_config import LogConfig
from tidelog.core.storage.retention import expired_segments
from tidelog.lab.memory_disk import MemoryDisk

FOREVER = replace(SMALL, retention_ms=-1)


def filled(config: LogConfig) -> Log:
    """A log with segments 0-6, 7-13, 14-19; the record at offset n has timestamp 1000 + n."""
    log = new_log(MemoryDisk(), config)
    fill(log, 20)
    assert [segment.base_offset for segment in log.segments] == [0, 7, 14]
    return log


@pytest.mark.parametrize(
    ("now_ms", "point"),
    [(1106, None), (1107, 7), (1113, 7), (1114, 14), (1119, 14), (1120, 20), (10**9, 20)],
)
def test_a_segment_is_as_old_as_its_youngest_record(now_ms: int, point: int | None) -> None:
    log = filled(replace(SMALL, retention_ms=100))
    assert retention_point(log, now_ms, high_watermark=20) == point


@pytest.mark.parametrize(
    ("high_watermark", "point"), [(0, None), (6, None), (7, 7), (19, 14), (20, 20)]
)
def test_nothing_above_the_high_watermark_expires(high_watermark: int, point: int | None) -> None:
    log = filled(replace(SMALL, retention_ms=100))
    assert retention_point(log, 10**9, high_watermark) == point


@pytest.mark.parametrize(
    ("spare", "point"),
    [(0, None), (6, None), (7, 7), (13, 7), (14, 14), (19, 14), (20, 20)],
    ids=lambda value: str(value),
)
def test_by_size_only_segments_completely_above_the_limit_expire(
    spare: int, point: int | None
) -> None:
    record = batch(0).size
    config = replace(FOREVER, retention_bytes=(20 - spare) * record)
    assert retention_point(filled(config), 10**9, high_watermark=20) == point


def test_nothing_expires_without_the_policy_or_without_limits() -> None:
    log = filled(replace(SMALL, retention_ms=1, cleanup_delete=False))
    assert retention_point(log, 10**9, 20) is None
    assert retention_point(filled(FOREVER), 10**15, 20) is None


def test_nothing_expires_in_an_empty_log() -> None:
    log = new_log(MemoryDisk(), replace(SMALL, retention_ms=0, retention_bytes=0))
    assert retention_point(log, 10**9, 0) is None


def test_records_without_timestamps_age_from_when_the_segment_was_opened() -> None:
    log = new_log(MemoryDisk(), replace(SMALL, retention_ms=100), now_ms=5000)
    log.append([batch(0, timestamp=-1)], 5000)
    long_ago, later = 0, 10**15
    assert retention_point(log, later, 1, now_ms=5100) is None, "no wall clock tells their age"
    assert retention_point(log, long_ago, 1, now_ms=5101) == 1


def test_proposed_log_start_can_be_applied() -> None:
    log = filled(replace(SMALL, retention_ms=100))
    point = retention_point(log, 10**9, 20)
    assert point == 20
    log.drop_before(point, 10**9)
    assert (log.log_start_offset, log.log_end_offset, log.size) == (20, 20, 0)
    assert retention_point(log, 10**9, 20) is None


def test_each_expired_segment_says_why() -> None:
    log = filled(replace(SMALL, retention_ms=100, retention_bytes=batch(0).size * 6))
    expired = expired_segments(log.segments, log.config, 20, 20, 1107, 0)
    assert [one[:2] for one in expired] == [(0, 7), (7, 14)]
    assert expired[0].reason == "newest record is 101 ms old, retention.ms=100"
    assert expired[1].reason == f"the log exceeds retention.bytes={batch(0).size * 6}"
