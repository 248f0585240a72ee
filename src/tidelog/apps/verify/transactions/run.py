"""A run with transactions.

Writers send transactions to the input topic, processors copy it to the output topic, and readers
read both, while the nemesis injects faults. Then the processors catch up, both topics are read
again, and the checker compares them with the clients' journals.
"""

import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress

from tidelog.apps.verify.checker.transactions.events import INPUT, OUTPUT, Place
from tidelog.apps.verify.run import SETTLE_S, STEP_S, Run
from tidelog.apps.verify.run_checks import RunChecks
from tidelog.apps.verify.transactions.names import (
    FIRST_PROCESSOR,
    PROCESSOR,
    READERS,
    WRITER,
    group,
    output_topic,
)
from tidelog.apps.verify.transactions.txn_checks import TxnChecks
from tidelog.apps.verify.workload.worker_processes import MortalWorker, Worker
from tidelog.core.types import TopicPartition
from tidelog.shell.client import admin
from tidelog.shell.client.client_errors import ClientError
from tidelog.shell.client.cluster import Cluster
from tidelog.shell.client.fetching import READ_COMMITTED
from tidelog.shell.client.groups.group_admin import (
    Committed,
    commit_offsets,
    committed_offsets,
    delete_groups,
)
from tidelog.shell.client.offsets import LATEST, list_offset

PROCESSORS = 3
READER_NUMBER = 901
COUNTS = {
    "committed transactions": "committed",
    "aborted transactions": "aborted",
    "transactions with unknown outcome": "unknown",
    "sessions (InitProducerId)": "sessions",
    "clients killed": "killed",
    "zombies that tried to commit": "zombie",
    "transactions left open": "leave open",
    "transactions left to their time-out": "let it time out",
    "stalled group members": "stall",
    "assignments to group members": "rebalances",
    "positions that librdkafka lost": "lost positions",
    "records processed": "processed",
}
"""The rows of the report, and the counter of each."""


def settles(
    holds: Callable[[], bool],
    progress: Callable[[], object],
    hold: Callable[[], None],
    clock: Callable[[], float] = time.monotonic,
) -> bool:
    """Wait until a condition holds; return False if `progress` stays the same for SETTLE_S."""
    seen: object = None
    until = clock() + SETTLE_S
    while not holds():
        found = progress()
        if found != seen:
            seen, until = found, clock() + SETTLE_S
        if clock() > until:
            return False
        hold()
    return True


