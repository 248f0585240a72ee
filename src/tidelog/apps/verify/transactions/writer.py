"""A writer: each of its transactions sends to several partitions and reads from all.

Most transactions are committed, some are aborted on purpose. Every few seconds the writer
misbehaves: it kills itself, opens a second session and commits with the first one (a zombie),
leaves a transaction open under its own id, or under an id that is never used again.
"""

import time
from contextlib import suppress

from confluent_kafka import KafkaException, TopicPartition

from tidelog.apps.verify.checker.transactions.events import INPUT, Outcome
from tidelog.apps.verify.transactions.client import (
    CALL_S,
    Session,
    TxnClient,
    reader_of,
    run_client,
)
from tidelog.apps.verify.workload.worker import RunLink

RECORDS_MAX = 10
ABORTS = 0.12
BAD_EVERY_S = (3.0, 8.0)
"""The time between two misbehaviours of a writer."""
BAD_ACTS = ("die", "die later", "zombie", "zombie", "leave open", "let it time out")
SHORT_TIMEOUT_MS = 3000
POLL_S = 0.02


class Writer(TxnClient):
    """A transactional producer with a consumer of its own."""

    def __init__(self, link: RunLink) -> None:
        super().__init__(link)
        self._reader = f"writer {self.client}.{self.task.life}"
        self._consumer = reader_of(self.task, f"writer{self.client}")
        self._consumer.assign(
            [
                TopicPartition(topic, partition, self._end_of(topic, partition))
                for topic in self.topics
                for partition in range(self.task.partitions)
            ]
        )
        self._session = self.open_session()
        self._bad_at = self._next_bad()

    def _end_of(self, topic: str, partition: int) -> int:
        """Return the offset at which to begin reading.

        With OFFSET_END, librdkafka (2.16) may look up the end again after it has begun: if the
        leader changes during the lookup, it repeats it both then and when the first request times
        out. The records between both ends are then skipped.
        """
        while not self.link.stopping:
            with suppress(KafkaException):
                at = TopicPartition(topic, partition)
                found = self._consumer.get_watermark_offsets(at, timeout=CALL_S)
                if found is not None:
                    return int(found[1])
        return 0

    def _next_bad(self) -> float:
        return time.monotonic() + self.random.uniform(*BAD_EVERY_S)

    def step(self) -> None:
        """Run one transaction, at the rate of the task."""
        count = self.random.randint(1, RECORDS_MAX)
        due = time.monotonic() + count / self.task.rate
        if time.monotonic() >= self._bad_at:
            self._bad_at = self._next_bad()
            self._misbehave(self.random.choice(BAD_ACTS), count)
        else:
            txn = self.begin(self._session)
            whole = self._fill(self._session, txn, count)
            if whole and self.random.random() >= ABORTS:
                end = self.commit(self._session, txn)
                self.tally["acked"] += count * (end.outcome == Outcome.COMMITTED)
            else:
                end = self.abort(self._session, txn)
            if not end.usable:
                self._session = self.open_session()
        while (left := due - time.monotonic()) > 0:
            self._read(min(left, POLL_S))

    def _fill(self, session: Session, txn: int, count: int) -> bool:
        """Send the records of a transaction and read; return whether all could be sent."""
        try:
            for _ in range(count):
                partition = self.random.randrange(self.task.partitions)
                self.send(session, txn, INPUT, partition)
                if self.random.random() < 0.3:
                    self._read(self.random.choice((0.0, 0.005)), txn)
            if self.random.random() < 0.3:
                session.producer.flush(self.random.choice((0.01, 1.0)))
        except (KafkaException, BufferError):
            return False
        return True

    def _read(self, seconds: float, *txn: int) -> None:
        self.journal_reads(self._reader, self._consumer.consume(500, seconds), *txn)

    def _misbehave(self, act: str, count: int) -> None:
        self.tally[act] += 1
        if act == "let it time out":
            once = f"{self.transactional_id}-once-{self.next_number()}"
            session = self.open_session(
                once,
                **{
                    "transaction.timeout.ms": SHORT_TIMEOUT_MS,
                    "message.timeout.ms": SHORT_TIMEOUT_MS,
                },
            )
            self._fill(session, self.begin(session), count)
            session.producer.flush(1.0)
            return
        old = self._session
        txn = self.begin(old)
        if act == "die":
            self.die_soon(0.05)
        self._fill(old, txn, count)
        if act == "die later":
            self.die_soon(0.05)
        if act.startswith("die"):
            self.commit(old, txn)
            self.die()
        old.producer.flush(self.random.choice((0.0, 1.0)))
        self._session = self.open_session()
        if act == "zombie":
            self._fill(old, txn, self.random.randrange(3))
            self.commit(old, txn)

    def close(self) -> None:
        self._consumer.close()
        super().close()


def run(link: RunLink) -> None:
    """Write until the run stops."""
    run_client(Writer(link))
