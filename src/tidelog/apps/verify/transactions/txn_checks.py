"""The checks of a run with transactions: the final logs, the journals, the disks."""

from collections.abc import Callable

from tidelog.apps.verify.checker.partition_check import (
    History,
    check_epochs,
    check_marks,
    check_read_batches,
)
from tidelog.apps.verify.checker.transactions.check import check_transactions
from tidelog.apps.verify.checker.transactions.events import INPUT, OUTPUT, Outcome, Place
from tidelog.apps.verify.checker.transactions.history import TxnHistory
from tidelog.apps.verify.checker.transactions.txn_log import TxnLog
from tidelog.apps.verify.journals import Ack, Kind, read_rows
from tidelog.apps.verify.nemesis.failover import Injected, failovers, longest_pauses
from tidelog.apps.verify.run_checks import RunChecks
from tidelog.apps.verify.transactions.journal import read_events
from tidelog.apps.verify.transactions.names import FULL_READER, output_topic
from tidelog.apps.verify.whole_logs import read_txn_log
from tidelog.shell.client.cluster import Cluster


class TxnChecks(RunChecks):
    """The final logs of both topics, and all findings."""

    def __init__(
        self, topic: str, tag: bytes, partitions: int, progress: Callable[[str], None]
    ) -> None:
        super().__init__(topic, tag, partitions, progress)
        self.logs: dict[Place, TxnLog] = {}
        self.committed_offsets: dict[int, int] = {}
        """The offsets of the processors' group, by input partition."""
        self.processed = 0

    def read(self, cluster: Cluster, topic: int) -> None:
        """Read one of the topics to its end."""
        name = output_topic(self._topic) if topic == OUTPUT else self._topic
        for partition in self._partitions:
            self._progress(f"reading {Place(topic, partition)}")
            log = read_txn_log(cluster, name, partition, self._tag, self.findings)
            self.logs[Place(topic, partition)] = log
            self._note_log(name, log)

    def visible_end(self, place: Place) -> int:
        """Return the offset after the last committed record."""
        return max(self.logs[place].visible(), default=-1) + 1

    def check_served(self, _cluster: Cluster, history: History, faults: list[Injected]) -> None:
        """Compare the final logs with everything that clients did and saw."""
        self._progress("checking transactions")
        txns = TxnHistory(read_events(history.folder))
        self.findings.merge(
            check_transactions(txns, self.logs, self.committed_offsets, [FULL_READER])
        )
        self.processed = sum(
            len(log.visible()) for place, log in self.logs.items() if place.topic == OUTPUT
        )
        for partition in self._partitions:
            log = self.logs[Place(INPUT, partition)]
            self.findings.merge(check_epochs(log))
            for reader in history.batch_readers:
                rows = read_rows(history.folder, Kind.BATCHES, reader, partition)
                self.findings.merge(check_read_batches(log, reader, rows))
                marks = read_rows(history.folder, Kind.MARKS, reader, partition)
                self.findings.merge(check_marks(log, reader, marks))
            acks = acknowledgements(txns, partition)
            self.waits += failovers(faults, partition, [acks])
            pauses = longest_pauses(faults, [acks])
            self.pauses = list(map(max, pauses, self.pauses or pauses))


def acknowledgements(history: TxnHistory, partition: int) -> list[Ack]:
    """Return when records of an input partition were acknowledged by their commit, in order."""
    rows = []
    for txn in history.txns.values():
        if txn.outcome == Outcome.COMMITTED and txn.ended_at is not None:
            at = txn.ended_at
            rows += [
                Ack(sent.value, 0, at, at - sent.at)
                for sent in txn.sends
                if (sent.topic, sent.partition) == (INPUT, partition)
            ]
    return sorted(rows, key=lambda row: row.at)
