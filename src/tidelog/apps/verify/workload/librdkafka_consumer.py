"""A consumer on librdkafka: every record of every partition, in order, from the start."""

import time

from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

from tidelog.apps.verify.history.rows import Journal, Kind, MarkKind
from tidelog.apps.verify.record_value import read_id
from tidelog.apps.verify.workload import librdkafka_settings
from tidelog.apps.verify.workload.orders import REPORT_EVERY_S, Orders, say

CATCH_UP_S = 60.0
_OUT_OF_RANGE = (
    KafkaError._AUTO_OFFSET_RESET,  # noqa: SLF001 - its public name
    KafkaError.OFFSET_OUT_OF_RANGE,
)


class LibrdkafkaConsumer:
    """Reads and journals."""

    def __init__(self, orders: Orders) -> None:
        task = orders.task
        name = f"consumer{task.names[0]}"
        self.positions = [0] * task.partitions
        self.count = 0
        self.fatal = ""
        self._task = task
        self._tag = bytes.fromhex(task.tag)
        self._reads = Journal(task.folder, Kind.READS, name, task.partitions)
        self._marks = Journal(task.folder, Kind.MARKS, name, task.partitions)
        self._client = Consumer(librdkafka_settings.consumer(task, name))
        self._client.assign([TopicPartition(task.topic, p, 0) for p in range(task.partitions)])

    def poll(self) -> None:
        """Take what is there, or wait a little for it."""
        for message in self._client.consume(2000, 0.1):
            error = message.error()
            if error is None:
                self._take(message)
            elif error.code() in _OUT_OF_RANGE:
                partition = message.partition()
                row = (MarkKind.OUT_OF_RANGE, -1, self._task.ticks(), -1, -1, -1)
                self._marks.add(0 if partition is None else partition, *row)
            elif error.fatal():
                self.fatal = str(error)

    def _take(self, message: Message) -> None:
        partition, offset, value = message.partition(), message.offset(), message.value()
        assert partition is not None
        assert offset is not None
        epoch = message.leader_epoch()
        found = read_id(value if isinstance(value, bytes) else None, self._tag, partition)
        self._reads.add(partition, offset, found, -1 if epoch is None else epoch)
        self.positions[partition] = max(self.positions[partition], offset + 1)
        self.count += 1

    def close(self) -> None:
        """Every row on disk."""
        self._client.close()
        self._reads.close()
        self._marks.close()


def run(orders: Orders) -> None:
    """Read until told to stop, then up to the ends that the order names."""
    consumer = LibrdkafkaConsumer(orders)
    reported = 0.0
    deadline = float("inf")
    while not consumer.fatal and time.monotonic() < deadline:
        consumer.poll()
        if orders.stopping:
            deadline = min(deadline, time.monotonic() + CATCH_UP_S)
            if all(at >= end for at, end in zip(consumer.positions, orders.ends, strict=True)):
                break
        if time.monotonic() - reported >= REPORT_EVERY_S:
            reported = time.monotonic()
            say(tally={"read": consumer.count})
    consumer.close()
    fatal = [f"consumer: {consumer.fatal}"] if consumer.fatal else []
    say(tally={"read": consumer.count}, fatal=fatal, done=True)
