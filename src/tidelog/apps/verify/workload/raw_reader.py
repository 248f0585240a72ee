"""A consumer on our own client that journals responses without decoding their batches.

It journals the leader epochs and checksums of batches and the offsets of each response. It reads
every partition from the start. Now and then it goes back to read a batch again, and looks up the
log ends. Each request has the leader epoch that the reader knows, so a response without an error
is from the leader of that epoch. The reader ignores metadata with an older epoch.
"""

import time
from collections import defaultdict
from random import Random

from tidelog.apps.verify.journals import Journal, Kind, MarkKind
from tidelog.apps.verify.workload.worker import RunLink, Task, read_to_the_end
from tidelog.core.api_table import LIST_OFFSETS
from tidelog.core.errors import ErrorCode
from tidelog.core.record.record_batch import batches
from tidelog.core.types import TopicPartition
from tidelog.shell.client.client_errors import ClientError
from tidelog.shell.client.fetching import (
    CONSUMER,
    READ_COMMITTED,
    FetchedPartition,
    FetchFrom,
    fetch,
)
from tidelog.shell.client.offsets import LATEST

RESPONSE_S = 2.0
SKIP_S = 1.0
"""How long a broker that did not respond is skipped, so that the others need not wait."""
WAIT_MS = 50
PARTITION_BYTES = 1 << 20
BACK_BYTES = 1 << 16
BACK_EVERY_S = 0.3
LIST_EVERY_S = 0.25
REFRESH_EVERY_S = 0.1
IDLE_S = 0.01


class RawReader:
    """A consumer that journals batches and offsets."""

    def __init__(self, task: Task) -> None:
        self.positions = [0] * task.partitions
        self.count = 0
        self.fatal = ""
        name = f"reader{task.names[0]}"
        self._task = task
        self._batches = Journal(task.folder, Kind.BATCHES, name, task.partitions)
        self._marks = Journal(task.folder, Kind.MARKS, name, task.partitions)
        self._random = Random(f"reader {task.seed}")
        self._cluster = task.cluster(f"verify-{name}", RESPONSE_S)
        self._leaders: dict[int, int] = {}
        """Leaders by partition; missing where unknown."""
        self._epochs = [-1] * task.partitions
        """The newest leader epoch known."""
        self._skipped: dict[int, float] = {}
        self._refreshed = self._listed = self._went_back = float("-inf")

    def poll(self) -> None:
        """Fetch from every leader; now and then go back, or look up the ends of logs."""
        now = time.monotonic()
        list_ends = now - self._listed >= LIST_EVERY_S
        go_back = now - self._went_back >= BACK_EVERY_S
        before = self.count
        for leader, partitions in self._by_leader(now).items():
            self._fetch(leader, {p: self.positions[p] for p in partitions}, PARTITION_BYTES)
            if list_ends:
                self._listed = now
                self._list_ends(leader, partitions)
            if go_back:
                self._went_back = now
                partition = self._random.choice(partitions)
                back = self._random.randrange(self.positions[partition] + 1)
                self._fetch(leader, {partition: back}, BACK_BYTES)
        if self.count == before:
            time.sleep(IDLE_S)

    def close(self) -> None:
        """Write all rows to disk."""
        self._cluster.close()
        self._batches.close()
        self._marks.close()

    # -- leaders

    def _by_leader(self, now: float) -> dict[int, list[int]]:
        if len(self._leaders) < self._task.partitions and now - self._refreshed >= REFRESH_EVERY_S:
            self._refreshed = now
            self._refresh()
        found = defaultdict(list)
        for partition, leader in self._leaders.items():
            if self._skipped.get(leader, 0.0) <= now:
                found[leader].append(partition)
        return found

    def _refresh(self) -> None:
        try:
            topic = self._cluster.refresh([self._task.topic]).topics.get(self._task.topic)
        except ClientError:
            return
        for partition, seen in topic.partitions.items() if topic else ():
            if seen.leader >= 0 and seen.leader_epoch >= self._epochs[partition]:
                self._leaders[partition] = seen.leader
                self._epochs[partition] = seen.leader_epoch

    # -- requests

    def _fetch(self, leader: int, offsets: dict[int, int], max_bytes: int) -> None:
        epochs = list(self._epochs)
        wanted = {
            TopicPartition(self._task.topic, p): FetchFrom(offset, epochs[p], max_bytes)
            for p, offset in offsets.items()
        }
        try:
            broker = self._cluster.broker(leader)
            topics = self._cluster.metadata.topics
            response = fetch(broker, topics, wanted, READ_COMMITTED, WAIT_MS)
        except ClientError:
            self._skip(leader)
            return
        for (_, partition), found in response.items():
            if not found.error:
                self._journal(partition, epochs[partition], found)
            elif found.error == ErrorCode.OFFSET_OUT_OF_RANGE:
                row = (epochs[partition], self._task.ticks(), -1, -1, -1)
                self._marks.add(partition, MarkKind.OUT_OF_RANGE, *row)
            else:
                self._leaders.pop(partition, None)

    def _journal(self, partition: int, epoch: int, found: FetchedPartition) -> None:
        """Journal the response for one partition."""
        last = -1
        for batch in batches(found.records):
            last = batch.last_offset
            row = (batch.base_offset, batch.last_offset, batch.leader_epoch, batch.crc)
            self._batches.add(partition, *row)
            if batch.next_offset > self.positions[partition]:
                self.positions[partition] = batch.next_offset
                self.count += batch.count
        marks = (found.high_watermark, found.last_stable_offset, last)
        self._marks.add(partition, MarkKind.FETCH, epoch, self._task.ticks(), *marks)

    def _list_ends(self, leader: int, partitions: list[int]) -> None:
        partitions_wanted = [
            {"partition_index": p, "current_leader_epoch": self._epochs[p], "timestamp": LATEST}
            for p in partitions
        ]
        topic = {"name": self._task.topic, "partitions": partitions_wanted}
        request = {"replica_id": CONSUMER, "isolation_level": 0, "topics": [topic]}
        try:
            response = self._cluster.broker(leader).call(LIST_OFFSETS, request)
        except ClientError:
            self._skip(leader)
            return
        for found in response["topics"][0]["partitions"]:
            if not found["error_code"]:
                row = (found["leader_epoch"], self._task.ticks(), found["offset"], -1, -1)
                self._marks.add(found["partition_index"], MarkKind.LIST_LATEST, *row)

    def _skip(self, leader: int) -> None:
        """Skip a broker for a while and look for other leaders."""
        self._skipped[leader] = time.monotonic() + SKIP_S
        for partition in [p for p, held in self._leaders.items() if held == leader]:
            del self._leaders[partition]


def run(link: RunLink) -> None:
    """Read until the run stops, then up to the log ends that it names."""
    read_to_the_end(link, RawReader(link.task), "read raw")
