"""Producers and a consumer on librdkafka, a client that shares no code with ours.

They use librdkafka's defaults, except for how soon they notice that a broker hangs. By default
librdkafka waits a minute for a response; a test of a few minutes would then measure the client's
time-out, not the cluster's recovery.
"""

import time
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from tidelog.apps.verify.journals import Journal, Kind, MarkKind, Outcome
from tidelog.apps.verify.record_value import FIELDS, read_id
from tidelog.apps.verify.workload.ledger import Ledger, Pace, sent_by, total_of
from tidelog.apps.verify.workload.librdkafka_security import librdkafka_security
from tidelog.apps.verify.workload.worker import (
    REPORT_EVERY_S,
    RunLink,
    Task,
    read_to_the_end,
    send_report,
)

FLUSH_S = 60.0
QUEUE_MAX = 20_000
"""Maximum number of records that wait in a producer: limits the loss if a worker dies."""


def shared_settings(task: Task, name: str) -> dict[str, Any]:
    """Settings of every client."""
    return {
        "bootstrap.servers": task.bootstrap,
        "client.id": name,
        "socket.timeout.ms": 3000,
        "reconnect.backoff.ms": 50,
        "reconnect.backoff.max.ms": 500,
        "topic.metadata.refresh.interval.ms": 1000,
        "log_level": 0,
        **librdkafka_security(task.security),
    }


def producer_settings(task: Task, name: str) -> dict[str, Any]:
    """Settings of a producer. No record times out within a run: it is written, or it waits."""
    return shared_settings(task, name) | {
        "acks": task.acks,
        "enable.idempotence": task.idempotence,
        "linger.ms": 5,
        "request.timeout.ms": 2500,
        "message.timeout.ms": 300_000,
        "retry.backoff.max.ms": 500,
        "queue.buffering.max.messages": QUEUE_MAX,
    }


def consumer_settings(task: Task, name: str) -> dict[str, Any]:
    """Settings of a consumer: it commits nothing, and an offset out of range is an error."""
    return shared_settings(task, name) | {
        "group.id": f"{task.topic}-{name}",
        "enable.auto.commit": False,
        "auto.offset.reset": "error",
        "isolation.level": "read_committed",
        "check.crcs": True,
        "fetch.wait.max.ms": 100,
        "fetch.error.backoff.ms": 100,
    }


BURST = 20
"""Records that a producer sends to one partition before it turns to the next."""


class LibrdkafkaProducer:
    """One producer and its ledger."""

    def __init__(self, task: Task, name: int) -> None:
        self.ledger = Ledger(task, name)
        self.fatal = ""
        self._topic = task.topic
        self._partitions = task.partitions
        self._turn = name
        self._client = Producer(producer_settings(task, f"verify-{name}"))

    def send(self, count: int) -> int:
        """Send up to `count` records in bursts, to each partition in turn; return the number."""
        sent = 0
        while sent < count and not self.fatal:
            partition = self._turn % self._partitions
            self._turn += 1
            for _ in range(min(BURST, count - sent)):
                if not self._send_one(partition):
                    return sent
                sent += 1
        return sent

    def _send_one(self, partition: int) -> bool:
        value = self.ledger.next_value(partition)
        try:
            self._client.produce(
                self._topic, value, partition=partition, on_delivery=self._on_delivery
            )
        except BufferError:
            self.ledger.take_back(partition)
            return False
        except KafkaException as error:
            self.ledger.take_back(partition)
            self._note(error.args[0])
            return False
        return True

    def _note(self, error: Any) -> None:
        if error.fatal() or error.code() == KafkaError._FATAL:  # noqa: SLF001 - its public name
            self.fatal = str(error)

    def _on_delivery(self, error: KafkaError | None, message: Message) -> None:
        value = message.value()
        assert isinstance(value, bytes)
        _, _, partition, sequence, _ = FIELDS.unpack_from(value)
        offset = message.offset()
        if error is not None:
            # An error may follow an attempt whose response was lost: the outcome is unknown.
            self._note(error)
            offset = Outcome.UNKNOWN
        elif offset is None or offset < 0:
            offset = Outcome.NO_OFFSET
        self.ledger.settle(partition, sequence, offset, message.latency() or 0.0)

    def poll(self, seconds: float) -> None:
        """Process the results of sends."""
        self._client.poll(seconds)

    def close(self, deadline_s: float) -> None:
        """Wait for open sends; the outcome of the rest is unknown."""
        self._client.flush(max(0.1, deadline_s - time.monotonic()))
        self._client.purge()
        self._client.flush(1.0)
        self.ledger.close()


def run_producers(link: RunLink) -> None:
    """Send at the rate of the task until the run stops."""
    task = link.task
    producers = [LibrdkafkaProducer(task, name) for name in task.names]
    ledgers = [producer.ledger for producer in producers]
    pace = Pace(task.rate, time.monotonic())
    reported = 0.0
    while not link.stopping:
        due = pace.due(time.monotonic())
        for number, producer in enumerate(producers):
            share = (due + number) // len(producers)
            pace.done(producer.send(share))
            producer.poll(0)
        producers[0].poll(0.005)
        if time.monotonic() - reported >= REPORT_EVERY_S:
            reported = time.monotonic()
            send_report(tally=total_of(ledgers))
    deadline = time.monotonic() + FLUSH_S
    for producer in producers:
        producer.close(deadline)
    fatal = [f"producer {p.ledger.producer}: {p.fatal}" for p in producers if p.fatal]
    send_report(tally=total_of(ledgers), sent=sent_by(ledgers), fatal=fatal, done=True)


_OUT_OF_RANGE = (
    KafkaError._AUTO_OFFSET_RESET,  # noqa: SLF001 - its public name
    KafkaError.OFFSET_OUT_OF_RANGE,
)


class LibrdkafkaConsumer:
    """A consumer that journals each record it reads."""

    def __init__(self, link: RunLink) -> None:
        task = link.task
        name = f"consumer{task.names[0]}"
        self.positions = [0] * task.partitions
        self.count = 0
        self.fatal = ""
        self._task = task
        self._tag = bytes.fromhex(task.tag)
        self._reads = Journal(task.folder, Kind.READS, name, task.partitions)
        self._marks = Journal(task.folder, Kind.MARKS, name, task.partitions)
        self._client = Consumer(consumer_settings(task, name))
        self._client.assign([TopicPartition(task.topic, p, 0) for p in range(task.partitions)])

    def poll(self) -> None:
        """Read the next messages, or wait a little for them."""
        for message in self._client.consume(2000, 0.1):
            error = message.error()
            if error is None:
                self._journal(message)
            elif error.code() in _OUT_OF_RANGE:
                partition = message.partition()
                row = (MarkKind.OUT_OF_RANGE, -1, self._task.ticks(), -1, -1, -1)
                self._marks.add(0 if partition is None else partition, *row)
            elif error.fatal():
                self.fatal = str(error)

    def _journal(self, message: Message) -> None:
        partition, offset, value = message.partition(), message.offset(), message.value()
        assert partition is not None
        assert offset is not None
        epoch = message.leader_epoch()
        found = read_id(value if isinstance(value, bytes) else None, self._tag, partition)
        self._reads.add(partition, offset, found, -1 if epoch is None else epoch)
        self.positions[partition] = max(self.positions[partition], offset + 1)
        self.count += 1

    def close(self) -> None:
        """Write all rows to disk."""
        self._client.close()
        self._reads.close()
        self._marks.close()


def run_consumer(link: RunLink) -> None:
    """Read until the run stops, then up to the log ends that it names."""
    read_to_the_end(link, LibrdkafkaConsumer(link), "read")
