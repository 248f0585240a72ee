"""Commit offsets as fast as possible, from a few groups and from a thousand; kill a coordinator.

Requests are encoded beforehand and sent as bytes, so that the client costs little.
"""

import selectors
import socket
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from confluent_kafka import Consumer, TopicPartition
from group_load.figures import Figures, percentile
from group_load.targets import TOPIC, Stopwatch, Target

from tidelog.core.api_table import (
    DESCRIBE_GROUPS,
    FIND_COORDINATOR,
    LIST_GROUPS,
    OFFSET_COMMIT,
    OFFSET_FETCH,
)
from tidelog.core.errors import ErrorCode
from tidelog.core.types import BrokerId
from tidelog.core.wire.codec import decode_response, encode_request
from tidelog.shell.client.client_errors import ClientError
from tidelog.shell.client.cluster import Cluster
from tidelog.shell.client.groups.group_admin import MOVED, find_coordinator

VERSION = 8
ONE, MANY = 1000, 6400
COMMITTERS = 32
GROUPS = 1000
OFFSETS = 10
"""Partitions in each commit of a thousand groups."""
ROUNDS = 10
PATIENCE_S = 60.0
LENGTH_BYTES = 4


def frame(group: str, partitions: int, offset: int) -> bytes:
    """Encode a commit without a member id and generation, like an administrator's."""
    listed = [
        {"partition_index": index, "committed_offset": offset, "committed_metadata": ""}
        for index in range(partitions)
    ]
    request = {
        "group_id": group,
        "generation_id_or_member_epoch": -1,
        "member_id": "",
        "topics": [{"name": TOPIC, "partitions": listed}],
    }
    return encode_request(OFFSET_COMMIT, VERSION, 1, "bench", request)


class Committer:
    """One connection with one commit in flight; it sends the next one after each response."""

    def __init__(self, address: tuple[str, int], frames: Sequence[bytes]) -> None:
        self.socket = socket.create_connection(address)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.took: list[float] = []
        self._frames = frames
        self._sent_at = 0.0
        self._received = b""
        self._good = b""

    def send(self) -> bool:
        """Send the next commit; return False if all are done."""
        if len(self.took) == len(self._frames):
            return False
        self._sent_at = time.perf_counter()
        self.socket.sendall(self._frames[len(self.took)])
        return True

    def receive(self) -> bool:
        """Receive data and send the next commit; return False when all commits are done."""
        self._received += self.socket.recv(65536)
        length = int.from_bytes(self._received[:LENGTH_BYTES], "big") + LENGTH_BYTES
        if len(self._received) < LENGTH_BYTES or len(self._received) < length:
            return True
        answer, self._received = self._received, b""
        if answer != self._good and not self._is_good(answer):
            self.socket.sendall(self._frames[len(self.took)])
            return True
        self.took.append(time.perf_counter() - self._sent_at)
        return self.send()

    def _is_good(self, answer: bytes) -> bool:
        """Return whether the commit succeeded; False: send it again.

        Successful responses are byte-identical, so few of them are decoded.
        """
        body = decode_response(OFFSET_COMMIT, VERSION, answer[LENGTH_BYTES:])[1]
        codes = {one["error_code"] for topic in body["topics"] for one in topic["partitions"]}
        if codes == {ErrorCode.NONE}:
            self._good = answer
            return True
        if not codes.issubset(MOVED):
            raise SystemExit(f"a commit failed: error codes {sorted(codes)}")
        return False


def run_all(committers: Sequence[Committer]) -> list[float]:
    """Run all committers to their end; return the seconds of each commit."""
    with selectors.DefaultSelector() as selector:
        left = 0
        for committer in committers:
            if committer.send():
                selector.register(committer.socket, selectors.EVENT_READ, committer)
                left += 1
        while left:
            ready = selector.select(PATIENCE_S)
            if not ready:
                raise SystemExit(f"no response to a commit within {PATIENCE_S:g} s")
            for key, _ in ready:
                if not key.data.receive():
                    selector.unregister(key.fileobj)
                    left -= 1
    return [took for committer in committers for took in committer.took]


