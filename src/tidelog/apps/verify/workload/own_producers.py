"""Producers on our own client: each append sends one batch and waits for its outcome.

Each producer has a few threads with separate connections. Partitions are divided among the
threads, so that a missing leader blocks one thread, not all. After an error a thread continues
with a new producer id.
"""

import threading
import time

from tidelog.apps.verify.journals import Outcome
from tidelog.apps.verify.workload.ledger import Ledger, Pace, sent_by, total_of
from tidelog.apps.verify.workload.worker import REPORT_EVERY_S, RunLink, Task, send_report
from tidelog.core.record.record import Record
from tidelog.shell.client.client_errors import BrokerError, ClientError
from tidelog.shell.client.producer import ALL, Producer

THREADS = 3
BURST_MAX = 50
RESPONSE_S = 2.0
APPEND_S = 60.0
IDLE_S = 0.005


class AppendThread(threading.Thread):
    """Appends to some of the partitions, in turn."""

    def __init__(self, link: RunLink, ledger: Ledger, lock: threading.Lock, number: int) -> None:
        super().__init__(name=f"producer {ledger.producer} thread {number}")
        self._link = link
        self._task: Task = link.task
        self._ledger = ledger
        self._lock = lock
        """The lock of the ledger, which the threads of a producer share."""
        threads = min(THREADS, self._task.partitions)
        self._partitions = range(number, self._task.partitions, threads)
        self._rate = self._task.rate / len(self._task.names) / threads
        self._cluster = self._task.cluster(f"verify-{ledger.producer}", RESPONSE_S)
        self._producer = self._new_producer()
        self.failure = ""

    def _new_producer(self) -> Producer:
        acks = ALL if self._task.acks == "all" else int(self._task.acks)
        idempotent = self._task.idempotence
        return Producer(self._cluster, acks, idempotent=idempotent, timeout_s=APPEND_S)

    def run(self) -> None:
        """Append until the run stops."""
        pace = Pace(self._rate, time.monotonic())
        turn = self._ledger.producer
        with self._cluster:
            while not self._link.stopping:
                due = min(pace.due(time.monotonic()), BURST_MAX)
                if due:
                    self._append(self._partitions[turn % len(self._partitions)], due)
                    pace.done(due)
                    turn += 1
                time.sleep(IDLE_S)

    def _append(self, partition: int, count: int) -> None:
        with self._lock:
            first = self._ledger.sent[partition]
            values = [self._ledger.next_value(partition) for _ in range(count)]
        now_ms = time.time_ns() // 1_000_000
        began = time.monotonic()
        offset = self._outcome(partition, [Record(None, value, now_ms) for value in values])
        waited_s = time.monotonic() - began
        with self._lock:
            for number in range(count):
                at = offset + number if offset >= 0 else offset
                self._ledger.settle(partition, first + number, at, waited_s)

    def _outcome(self, partition: int, records: list[Record]) -> int:
        """Append; return the offset of the first record, or one of Outcome for all of them."""
        try:
            offset = self._producer.append(self._task.topic, partition, records)
        except ClientError as error:
            self._producer = self._new_producer()
            self.failure = str(error)
            refused = isinstance(error, BrokerError) and not error.retriable
            return Outcome.REFUSED if refused else Outcome.UNKNOWN
        return offset if offset >= 0 else Outcome.NO_OFFSET


def run(link: RunLink) -> None:
    """Send at the rate of the task until the run stops."""
    ledgers = [Ledger(link.task, name) for name in link.task.names]
    threads = []
    for ledger in ledgers:
        lock = threading.Lock()
        count = min(THREADS, link.task.partitions)
        threads += [AppendThread(link, ledger, lock, number) for number in range(count)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        time.sleep(REPORT_EVERY_S)
        send_report(tally=total_of(ledgers))
    for ledger in ledgers:
        ledger.close()
    troubles = sorted({thread.failure for thread in threads if thread.failure})
    send_report(tally=total_of(ledgers), sent=sent_by(ledgers), troubles=troubles, done=True)
