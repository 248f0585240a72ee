"""Run all checks of one partition on the journals of a run."""

from typing import NamedTuple

from tidelog.apps.verify.checker.final_log import FinalLog, check_epochs, check_strangers
from tidelog.apps.verify.checker.findings import Findings
from tidelog.apps.verify.checker.seen import check_marks, check_read_batches, check_reads
from tidelog.apps.verify.checker.written import check_acknowledged, check_order
from tidelog.apps.verify.history.rows import Kind, read_rows


class History(NamedTuple):
    """The journals of a run: their folder and the clients that wrote them."""

    folder: str
    sent: dict[int, list[int]]
    """By producer: the number of records that it sent to each partition."""
    record_readers: list[str]
    """Consumers that journal records, from the log start, without going back."""
    batch_readers: list[str]
    """Raw readers, which journal batches. Both kinds also journal the offsets in responses."""


def check_partition(log: FinalLog, history: History) -> Findings:
    """Run all checks of a partition, except the comparison of its replicas."""
    folder, partition = history.folder, log.partition
    sent = {producer: counts[partition] for producer, counts in history.sent.items()}
    found = check_epochs(log)
    found.merge(check_strangers(log, sent))
    found.merge(check_order(log, sent))
    for producer in sent:
        acks = read_rows(folder, Kind.ACKS, str(producer), partition)
        found.merge(check_acknowledged(log, producer, acks))
    for reader in history.record_readers:
        reads = read_rows(folder, Kind.READS, reader, partition)
        found.merge(check_reads(log, reader, reads))
        found.merge(check_marks(log, reader, read_rows(folder, Kind.MARKS, reader, partition)))
    for reader in history.batch_readers:
        batches = read_rows(folder, Kind.BATCHES, reader, partition)
        found.merge(check_read_batches(log, reader, batches))
        found.merge(check_marks(log, reader, read_rows(folder, Kind.MARKS, reader, partition)))
    return found
