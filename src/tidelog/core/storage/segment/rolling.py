"""When the active segment is full, and where the next one begins.

Always true, but for gaps of billions: a segment begins where the one before it ended, also if
the next record's offset is higher, in a copy of a compacted log. So a segment that lost its
end to a power failure can be told from one that ends where it should (`recovery.py`).
"""

from tidelog.core.record.record_batch import RecordBatch
from tidelog.core.storage.log_config import LogConfig
from tidelog.core.storage.segment.segment import Segment
from tidelog.core.storage.segment.succession import RELATIVE_OFFSET_MAX
from tidelog.core.types import Offset


def must_roll(
    active: Segment, config: LogConfig, batch: RecordBatch, grouped: int, now_ms: int
) -> bool:
    """Whether the batch can't join the active segment, `grouped` bytes ahead of it."""
    written = active.size + grouped
    if written and written + batch.size > config.segment_bytes:
        # A batch larger than that has a segment of its own: the leader's log has it, from
        # before `segment.bytes` was lowered.
        return True
    if batch.last_offset - active.base_offset > RELATIVE_OFFSET_MAX:
        return True
    if active.size:
        first = active.first_timestamp
        waited = now_ms - active.created_ms
        if first is not None and first >= 0:
            waited = batch.max_timestamp - first
        age_max_ms = _age_max_ms(config) if config.cleanup_compact else config.segment_ms
        if waited > age_max_ms - config.segment_jitter_ms:
            return True
    return active.is_full


def next_base_offset(active: Segment, batch: RecordBatch) -> Offset:
    """Of the segment that `batch` begins."""
    end = active.next_offset()
    return end if batch.last_offset - end <= RELATIVE_OFFSET_MAX else batch.base_offset


def _age_max_ms(config: LogConfig) -> int:
    """Of a compacted log. Only closed segments are compacted: records must not wait for long."""
    return min(config.max_compaction_lag_ms, config.segment_ms)
