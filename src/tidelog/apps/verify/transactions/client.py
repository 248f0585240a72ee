"""A transactional client on librdkafka: its journal, its sessions, and how it ends transactions.

A session is one producer with an initialized transactional id. A client replaces its session after
a fatal error. It may kill itself with SIGKILL. The run then restarts it (its next life) with the
same transactional id.

Invariant: the journal has a send before librdkafka does, and a commit before its request is sent.
"""

import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from random import Random
from typing import Any, NamedTuple

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer

from tidelog.apps.verify.checker.transactions.events import (
    INPUT,
    NO_SOURCE,
    NO_TXN,
    OUTPUT,
    Begun,
    Ended,
    Ending,
    Opened,
    Outcome,
    Read,
    Sent,
    describe,
    number,
)
from tidelog.apps.verify.record_value import pack, read_id, split_id
from tidelog.apps.verify.transactions.journal import EventJournal
from tidelog.apps.verify.transactions.names import output_topic
from tidelog.apps.verify.workload.librdkafka_clients import consumer_settings, shared_settings
from tidelog.apps.verify.workload.worker import REPORT_EVERY_S, RunLink, Task, send_report

TIMEOUT_MS = 20_000
"""Transaction time-out of sessions: longer than any fault but one."""
CALL_S = 5.0
"""How long one call may wait before it is repeated."""
INIT_CALLS = 4
RETRY_S = 0.2
END_S = 60.0
"""How long a client tries to end a transaction or to open a session."""


def transactional_settings(task: Task, name: str, transactional_id: str) -> dict[str, Any]:
    """Settings of a transactional producer."""
    return shared_settings(task, name) | {
        "transactional.id": transactional_id,
        "transaction.timeout.ms": TIMEOUT_MS,
        "message.timeout.ms": TIMEOUT_MS,
        "linger.ms": 2,
        "request.timeout.ms": 2500,
        "retry.backoff.max.ms": 500,
    }


class End(NamedTuple):
    """How a transaction ended for its client."""

    outcome: str
    """One of Outcome."""
    usable: bool
    """Whether the session can be used for the next transaction."""
    reason: str = ""


class GaveUp(Exception):
    """The run has ended, and a session still can't be opened."""


NO_RESPONSE = f"no response within {END_S:g} s"


class Session(NamedTuple):
    """A producer whose transactional id is initialized."""

    number: int
    producer: Producer