def coordinators(client: Cluster, groups: Sequence[str]) -> dict[str, BrokerId]:
    """Return the coordinator of each group."""
    return {group: find_coordinator(client, group) for group in groups}


@contextmanager
def connected(client: Cluster, work: Sequence[tuple[BrokerId, list[bytes]]]) -> Iterator[list]:
    known = client.metadata.brokers
    committers: list[Committer] = []
    try:
        for broker, frames in work:
            committers.append(Committer((known[broker].host, known[broker].port), frames))
        yield committers
    finally:
        for committer in committers:
            committer.socket.close()


# -- a few groups --------------------------------------------------------------------------


def few_groups(target: Target, figures: Figures) -> None:
    """Measure one committer, then 32, each with a group of its own and one partition a commit."""
    with Cluster(target.bootstrap) as client:
        for committers, commits in ((1, ONE), (COMMITTERS, MANY)):
            groups = [f"committer-{number}" for number in range(committers)]
            share = commits // committers
            found = coordinators(client, groups)
            warm = [(found[g], [frame(g, 1, 0)] * 20) for g in groups]
            with connected(client, warm) as each:
                run_all(each)
            work = [(found[g], [frame(g, 1, at) for at in range(share)]) for g in groups]
            with connected(client, work) as each:
                watch = Stopwatch(target)
                took = run_all(each)
                watch.stop()
            job = f"commits, {committers} in flight"
            figures.note(job, target, len(took) / watch.seconds, "/s", watch)
            figures.note(f"{job}: p50", target, percentile(took, 50) * 1e3, "ms")
            figures.note(f"{job}: p99", target, percentile(took, 99) * 1e3, "ms")
    librdkafka_committer(target, figures)


