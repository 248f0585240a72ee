"""One member of a consumer group as a process, with one of three client libraries.

It reports on standard output and reads commands from standard input.

Lines out: {"assigned": [0, 1]} whenever that changes, {"record": [partition, offset, "value"]},
{"committed": {"0": 7}}, {"error": "..."}. Lines in: `commit`, `close`; the end of the input means
`close`.
"""

import asyncio
import json
import queue
import sys
import threading
import time
from collections.abc import Callable
from typing import Any, Protocol, TypeVar

T = TypeVar("T")

POLL_S = 0.1
PATIENCE_S = 120.0
CALL_S = 20.0
CONFLUENT, KAFKA_PYTHON, AIOKAFKA = "confluent-kafka", "kafka-python", "aiokafka"
LIBRARIES = (CONFLUENT, KAFKA_PYTHON, AIOKAFKA)


class Member(Protocol):
    """The common interface of the three libraries."""

    def poll(self) -> list[tuple[int, int, bytes]]: ...

    def assigned(self) -> list[int]: ...

    def commit(self) -> None:
        """Commit the offsets of the polled records."""
        ...

    def committed(self, partitions: list[int]) -> dict[int, int | None]: ...

    def close(self) -> None: ...


class Confluent:
    """A member with librdkafka."""

    def __init__(self, conf: dict[str, Any]) -> None:
        from confluent_kafka import Consumer

        self._topic: str = conf["topic"]
        wanted = {
            "bootstrap.servers": conf["bootstrap"],
            "group.id": conf["group"],
            "client.id": conf["client"],
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "session.timeout.ms": conf["session_ms"],
            "heartbeat.interval.ms": conf["heartbeat_ms"],
            "partition.assignment.strategy": conf["assignor"],
            "fetch.wait.max.ms": 100,
            "reconnect.backoff.ms": 10,
            "reconnect.backoff.max.ms": 200,
            "log_level": 0,
        }
        if conf["instance"]:
            wanted["group.instance.id"] = conf["instance"]
        self._consumer = Consumer(wanted)
        self._consumer.subscribe([self._topic])

    def poll(self) -> list[tuple[int, int, bytes]]:
        found = []
        for message in self._consumer.consume(100, POLL_S):
            partition, offset, value = message.partition(), message.offset(), message.value()
            if message.error() is not None:
                say(error=str(message.error()))
            elif partition is not None and offset is not None and value is not None:
                found.append((partition, offset, value))
        return found

    def assigned(self) -> list[int]:
        return sorted(at.partition for at in self._consumer.assignment())

    def commit(self) -> None:
        from confluent_kafka import KafkaError, KafkaException

        def commit() -> None:
            try:
                self._consumer.commit(asynchronous=False)
            except KafkaException as error:
                # It has read nothing since its partitions came to it; others commit nothing then.
                if error.args[0].code() != KafkaError._NO_OFFSET:
                    raise

        self._retry(commit)

    def committed(self, partitions: list[int]) -> dict[int, int | None]:
        from confluent_kafka import TopicPartition

        asked = [TopicPartition(self._topic, at) for at in partitions]
        told = self._retry(lambda: self._consumer.committed(asked, timeout=CALL_S))
        return {at.partition: at.offset if at.offset >= 0 else None for at in told}

    def _retry(self, call: Callable[[], T]) -> T:
        """Repeat a call while the coordinator moves, as the other two libraries do."""
        from confluent_kafka import KafkaError, KafkaException

        passing = (
            KafkaError.NOT_COORDINATOR,
            KafkaError.COORDINATOR_NOT_AVAILABLE,
            KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
            KafkaError.REQUEST_TIMED_OUT,
            KafkaError._TIMED_OUT,
            KafkaError._TRANSPORT,
            KafkaError._WAIT_COORD,
        )
        give_up = time.monotonic() + PATIENCE_S
        while True:
            try:
                return call()
            except KafkaException as error:
                if error.args[0].code() not in passing or time.monotonic() > give_up:
                    raise
            time.sleep(POLL_S)

    def close(self) -> None:
        self._consumer.close()