class TransactionRun(Run):
    """A run with transactional clients."""

    _checks: TxnChecks

    def __init__(self, *arguments: object) -> None:
        super().__init__(*arguments)  # type: ignore[arg-type]
        self._processors: list[MortalWorker] = []

    @property
    def _topics(self) -> dict[int, str]:
        return {INPUT: self._topic, OUTPUT: output_topic(self._topic)}

    def _new_checks(self) -> RunChecks:
        return TxnChecks(self._topic, self._tag, self._options.partitions, self._note_check)

    def _create_topic(self, cluster: Cluster) -> None:
        existing = cluster.refresh().topics
        for topic in self._topics.values():
            if topic not in existing:
                self._create(cluster, topic)
        partitions = range(self._options.partitions)
        start = {TopicPartition(self._topic, p): Committed(0) for p in partitions}
        commit_offsets(cluster, group(self._topic), start)

    def _delete_topic(self, cluster: Cluster) -> None:
        for topic in self._topics.values():
            with suppress(ClientError):
                admin.delete_topic(cluster, topic, missing_ok=True)
        with suppress(ClientError):
            delete_groups(cluster, [group(self._topic)])

    def _start_workers(self, bootstrap: str) -> None:
        options, workers = self._options, self._workers
        rate = options.rate / options.producers
        for number in range(1, options.producers + 1):
            task = self._task(WRITER, bootstrap, [number], rate)
            workers.producers.append(MortalWorker(task))
        for number in range(FIRST_PROCESSOR, FIRST_PROCESSOR + PROCESSORS):
            self._processors.append(MortalWorker(self._task(PROCESSOR, bootstrap, [number])))
        workers.readers += self._processors
        workers.readers.append(Worker(self._task(READERS, bootstrap, [READER_NUMBER])))
        workers.readers.append(Worker(self._task("own reader", bootstrap, [2])))

    # -- after the workload

    def _end_readers(self, cluster: Cluster) -> None:
        checks = self._checks
        self._await_ends(cluster, INPUT)
        checks.read(cluster, INPUT)
        self._await_processed(cluster)
        for worker in self._processors:
            worker.stop()
        for worker in self._processors:
            worker.await_end()
        self._await_ends(cluster, OUTPUT)
        checks.read(cluster, OUTPUT)
        checks.committed_offsets = self._committed(cluster)
        partitions = range(self._options.partitions)
        shown = [checks.visible_end(Place(t, p)) for t in (INPUT, OUTPUT) for p in partitions]
        ends = [checks.logs[Place(INPUT, p)].end for p in partitions]
        readers = [each for each in self._workers.readers if each not in self._processors]
        for reader in readers:
            reader.stop(shown if reader.task.role == READERS else ends)
        for reader in readers:
            reader.await_end()
        for each in (*self._workers.producers, *self._processors):
            assert isinstance(each, MortalWorker)
            for text in each.stuck:
                checks.findings.add("stuck", text)

    def _await(
        self, what: str, holds: Callable[[], bool], progress: Callable[[], object] = lambda: None
    ) -> bool:
        return settles(holds, progress, lambda: self._hold(STEP_S, what))

    def _await_ends(self, cluster: Cluster, topic: int) -> None:
        """Wait until no transaction is open: the last stable offset reaches the log end."""
        open_at: dict[int, tuple[int, int]] = {}

        def none_is_open() -> bool:
            open_at.clear()
            for partition in range(self._options.partitions):
                place = (self._topics[topic], partition)
                stable = list_offset(cluster, *place, LATEST, READ_COMMITTED).offset
                end = list_offset(cluster, *place, LATEST).offset
                if stable < end:
                    open_at[partition] = stable, end
            return not open_at

        if not self._await("waiting for the last transactions", none_is_open):
            for partition, (stable, end) in open_at.items():
                self._checks.findings.add(
                    "hanging",
                    f"{Place(topic, partition)}: the last stable offset is still {stable}, the log"
                    f" end {end}, {SETTLE_S:g} s after the last transaction",
                )

    def _await_processed(self, cluster: Cluster) -> None:
        """Wait until the group's offsets are past all input records.

        Members still kill themselves and leave the group, so a long backlog takes long. The group
        is stuck only if no offset advances.
        """
        wanted = {
            partition: self._checks.visible_end(Place(INPUT, partition))
            for partition in range(self._options.partitions)
        }
        late: dict[int, int] = {}

        def is_processed() -> bool:
            try:
                committed = self._committed(cluster)
            except ClientError:
                return False
            late.clear()
            late.update({p: committed.get(p, 0) for p in wanted if committed.get(p, 0) < wanted[p]})
            return not late

        if not self._await("processors catch up", is_processed, late.copy):
            for partition, offset in late.items():
                self._checks.findings.add(
                    "stuck",
                    f"the group's offset of {Place(INPUT, partition)} is {offset}, not"
                    f" {wanted[partition]}; no offset has advanced for {SETTLE_S:g} s",
                )

    def _committed(self, cluster: Cluster) -> dict[int, int]:
        partitions = [TopicPartition(self._topic, p) for p in range(self._options.partitions)]
        found = committed_offsets(cluster, group(self._topic), partitions)
        return {key.partition: committed.offset for key, committed in found.items()}

    def _transactions(self) -> dict[str, int]:
        tally: Counter[str] = self._workers.tally()
        tally["processed"] = self._checks.processed
        return {name: tally[counter] for name, counter in COUNTS.items()}
