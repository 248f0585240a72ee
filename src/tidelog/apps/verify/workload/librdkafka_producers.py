"""Producers on librdkafka, a client that shares no line with ours."""

import time
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from tidelog.apps.verify.history.rows import Outcome
from tidelog.apps.verify.record_value import FIELDS
from tidelog.apps.verify.workload import librdkafka_settings
from tidelog.apps.verify.workload.ledger import Ledger
from tidelog.apps.verify.workload.orders import REPORT_EVERY_S, Orders, Task, say
from tidelog.apps.verify.workload.pace import Pace

BURST = 20
"""Records for one partition before the next one's turn."""


class LibrdkafkaProducer:
    """One producer and its books."""

    def __init__(self, task: Task, name: int) -> None:
        self.ledger = Ledger(task, name)
        self.fatal = ""
        self._topic = task.topic
        self._partitions = task.partitions
        self._turn = name
        self._client = Producer(librdkafka_settings.producer(task, f"verify-{name}"))

    def send(self, count: int) -> int:
        """Up to `count` records, a burst to each partition in turn; how many were taken."""
        taken = 0
        while taken < count and not self.fatal:
            partition = self._turn % self._partitions
            self._turn += 1
            for _ in range(min(BURST, count - taken)):
                if not self._send_one(partition):
                    return taken
                taken += 1
        return taken

    def _send_one(self, partition: int) -> bool:
        value = self.ledger.next_value(partition)
        try:
            self._client.produce(self._topic, value, partition=partition, on_delivery=self._ended)
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

    def _ended(self, error: KafkaError | None, message: Message) -> None:
        value = message.value()
        assert isinstance(value, bytes)
        _, _, partition, sequence, _ = FIELDS.unpack_from(value)
        offset = message.offset()
        if error is not None:
            # An error may follow a try whose answer was lost, so it settles nothing.
            self._note(error)
            offset = Outcome.UNKNOWN
        elif offset is None or offset < 0:
            offset = Outcome.NO_OFFSET
        self.ledger.settle(partition, sequence, offset, message.latency() or 0.0)

    def poll(self, seconds: float) -> None:
        """Hear of sends that have ended."""
        self._client.poll(seconds)

    def close(self, deadline_s: float) -> None:
        """Wait for what is open; what remains is unknown."""
        self._client.flush(max(0.1, deadline_s - time.monotonic()))
        self._client.purge()
        self._client.flush(1.0)
        self.ledger.close()


def run(orders: Orders) -> None:
    """Send at the pace asked for until told to stop."""
    task = orders.task
    producers = [LibrdkafkaProducer(task, name) for name in task.names]
    pace = Pace(task.rate, time.monotonic())
    reported = 0.0
    while not orders.stopping:
        due = pace.due(time.monotonic())
        for number, producer in enumerate(producers):
            share = (due + number) // len(producers)
            pace.done(producer.send(share))
            producer.poll(0)
        producers[0].poll(0.005)
        if time.monotonic() - reported >= REPORT_EVERY_S:
            reported = time.monotonic()
            say(tally=_tally(producers))
    deadline = time.monotonic() + librdkafka_settings.FLUSH_S
    for producer in producers:
        producer.close(deadline)
    say(
        tally=_tally(producers),
        sent={str(p.ledger.producer): p.ledger.sent for p in producers},
        fatal=[f"producer {p.ledger.producer}: {p.fatal}" for p in producers if p.fatal],
        done=True,
    )


def _tally(producers: list[LibrdkafkaProducer]) -> dict[str, int]:
    words = ("acked", "unknown", "refused")
    return {word: sum(p.ledger.tally[word] for p in producers) for word in words}
