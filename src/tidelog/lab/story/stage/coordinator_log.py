"""The log of a coordinator, as stories show it: one name for each record.

Ongoing(t)       the state of transactional id t, in `__transaction_state`
generation=2     a generation of the group, in `__consumer_offsets`
story=1          an offset of the group for the partition `story`, committed or pending
commit(7)        the marker of producer 7, which commits its pending offsets
"""

from collections.abc import Iterator

from tidelog.core.coordinator.lookup import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from tidelog.core.groups import records as groups
from tidelog.core.record.decoder import LogRecord, decode
from tidelog.core.record.record_batch import batches
from tidelog.core.storage.disk import Region
from tidelog.core.storage.log import Log
from tidelog.core.transactions import records as transactions
from tidelog.core.transactions.transaction import Transaction
from tidelog.core.types import TopicPartition
from tidelog.lab.spec.snapshot import LogEntry
from tidelog.lab.story.stage.records import marker_name

TRANSACTIONS = TopicPartition(TRANSACTIONS_TOPIC, 0)
OFFSETS = TopicPartition(OFFSETS_TOPIC, 0)


def read_coordinator_log(partition: TopicPartition, log: Log) -> tuple[LogEntry, ...]:
    """Return the records of a coordinator's log, by their names."""
    name_of = _group_name if partition == OFFSETS else _transaction_name
    return tuple(
        LogEntry(
            record.offset,
            record.leader_epoch,
            marker_name(record, producer_id) or name_of(record),
        )
        for record, producer_id in _records(log)
    )


def transactions_in(log: Log) -> dict[str, Transaction]:
    """Return the newest state of each transactional id in a coordinator's log."""
    found: dict[str, Transaction] = {}
    for record, _ in _records(log):
        name = transactions.decode_key(record.key or b"")
        if name is not None and record.value is not None:
            found[name] = transactions.decode_value(record.value)
    return found


def _records(log: Log) -> Iterator[tuple[LogRecord, int]]:
    """Yield the records, each with the producer id of its batch."""
    for segment in log.segments:
        for batch in batches(log.read_bytes(Region(segment.path, 0, segment.size))):
            for record in decode(batch):
                yield record, batch.producer_id


def _transaction_name(record: LogRecord) -> str:
    name = transactions.decode_key(record.key or b"")
    if record.value is None:
        return f"deleted({name})"
    return f"{transactions.decode_value(record.value).state.label}({name})"


def _group_name(record: LogRecord) -> str:
    key = groups.decode_key(record.key or b"")
    if isinstance(key, groups.OffsetKey):
        if record.value is None:
            return f"{key.topic}=none"
        return f"{key.topic}={groups.decode_offset_value(record.value).offset}"
    if record.value is None:
        return "generation=none"
    return f"generation={groups.decode_group_value(record.value).generation}"