class TxnClient:
    """One life of a transactional client."""

    def __init__(self, link: RunLink) -> None:
        task = link.task
        self.link = link
        self.task = task
        [self.client] = task.names
        self.transactional_id = f"{task.topic}-{self.client}"
        self.random = Random(f"transactions {task.seed} {self.client} {task.life}")
        self.tally: Counter[str] = Counter()
        self.topics = (task.topic, output_topic(task.topic))
        self.journal = EventJournal(task.folder, self.client, task.life)
        self.stuck: list[str] = []
        """The operations that took longer than END_S."""
        self._tag = bytes.fromhex(task.tag)
        self._count = 0
        self._reported = 0.0

    def next_number(self) -> int:
        """Return a new number for a session, transaction or record."""
        self._count += 1
        return number(self.client, self.task.life, self._count)

    def report(self) -> None:
        """Send the tally to the run if it is due."""
        if time.monotonic() - self._reported >= REPORT_EVERY_S:
            self._reported = time.monotonic()
            send_report(tally=self.tally, stuck=self.stuck)

    def close(self) -> None:
        self.journal.close()

    def finish(self) -> None:
        """Close everything, and send the final report."""
        self.close()
        send_report(tally=self.tally, stuck=self.stuck, done=True)

    def step(self) -> None:
        """Run one transaction."""
        raise NotImplementedError

    # -- sessions

    def open_session(self, transactional_id: str = "", **settings: Any) -> Session:
        """Open a session, and fence older ones of the same id. Raises GaveUp at the run's end."""
        name = transactional_id or self.transactional_id
        until = time.monotonic() + END_S
        wanted = transactional_settings(self.task, f"verify-{self.client}", name) | settings
        while (producer := _initialized(wanted)) is None:
            self.report()
            if time.monotonic() > until:
                self.stuck.append(f"{name} could not be initialized within {END_S:g} s")
                until = time.monotonic() + END_S
                if self.link.stopping:
                    raise GaveUp
        session = Session(self.next_number(), producer)
        self.journal.add(Opened(self.task.ticks(), session.number, name))
        self.tally["sessions"] += 1
        return session

    # -- transactions

    def begin(self, session: Session) -> int:
        txn = self.next_number()
        session.producer.begin_transaction()
        self.journal.add(Begun(self.task.ticks(), txn, session.number))
        return txn

    def send(
        self,
        session: Session,
        txn: int,
        topic: int,
        partition: int,
        source: tuple[int, int] = NO_SOURCE,
    ) -> None:
        """Send one record in a transaction. Raises KafkaException."""
        value = self.next_number()
        _, sequence = split_id(value)
        row = Sent(self.task.ticks(), txn, topic, partition, value, *source)
        self.journal.add(row)
        data = pack(self._tag, self.client, partition, sequence, self._count)
        session.producer.produce(self.topics[topic], data, partition=partition)

    def commit(self, session: Session, txn: int) -> End:
        self.journal.add(Ending(self.task.ticks(), txn, commit=True))
        return self._ended(txn, _commit(session.producer))

    def abort(self, session: Session, txn: int) -> End:
        self.journal.add(Ending(self.task.ticks(), txn, commit=False))
        return self._ended(txn, _abort(session.producer))

    def _ended(self, txn: int, end: End) -> End:
        self.journal.add(Ended(self.task.ticks(), txn, end.outcome, end.reason))
        self.tally[end.outcome] += 1
        if end.reason.startswith(NO_RESPONSE):
            self.stuck.append(f"{describe(txn)}: {end.reason}")
        self.report()
        return end

    # -- reads

    def journal_reads(self, reader: str, messages: Iterable[Message], txn: int = NO_TXN) -> int:
        """Journal the records that a consumer returned; return their number."""
        at = self.task.ticks()
        rows: dict[tuple[int, int], Read] = {}
        count = 0
        for message in messages:
            if message.error() is not None:
                self.note_error(message.error())
                continue
            topic = INPUT if message.topic() == self.topics[INPUT] else OUTPUT
            partition, offset, value = message.partition(), message.offset(), message.value()
            assert partition is not None
            assert offset is not None
            data = value if isinstance(value, bytes) else None
            row = rows.setdefault(
                (topic, partition), Read(at, txn, reader, topic, partition, [], [])
            )
            row.offsets.append(offset)  # type: ignore[attr-defined]
            row.values.append(read_id(data, self._tag, partition))  # type: ignore[attr-defined]
            count += 1
        for row in rows.values():
            self.journal.add(row)
        self.tally["read"] += count
        return count

    def note_error(self, error: KafkaError | None) -> None:
        """Report an error that a client must never get."""
        if error is not None and error.fatal():
            send_report(fatal=[f"client {self.client}: {error}"])

    # -- crashes

    def die(self) -> None:
        """Kill this process with SIGKILL, as a crash would."""
        os.kill(os.getpid(), signal.SIGKILL)

    def die_soon(self, longest_s: float) -> None:
        """Die within this time, whatever the client does then."""
        timer = threading.Timer(self.random.uniform(0, longest_s), self.die)
        timer.daemon = True
        timer.start()


def done(call: Any, *arguments: Any) -> bool:
    """Make a transactional call; return False if it must be repeated. Raises KafkaException."""
    try:
        call(*arguments, CALL_S)
    except KafkaException as error:
        if error.args[0].retriable():
            return False
        raise
    return True


def _initialized(settings: dict[str, Any]) -> Producer | None:
    """Return a producer with an initialized transactional id; None if that failed or takes long."""
    producer = Producer(settings)
    try:
        for _ in range(INIT_CALLS):
            if done(producer.init_transactions):
                return producer
    except KafkaException:
        time.sleep(RETRY_S)
    return None


def _commit(producer: Producer) -> End:
    until = time.monotonic() + END_S
    try:
        while not done(producer.commit_transaction):
            if time.monotonic() > until:
                return End(Outcome.UNKNOWN, False, NO_RESPONSE)
    except KafkaException as error:
        reason = error.args[0]
        if not reason.txn_requires_abort():
            return End(Outcome.UNKNOWN, False, str(reason))
        end = _abort(producer)
        return end._replace(reason=f"{reason}; {end.reason}")
    return End(Outcome.COMMITTED, True)


def _abort(producer: Producer) -> End:
    until = time.monotonic() + END_S
    try:
        while not done(producer.abort_transaction):
            if time.monotonic() > until:
                return End(Outcome.UNKNOWN, False, NO_RESPONSE)
    except KafkaException as error:
        return End(Outcome.UNKNOWN, False, str(error.args[0]))
    return End(Outcome.ABORTED, True)


def reader_of(task: Task, name: str, **settings: Any) -> Consumer:
    """Return a read-committed consumer."""
    return Consumer(consumer_settings(task, name) | settings)


def run_client(client: TxnClient) -> None:
    """Run transactions until the run stops."""
    with suppress(GaveUp):
        while not client.link.stopping:
            client.step()
    client.finish()
