"""Producers on our own client: batches appended one at a time, and their fate known.

Each producer has a few lanes, a thread each with connections of its own: partitions that
share a leader share a lane, so a leader that is gone stops one lane, not all. A lane that
meets an error goes on as a new producer, under a new id.
"""

import threading
import time

from tidelog.apps.verify.history.rows import Outcome
from tidelog.apps.verify.workload.ledger import Ledger, Pace
from tidelog.apps.verify.workload.orders import REPORT_EVERY_S, Orders, Task, say
from tidelog.core.record.record import Record
from tidelog.shell.client.client_errors import BrokerError, ClientError
from tidelog.shell.client.cluster import Cluster
from tidelog.shell.client.producer import ALL, Producer

LANES = 3
BURST_MAX = 50
ANSWER_S = 2.0
APPEND_S = 60.0
IDLE_S = 0.005


class Lane(threading.Thread):
    """Appends to some of the partitions, in turn."""

    def __init__(self, orders: Orders, ledger: Ledger, guard: threading.Lock, lane: int) -> None:
        super().__init__(name=f"producer {ledger.producer} lane {lane}")
        self._orders = orders
        self._task: Task = orders.task
        self._ledger = ledger
        self._guard = guard
        """Of the ledger, which the lanes of a producer share."""
        lanes = min(LANES, self._task.partitions)
        self._partitions = range(lane, self._task.partitions, lanes)
        self._rate = self._task.rate / len(self._task.names) / lanes
        self._cluster = Cluster(self._task.bootstrap, f"verify-{ledger.producer}", ANSWER_S)
        self._producer = self._new_producer()
        self.failure = ""

    def _new_producer(self) -> Producer:
        acks = ALL if self._task.acks == "all" else int(self._task.acks)
        idempotent = self._task.idempotence
        return Producer(self._cluster, acks, idempotent=idempotent, timeout_s=APPEND_S)

    def run(self) -> None:
        """Until the run ends."""
        pace = Pace(self._rate, time.monotonic())
        turn = self._ledger.producer
        with self._cluster:
            while not self._orders.stopping:
                due = min(pace.due(time.monotonic()), BURST_MAX)
                if due:
                    self._append(self._partitions[turn % len(self._partitions)], due)
                    pace.done(due)
                    turn += 1
                time.sleep(IDLE_S)

    def _append(self, partition: int, count: int) -> None:
        with self._guard:
            first = self._ledger.sent[partition]
            values = [self._ledger.next_value(partition) for _ in range(count)]
        now_ms = time.time_ns() // 1_000_000
        began = time.monotonic()
        offset = self._outcome(partition, [Record(None, value, now_ms) for value in values])
        waited_s = time.monotonic() - began
        with self._guard:
            for number in range(count):
                at = offset + number if offset >= 0 else offset
                self._ledger.settle(partition, first + number, at, waited_s)

    def _outcome(self, partition: int, records: list[Record]) -> int:
        """The offset of the first record, or one of Outcome for all of them."""
        try:
            offset = self._producer.append(self._task.topic, partition, records)
        except ClientError as error:
            self._producer = self._new_producer()
            self.failure = str(error)
            refused = isinstance(error, BrokerError) and not error.retriable
            return Outcome.REFUSED if refused else Outcome.UNKNOWN
        return offset if offset >= 0 else Outcome.NO_OFFSET


def run(orders: Orders) -> None:
    """Send at the pace asked for until told to stop."""
    ledgers = [Ledger(orders.task, name) for name in orders.task.names]
    lanes = []
    for ledger in ledgers:
        guard = threading.Lock()
        count = min(LANES, orders.task.partitions)
        lanes += [Lane(orders, ledger, guard, lane) for lane in range(count)]
    for lane in lanes:
        lane.start()
    while any(lane.is_alive() for lane in lanes):
        time.sleep(REPORT_EVERY_S)
        say(tally=_tally(ledgers))
    for ledger in ledgers:
        ledger.close()
    troubles = sorted({lane.failure for lane in lanes if lane.failure})
    sent = {str(ledger.producer): ledger.sent for ledger in ledgers}
    say(tally=_tally(ledgers), sent=sent, troubles=troubles, done=True)


def _tally(ledgers: list[Ledger]) -> dict[str, int]:
    words = ("acked", "unknown", "refused")
    return {word: sum(ledger.tally[word] for ledger in ledgers) for word in words}