class KafkaPython:
    """A member with kafka-python."""

    def __init__(self, conf: dict[str, Any]) -> None:
        from kafka import KafkaConsumer  # type: ignore[import-untyped]
        from kafka.coordinator.assignors.cooperative_sticky import (  # type: ignore[import-untyped]
            CooperativeStickyAssignor,
        )
        from kafka.coordinator.assignors.range import (  # type: ignore[import-untyped]
            RangePartitionAssignor,
        )
        from kafka.coordinator.assignors.roundrobin import (  # type: ignore[import-untyped]
            RoundRobinPartitionAssignor,
        )

        assignors = {
            "range": RangePartitionAssignor,
            "roundrobin": RoundRobinPartitionAssignor,
            "cooperative-sticky": CooperativeStickyAssignor,
        }
        self._topic: str = conf["topic"]
        more = {"group_instance_id": conf["instance"]} if conf["instance"] else {}
        self._consumer: Any = KafkaConsumer(
            self._topic,
            bootstrap_servers=conf["bootstrap"],
            group_id=conf["group"],
            client_id=conf["client"],
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            session_timeout_ms=conf["session_ms"],
            heartbeat_interval_ms=conf["heartbeat_ms"],
            partition_assignment_strategy=[assignors[conf["assignor"]]],
            fetch_max_wait_ms=100,
            **more,
        )

    def poll(self) -> list[tuple[int, int, bytes]]:
        polled = self._consumer.poll(timeout_ms=int(POLL_S * 1000))
        return [
            (record.partition, record.offset, record.value)
            for records in polled.values()
            for record in records
        ]

    def assigned(self) -> list[int]:
        return sorted(at.partition for at in self._consumer.assignment())

    def commit(self) -> None:
        self._consumer.commit()

    def committed(self, partitions: list[int]) -> dict[int, int | None]:
        from kafka import TopicPartition

        return {at: self._consumer.committed(TopicPartition(self._topic, at)) for at in partitions}

    def close(self) -> None:
        self._consumer.close(autocommit=False)


class AioKafka:
    """A member with aiokafka; its event loop runs only during a call."""

    def __init__(self, conf: dict[str, Any]) -> None:
        from aiokafka import AIOKafkaConsumer  # type: ignore[import-untyped]
        from aiokafka.coordinator.assignors.range import (  # type: ignore[import-untyped]
            RangePartitionAssignor,
        )
        from aiokafka.coordinator.assignors.roundrobin import (  # type: ignore[import-untyped]
            RoundRobinPartitionAssignor,
        )

        assignors = {"range": RangePartitionAssignor, "roundrobin": RoundRobinPartitionAssignor}
        self._topic: str = conf["topic"]
        self._loop = asyncio.new_event_loop()

        async def begin() -> Any:
            consumer = AIOKafkaConsumer(
                self._topic,
                bootstrap_servers=conf["bootstrap"],
                group_id=conf["group"],
                client_id=conf["client"],
                group_instance_id=conf["instance"] or None,
                auto_offset_reset="earliest",
                enable_auto_commit=False,
                session_timeout_ms=conf["session_ms"],
                heartbeat_interval_ms=conf["heartbeat_ms"],
                partition_assignment_strategy=[assignors[conf["assignor"]]],
                fetch_max_wait_ms=100,
            )
            await consumer.start()
            return consumer

        self._consumer = self._loop.run_until_complete(begin())

    def poll(self) -> list[tuple[int, int, bytes]]:
        polled = self._loop.run_until_complete(
            self._consumer.getmany(timeout_ms=int(POLL_S * 1000))
        )
        return [
            (record.partition, record.offset, record.value)
            for records in polled.values()
            for record in records
        ]

    def assigned(self) -> list[int]:
        return sorted(at.partition for at in self._consumer.assignment())

    def commit(self) -> None:
        self._loop.run_until_complete(self._consumer.commit())

    def committed(self, partitions: list[int]) -> dict[int, int | None]:
        from aiokafka import TopicPartition

        async def ask() -> dict[int, int | None]:
            return {
                at: await self._consumer.committed(TopicPartition(self._topic, at))
                for at in partitions
            }

        return self._loop.run_until_complete(ask())

    def close(self) -> None:
        self._loop.run_until_complete(self._consumer.stop())
        self._loop.close()


def say(**what: Any) -> None:
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


def listen() -> "queue.Queue[str]":
    """Read commands from stdin; the end of the input means `close`."""
    commands: queue.Queue[str] = queue.Queue()

    def read() -> None:
        for line in sys.stdin:
            commands.put(line.strip())
        commands.put("close")

    threading.Thread(target=read, daemon=True).start()
    return commands


def run(member: Member) -> None:
    commands = listen()
    assigned: list[int] = []
    while True:
        for partition, offset, value in member.poll():
            say(record=[partition, offset, value.decode()])
        if (now := member.assigned()) != assigned:
            assigned = now
            say(assigned=assigned)
        try:
            command = commands.get_nowait()
        except queue.Empty:
            continue
        if command == "close":
            member.close()
            return
        try:
            member.commit()
            say(committed={str(at): offset for at, offset in member.committed(assigned).items()})
        except Exception as error:  # noqa: BLE001 - each library has its own; the test decides
            say(error=f"{type(error).__name__}: {error}")


def main() -> None:
    conf = json.loads(sys.argv[1])
    kinds: dict[str, Any] = {
        CONFLUENT: Confluent,
        KAFKA_PYTHON: KafkaPython,
        AIOKAFKA: AioKafka,
    }
    run(kinds[conf["library"]](conf))


if __name__ == "__main__":
    main()
