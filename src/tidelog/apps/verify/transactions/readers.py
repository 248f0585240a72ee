"""Two read-committed consumers outside of any transaction.

One reads both topics from the start to the end. The other starts at a random offset, reads a
little, and starts again elsewhere: the broker must then return all aborted transactions that began
before that offset.
"""

import time

from confluent_kafka import TopicPartition

from tidelog.apps.verify.transactions.client import TxnClient, reader_of
from tidelog.apps.verify.transactions.names import FULL_READER
from tidelog.apps.verify.workload.worker import RunLink, read_to_the_end

JUMP_EVERY_S = 0.5
RECORDS_MAX = 2000


class CommittedReaders(TxnClient):
    """Both consumers; the positions are those of the one that reads everything."""

    def __init__(self, link: RunLink) -> None:
        super().__init__(link)
        partitions = range(self.task.partitions)
        places = [(topic, partition) for topic in self.topics for partition in partitions]
        self.positions = [0] * len(places)
        """The next offset of each input partition, then of each output partition."""
        self.count = 0
        self.fatal = ""
        self._places = places
        self._index = {place: index for index, place in enumerate(places)}
        self._whole = reader_of(self.task, "reader")
        self._whole.assign([TopicPartition(*place, 0) for place in places])
        self._jumping = reader_of(self.task, "jumping-reader")
        self._jumps = 0
        self._jumped = 0.0

    def poll(self) -> None:
        """Read the next records; at random times start again at another offset."""
        messages = self._whole.consume(RECORDS_MAX, 0.1)
        self.count += self.journal_reads(FULL_READER, messages)
        for message in messages:
            topic, partition, offset = message.topic(), message.partition(), message.offset()
            if message.error() is None and topic and partition is not None and offset is not None:
                self.positions[self._index[topic, partition]] = offset + 1
        if time.monotonic() - self._jumped >= JUMP_EVERY_S:
            self._jumped = time.monotonic()
            self._jumps += 1
            place = self.random.choice(self._places)
            offset = self.random.randrange(self.positions[self._index[place]] + 1)
            self._jumping.assign([TopicPartition(*place, offset)])
        again = self._jumping.consume(RECORDS_MAX // 10, 0)
        self.journal_reads(f"reader of jump {self._jumps}", again)

    def close(self) -> None:
        self._whole.close()
        self._jumping.close()
        super().close()


def run(link: RunLink) -> None:
    """Read until the run stops, then up to the log ends that it names."""
    readers = CommittedReaders(link)
    read_to_the_end(link, readers, "read")
