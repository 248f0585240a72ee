"""Many librdkafka consumers of one group in one process, which report their assignments.

Started by `how_far_do_groups_scale.py`. Input lines: `add 7`, `leave 7`, `commit`. When the input
ends, the process exits without leaving the group. Each output line has the time of a clock that all
processes share: {"assigned": [7, [0, 1]], "at": ...}, {"committed": 7, "at": ...}.

    librdkafka_members.py BOOTSTRAP GROUP TOPIC HEARTBEAT_MS
"""

import json
import os
import queue
import sys
import threading
import time
from typing import Any

from confluent_kafka import Consumer, KafkaError, TopicPartition

PAUSE_S = 0.001
RETRY_S = 0.02


class Members:
    """The consumers of this process, by number."""

    def __init__(self, bootstrap: str, group: str, topic: str, heartbeat_ms: str) -> None:
        self._topic = topic
        self._conf = {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "heartbeat.interval.ms": int(heartbeat_ms),
            "partition.assignment.strategy": "range",
            "enable.auto.commit": False,
            # Reconnect to a lost broker quickly: else we measure the client's backoff.
            "reconnect.backoff.ms": 10,
            "reconnect.backoff.max.ms": 100,
            "log_level": 0,
        }
        self._consumers: dict[int, Consumer] = {}
        self._assigned: dict[int, list[int]] = {}
        self._to_commit: dict[int, float] = {}
        """Members whose commit has not succeeded yet, and the time of the next try."""

    def execute(self, line: str) -> None:
        verb, *numbers = line.split()
        if verb == "commit":
            self._to_commit = {
                number: 0.0 for number, assigned in self._assigned.items() if assigned
            }
        for number in map(int, numbers):
            if verb == "add":
                self._add(number)
            elif verb == "leave":
                self._assigned.pop(number, None)
                self._consumers[number].unsubscribe()

    def _add(self, number: int) -> None:
        def on_assign(_consumer: Consumer, partitions: list[TopicPartition]) -> None:
            self._assigned[number] = [one.partition for one in partitions]
            report(assigned=[number, self._assigned[number]])

        def on_commit(error: KafkaError | None, partitions: list[TopicPartition]) -> None:
            if error is None and not any(one.error for one in partitions):
                self._to_commit.pop(number, None)
                report(committed=number)
            elif number in self._to_commit:
                self._to_commit[number] = time.monotonic() + RETRY_S

        conf = {**self._conf, "client.id": f"member-{number}", "on_commit": on_commit}
        consumer = self._consumers[number] = Consumer(conf)
        consumer.subscribe([self._topic], on_assign=on_assign)

    def step(self) -> None:
        now = time.monotonic()
        for number, at in list(self._to_commit.items()):
            if at <= now:
                self._to_commit[number] = now + 60
                offsets = [TopicPartition(self._topic, one, 0) for one in self._assigned[number]]
                self._consumers[number].commit(offsets=offsets, asynchronous=True)
        for consumer in self._consumers.values():
            consumer.poll(0)


def report(**fact: Any) -> None:
    print(json.dumps({**fact, "at": time.monotonic()}), flush=True)


def main() -> None:
    members = Members(*sys.argv[1:])
    lines: queue.SimpleQueue[str] = queue.SimpleQueue()

    def read_commands() -> None:
        for line in sys.stdin:
            lines.put(line)
        os._exit(0)

    threading.Thread(target=read_commands, daemon=True).start()
    while True:
        while not lines.empty():
            members.execute(lines.get())
        members.step()
        time.sleep(PAUSE_S)


if __name__ == "__main__":
    main()
