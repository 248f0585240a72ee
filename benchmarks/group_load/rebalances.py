"""A group of fifty consumers over a hundred partitions: start, join, leave, dead coordinator.

The group is measured twice: with librdkafka consumers, and with bare JoinGroup and SyncGroup
requests.
"""

import json
import queue
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from group_load.figures import Figures
from group_load.targets import HERE, PARTITIONS, TOPIC, Stopwatch, Target

from tidelog.core.api_table import JOIN_GROUP, SYNC_GROUP
from tidelog.core.errors import ErrorCode
from tidelog.shell.client.cluster import Cluster
from tidelog.shell.client.connection import KafkaConnection
from tidelog.shell.client.groups.consumer_protocol import (
    PROTOCOL_TYPE,
    RANGE,
    assign_ranges,
    encode_assignment,
    encode_subscription,
)
from tidelog.shell.client.groups.group_admin import find_coordinator

MEMBERS = 50
PROCESSES = 2
HEARTBEAT_MS = 200
PATIENCE_S = 60.0
GROUP = "fifty"
GENERATIONS = 20


# -- librdkafka consumers ------------------------------------------------------------------


class ConsumerProcesses:
    """Processes of librdkafka consumers, and the assignments and commits that they reported."""

    def __init__(self, target: Target) -> None:
        self.assigned: dict[int, tuple[float, list[int]]] = {}
        self.committed: dict[int, float] = {}
        self.members: set[int] = set()
        self.rebalances = 0
        self._reports: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        arguments = [target.bootstrap, GROUP, TOPIC, str(HEARTBEAT_MS)]
        self._processes = [
            subprocess.Popen(
                [sys.executable, HERE / "librdkafka_members.py", *arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            for _ in range(PROCESSES)
        ]
        self._readers = [
            threading.Thread(target=self._read_reports, args=(process,))
            for process in self._processes
        ]
        for reader in self._readers:
            reader.start()

    def _read_reports(self, process: "subprocess.Popen[str]") -> None:
        for line in process.stdout or ():
            self._reports.put(json.loads(line))

    def close(self) -> None:
        for process in self._processes:
            process.kill()
            process.wait()
        for reader in self._readers:
            reader.join()
        for process in self._processes:
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    pipe.close()

    @property
    def pids(self) -> list[int]:
        return [process.pid for process in self._processes]

    def send(self, verb: str, numbers: Sequence[int] = ()) -> None:
        """Send a command to the processes of these members; without numbers, to all processes."""
        for at, process in enumerate(self._processes):
            own = [number for number in numbers if number % PROCESSES == at]
            if own or not numbers:
                assert process.stdin is not None
                process.stdin.write(" ".join(map(str, [verb, *own])) + "\n")
                process.stdin.flush()

    def wait(self, done: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not done():
            try:
                fact = self._reports.get(timeout=max(deadline - time.monotonic(), 0))
            except queue.Empty:
                raise SystemExit(f"timeout after {PATIENCE_S:g} s: {what}") from None
            if "assigned" in fact:
                number, partitions = fact["assigned"]
                self.rebalances += 1
                self.assigned[number] = (fact["at"], partitions)
            else:
                self.committed[fact["committed"]] = fact["at"]

    def is_balanced(self, since: float) -> bool:
        """Return whether all members got partitions after `since`, each partition once."""
        assigned = [self.assigned.get(number, (0.0, [])) for number in self.members]
        every = sorted(partition for _, partitions in assigned for partition in partitions)
        return every == list(range(PARTITIONS)) and min(at for at, _ in assigned) > since


def librdkafka_group(target: Target, figures: Figures) -> None:
    """Measure a group that starts, grows by one, shrinks by one, and loses its coordinator."""
    consumers = ConsumerProcesses(target)

    def timed(job: str, verb: str, numbers: list[int]) -> None:
        watch = Stopwatch(target, consumers.pids)
        consumers.send(verb, numbers)
        consumers.wait(lambda: consumers.is_balanced(watch.began), job)
        watch.stop(max(at for at, _ in map(consumers.assigned.__getitem__, consumers.members)))
        figures.note(job, target, watch.seconds, "s", watch)

    try:
        consumers.members = set(range(MEMBERS))
        timed("librdkafka: 50 consumers start, all have their share", "add", list(range(MEMBERS)))
        consumers.members.add(MEMBERS)
        timed("librdkafka: the 51st joins, all have their share", "add", [MEMBERS])
        consumers.members.remove(7)
        timed("librdkafka: one leaves, all have their share", "leave", [7])
        if target.can_be_killed:
            _kill_coordinator(target, consumers, figures)
    finally:
        consumers.close()


def _kill_coordinator(target: Target, consumers: ConsumerProcesses, figures: Figures) -> None:
    """Kill the coordinator, and measure until every member's commit has succeeded.

    The group does not have to rebalance, so an assignment cannot mark the end.
    """
    with Cluster(target.bootstrap) as client:
        coordinator = find_coordinator(client, GROUP)
    before = consumers.rebalances
    target.kill(coordinator)
    watch = Stopwatch(target, consumers.pids)
    consumers.send("commit")
    consumers.wait(
        lambda: consumers.committed.keys() >= consumers.members, "all commit after a kill"
    )
    watch.stop(max(consumers.committed[number] for number in consumers.members))
    figures.note(
        "librdkafka: coordinator killed, all have committed", target, watch.seconds, "s", watch
    )
    figures.note(
        "librdkafka: ... assignments received meanwhile",
        target,
        consumers.rebalances - before,
        "times",
    )


# -- the protocol alone --------------------------------------------------------------------


class Member:
    """One group member with a connection of its own."""

    def __init__(self, connection: KafkaConnection) -> None:
        self.connection = connection
        self.member_id = ""
        self.joined: dict[str, Any] = {}

    def send_join(self, generation: int) -> Any:
        """Send JoinGroup with new metadata, so that the first such request starts a rebalance."""
        metadata = encode_subscription([TOPIC]) + generation.to_bytes(4, "big")
        request = {
            "group_id": "bare",
            "session_timeout_ms": 30_000,
            "rebalance_timeout_ms": 30_000,
            "member_id": self.member_id,
            "protocol_type": PROTOCOL_TYPE,
            "protocols": [{"name": RANGE, "metadata": metadata}],
        }
        # From version 4 on, a new member has to send JoinGroup twice.
        return self.connection.ask(JOIN_GROUP, request, 3)

    def send_sync(self) -> Any:
        assignments = []
        if self.joined["leader"] == self.member_id:
            wanted = {one["member_id"]: [TOPIC] for one in self.joined["members"]}
            assignments = [
                {"member_id": member, "assignment": encode_assignment(partitions)}
                for member, partitions in assign_ranges(wanted, {TOPIC: PARTITIONS}).items()
            ]
        request = {
            "group_id": "bare",
            "generation_id": self.joined["generation_id"],
            "member_id": self.member_id,
            "assignments": assignments,
        }
        return self.connection.ask(SYNC_GROUP, request, 2)

    def response(self, sent: Any) -> dict[str, Any]:
        answer = self.connection.answer(sent)
        if answer["error_code"]:
            raise SystemExit(
                f"a request of the bare protocol failed: {ErrorCode(answer['error_code']).name}"
            )
        return answer


def _generation(members: list[Member], number: int) -> None:
    """Let all members join and sync. All requests are sent before the first response is read."""
    joins = [member.send_join(number) for member in members]
    for member, sent in zip(members, joins, strict=True):
        member.joined = member.response(sent)
        member.member_id = member.joined["member_id"]
    syncs = [member.send_sync() for member in members]
    for member, sent in zip(members, syncs, strict=True):
        member.response(sent)


def bare_protocol(target: Target, figures: Figures) -> None:
    """Measure generations of fifty members: JoinGroup and SyncGroup of each, nothing else."""
    with Cluster(target.bootstrap, timeout_s=PATIENCE_S) as client:
        coordinator = find_coordinator(client, "bare")
        members = [Member(client.own_connection(coordinator)) for _ in range(MEMBERS)]
        try:
            _generation(members[:1], 0)
            # The first member is a group already. It must join last, or it gets a response alone.
            joins = [(member, member.send_join(1)) for member in members[1:]]
            time.sleep(0.2)
            joins.append((members[0], members[0].send_join(1)))
            for member, sent in joins:
                member.joined = member.response(sent)
                member.member_id = member.joined["member_id"]
            for member, sent in [(member, member.send_sync()) for member in members]:
                member.response(sent)
            took = []
            watch = Stopwatch(target)
            for number in range(GENERATIONS):
                began = time.monotonic()
                _generation(members, 2 + number)
                took.append(time.monotonic() - began)
            watch.stop()
        finally:
            for member in members:
                member.connection.close()
    job = "bare protocol: 50 members join and sync, one generation"
    figures.note(job, target, statistics.median(took) * 1e3, "ms", watch)