def librdkafka_committer(target: Target, figures: Figures) -> None:
    """Measure a librdkafka consumer that commits synchronously in a loop."""
    consumer = Consumer(
        {"bootstrap.servers": target.bootstrap, "group.id": "synchronous", "log_level": 0}
    )
    try:
        consumer.assign([TopicPartition(TOPIC, 0, 0)])
        offsets = [TopicPartition(TOPIC, 0, 1)]
        consumer.commit(offsets=offsets, asynchronous=False)
        took = []
        watch = Stopwatch(target)
        for _ in range(ONE // 2):
            began = time.perf_counter()
            consumer.commit(offsets=offsets, asynchronous=False)
            took.append(time.perf_counter() - began)
        watch.stop()
    finally:
        consumer.close()
    job = "librdkafka: commit and wait"
    figures.note(f"{job}, p50", target, percentile(took, 50) * 1e3, "ms", watch)
    figures.note(f"{job}, p99", target, percentile(took, 99) * 1e3, "ms")


# -- a thousand groups ---------------------------------------------------------------------


def thousand_groups(target: Target, figures: Figures) -> None:
    """Commit to 1,000 groups, list and describe them, then kill a coordinator."""
    groups = [f"group-{number:04}" for number in range(GROUPS)]
    with Cluster(target.bootstrap, timeout_s=PATIENCE_S) as client:
        found = coordinators(client, groups)
        before_mb = target.rss_mb()
        _commit_all(client, target, figures, found, "1,000 new groups: first commits", [0])
        job = f"1,000 groups: commits of {OFFSETS} partitions, 32 in flight"
        _commit_all(client, target, figures, found, job, range(1, ROUNDS + 1))
        grown_kb = (target.rss_mb() - before_mb) * 1e3 / GROUPS
        figures.note("1,000 groups: memory for each, all brokers", target, grown_kb, "KB")
        if target.can_be_killed:
            _list_and_describe(client, target, figures, found)
            _kill_coordinator(client, target, figures, found)


def _commit_all(
    client: Cluster,
    target: Target,
    figures: Figures,
    found: dict[str, BrokerId],
    job: str,
    offsets: Sequence[int],
) -> None:
    by_broker: dict[BrokerId, list[str]] = defaultdict(list)
    for group, broker in found.items():
        by_broker[broker].append(group)
    work: list[tuple[BrokerId, list[bytes]]] = []
    for broker, groups in by_broker.items():
        connections = max(COMMITTERS // len(by_broker), 1)
        for at in range(connections):
            mine = groups[at::connections]
            frames = [frame(group, OFFSETS, offset) for offset in offsets for group in mine]
            work.append((broker, frames))
    with connected(client, work) as each:
        watch = Stopwatch(target)
        took = run_all(each)
        watch.stop()
    figures.note(job, target, len(took) / watch.seconds, "/s", watch)


def _list_and_describe(
    client: Cluster, target: Target, figures: Figures, found: dict[str, BrokerId]
) -> None:
    watch = Stopwatch(target)
    listed = [
        group["group_id"]
        for broker in sorted(set(found.values()))
        for group in client.broker(broker).call(LIST_GROUPS, {"states_filter": []})["groups"]
    ]
    watch.stop()
    assert sorted(listed) == sorted(found), "groups are missing"
    figures.note("1,000 groups: listed", target, watch.seconds * 1e3, "ms", watch)
    watch = Stopwatch(target)
    for broker in sorted(set(found.values())):
        names = [group for group, at in found.items() if at == broker]
        answer = client.broker(broker).call(DESCRIBE_GROUPS, {"groups": names})
        assert all(group["group_state"] == "Empty" for group in answer["groups"])
    watch.stop()
    figures.note("1,000 groups: described", target, watch.seconds * 1e3, "ms", watch)


def _kill_coordinator(
    client: Cluster, target: Target, figures: Figures, found: dict[str, BrokerId]
) -> None:
    """Measure from the kill until other brokers return the correct offsets of all its groups."""
    homes = list(found.values())
    victim = max(set(homes), key=homes.count)
    missing = [group for group, at in found.items() if at == victim]
    offsets = len(missing) * OFFSETS * (ROUNDS + 1)
    target.kill(victim)
    watch = Stopwatch(target)
    survivor = next(iter(set(homes) - {victim}))
    while missing:
        if time.monotonic() > watch.began + PATIENCE_S:
            raise SystemExit(f"{len(missing)} groups have no coordinator after {PATIENCE_S:g} s")
        try:
            missing = _still_missing(client, survivor, missing)
        except ClientError:
            time.sleep(0.005)
    watch.stop()
    job = "coordinator killed: until others return its groups' offsets"
    figures.note(job, target, watch.seconds * 1e3, "ms", watch)
    figures.note("... read again from the log, records", target, offsets, "records")


def _still_missing(client: Cluster, survivor: BrokerId, groups: list[str]) -> list[str]:
    asked = {"key_type": 0, "coordinator_keys": groups}
    answer = client.broker(survivor).call(FIND_COORDINATOR, asked)
    homes: dict[BrokerId, list[str]] = defaultdict(list)
    missing = []
    for one in answer["coordinators"]:
        if one["error_code"]:
            missing.append(one["key"])
        else:
            homes[one["node_id"]].append(one["key"])
    for broker, names in homes.items():
        topics = [{"name": TOPIC, "partition_indexes": list(range(OFFSETS))}]
        request = {"groups": [{"group_id": name, "topics": topics} for name in names]}
        for group in client.broker(broker).call(OFFSET_FETCH, request, 9)["groups"]:
            if group["error_code"]:
                missing.append(group["group_id"])
                continue
            offsets = {one["committed_offset"] for one in group["topics"][0]["partitions"]}
            assert offsets == {ROUNDS}, f"{group['group_id']} has offsets {offsets}"
    return missing
