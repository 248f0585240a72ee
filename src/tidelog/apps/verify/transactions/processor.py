"""A processor: a member of a consumer group that writes an output record for each input record.

Output and consumed offsets are committed in one transaction, and the group fences members that
lost their partitions. Some transactions are aborted on purpose. Every few seconds a member
misbehaves: it kills itself, leaves and joins again, opens a second session and commits with the
first one, or stays silent until the group has removed it and then commits.

librdkafka (2.16) loses a committed offset if its assignment changes while an offset of a
transaction is pending: the coordinator answers UNSTABLE_OFFSET_COMMIT without an offset, and
librdkafka then acts as if nothing was committed. With a reset to the earliest offset it would
process all records twice, also on Apache Kafka. So the run commits the first offsets, a reset is an
error here, and the member joins again. An offset that a coordinator has lost leaves the group
stuck, which is reported.
"""

import time
from collections.abc import Sequence
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from tidelog.apps.verify.checker.transactions.events import OUTPUT, Outcome
from tidelog.apps.verify.transactions.client import (
    END_S,
    End,
    Session,
    TxnClient,
    done,
    reader_of,
    run_client,
)
from tidelog.apps.verify.transactions.names import assignor, group
from tidelog.apps.verify.workload.worker import RunLink, send_report

ABORTS = 0.1
BAD_EVERY_S = (5.0, 12.0)
BAD_ACTS = ("die", "die later", "zombie", "leave the group", "leave the group", "stall")
SESSION_MS = 6000
STALL_S = 8.0
"""Longer than the longest allowed pause between polls, shorter than the time-out of a
transaction."""
AWAY_S = 2.0
DIE_S = 0.05
NO_COMMITTED = "no previously committed offset"
"""librdkafka's text for a reset that no broker has caused."""
RECORDS_MAX = 60
POLL_S = 0.2


class Processor(TxnClient):
    """A consumer of the group and a transactional producer."""

    def __init__(self, link: RunLink) -> None:
        super().__init__(link)
        self._positioned = 0
        """How often the consumer was positioned."""
        self._batch: list[Message] = []
        self._lost_position = False
        self._session = self.open_session()
        self._consumer = self._join()
        self._bad_at = self._next_bad()

    def _next_bad(self) -> float:
        return time.monotonic() + self.random.uniform(*BAD_EVERY_S)

    def _join(self) -> Consumer:
        consumer = reader_of(
            self.task,
            f"processor{self.client}",
            **{
                "group.id": group(self.task.topic),
                "session.timeout.ms": SESSION_MS,
                "heartbeat.interval.ms": 1000,
                "max.poll.interval.ms": SESSION_MS,
                "partition.assignment.strategy": assignor(self.task.seed),
            },
        )
        consumer.subscribe(
            [self.task.topic],
            on_assign=self._on_assign,
            on_revoke=self._on_revoke,
            on_lost=self._on_revoke,
        )
        self._positioned += 1
        return consumer

    def _on_assign(self, _consumer: Any, _partitions: Sequence[TopicPartition]) -> None:
        self._positioned += 1
        self.tally["rebalances"] += 1

    def _on_revoke(self, _consumer: Any, partitions: Sequence[TopicPartition]) -> None:
        """Drop what was read from partitions that another member may process now."""
        lost = {each.partition for each in partitions}
        self._batch = [message for message in self._batch if message.partition() not in lost]
        self._positioned += 1

    def _poll(self) -> None:
        """Fill the batch. `poll` calls the methods above, so a batch never has lost partitions."""
        self._batch = []
        wanted = self.random.randint(1, RECORDS_MAX)
        message = self._consumer.poll(POLL_S)
        while message is not None:
            error = message.error()
            if error is None:
                self._batch.append(message)
            elif error.code() == KafkaError._AUTO_OFFSET_RESET:  # noqa: SLF001 - its public name
                self._note_reset(message.partition(), str(error))
            else:
                self.note_error(error)
            if len(self._batch) >= wanted:
                return
            message = self._consumer.poll(0)

    def _note_reset(self, partition: int | None, reason: str) -> None:
        if NO_COMMITTED in reason:
            self._lost_position = True
        else:
            text = f"client {self.client}: reset of input partition {partition}: {reason}"
            send_report(fatal=[text])

    def step(self) -> None:
        """Process what the next polls return, in one transaction."""
        self._poll()
        if self._lost_position:
            self._lost_position = False
            self.tally["lost positions"] += 1
            self._consumer.close()
            self._consumer = self._join()
            self.report()
            return
        if not self._batch:
            self.report()
            return
        member = self._consumer.consumer_group_metadata()
        act = ""
        if time.monotonic() >= self._bad_at and not self.link.stopping:
            self._bad_at = self._next_bad()
            act = self.random.choice(BAD_ACTS)
            self.tally[act] += 1
        session = self._session
        txn = self.begin(session)
        reader = f"processor {self.client}.{self.task.life}.{self._positioned}"
        self.journal_reads(reader, self._batch, txn)
        whole = self._fill(session, txn, member, act)
        if act == "zombie":
            self._session = self.open_session()
        if whole and (act or self.random.random() >= ABORTS):
            end = self.commit(session, txn)
        else:
            end = self.abort(session, txn)
        if act.startswith("die"):
            self.die()
        if act == "leave the group" or not (end.usable or act == "zombie"):
            self._join_again(end)
        elif end.outcome != Outcome.COMMITTED:
            self._rewind()

    def _fill(self, session: Session, txn: int, member: Any, act: str) -> bool:
        """Send the output and the offsets; return whether that succeeded."""
        if act == "die":
            self.die_soon(DIE_S)
        first_stall = act == "stall" and self.random.random() < 0.5
        if first_stall:
            time.sleep(STALL_S)
        offsets: dict[int, int] = {}
        try:
            for message in self._batch:
                partition, offset = message.partition(), message.offset()
                assert partition is not None
                assert offset is not None
                self.send(session, txn, OUTPUT, partition, (partition, offset))
                offsets[partition] = offset + 1
            commits = [TopicPartition(self.task.topic, p, at) for p, at in offsets.items()]
            until = time.monotonic() + END_S
            while not done(session.producer.send_offsets_to_transaction, commits, member):
                if time.monotonic() > until:
                    return False
        except (KafkaException, BufferError):
            return False
        if act == "stall" and not first_stall:
            time.sleep(STALL_S)
        if act == "die later":
            self.die_soon(DIE_S)
        return True

    def _rewind(self) -> None:
        """Process the batch again: its transaction was aborted."""
        first: dict[int, int] = {}
        for message in self._batch:
            partition, offset = message.partition(), message.offset()
            assert partition is not None
            assert offset is not None
            first.setdefault(partition, offset)
        self._positioned += 1
        try:
            for partition, offset in first.items():
                self._consumer.seek(TopicPartition(self.task.topic, partition, offset))
        except KafkaException:
            self._consumer.close()
            self._consumer = self._join()

    def _join_again(self, end: End) -> None:
        """Leave the group, and join it after a while; with a new session if the old one failed."""
        self._consumer.close()
        if not end.usable:
            self._session = self.open_session()
        time.sleep(self.random.uniform(0, AWAY_S))
        self._consumer = self._join()

    def close(self) -> None:
        self._consumer.close()
        super().close()


def run(link: RunLink) -> None:
    """Process until the run stops."""
    run_client(Processor(link))
