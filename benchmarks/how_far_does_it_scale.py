"""Time and memory of three brokers with many partitions: create them, lose a broker, stop, and
start again after a clean stop and after kill -9.

    make bench-scale TOPICS=1000
"""

import argparse
import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka.admin import AdminClient, NewTopic

from tidelog.shell.client.cluster import Cluster
from tidelog.shell.supervisor.cluster import LocalCluster

PARTITIONS = 3
REPLICATION = 3
AT_ONCE = 100
PATIENCE_S = 120.0
TICK_S = 1 / os.sysconf("SC_CLK_TCK")


class Results:
    """The seconds and other figures of each step."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextmanager
    def time(self, what: str) -> Iterator[None]:
        began = time.monotonic()
        yield
        self.add(what, time.monotonic() - began)

    def add(self, what: str, figure: float, unit: str = "s") -> None:
        self.seconds[f"{what}, {unit}"] = round(figure, 3)
        print(f"{what:58} {figure:10.3f} {unit}", flush=True)


def wait_until(done: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not done():
        if time.monotonic() > deadline:
            raise SystemExit(f"timeout after {PATIENCE_S:g} s: {what}")
        time.sleep(0.05)


class Scale:
    """One run of the benchmark."""

    def __init__(self, cluster: LocalCluster, topics: int, results: Results) -> None:
        self.cluster = cluster
        self.topics = topics
        self.results = results

    def running(self) -> list[int]:
        return [broker for broker in self.cluster.ids if self.cluster.is_running(broker)]

    def partitions(self) -> list[tuple[int, int]]:
        """Return the leader and the number of in-sync replicas of every partition."""
        for broker in self.running():
            try:
                with Cluster(f"127.0.0.1:{self.cluster.port(broker)}", timeout_s=30) as client:
                    topics = client.refresh().topics.values()
                    found = [p for topic in topics for p in topic.partitions.values()]
                    return [(p.leader, len(p.isr)) for p in found]
            except Exception as error:  # noqa: BLE001 - a broker that is just starting
                print("  retrying:", error)
        return []

    def all_in_sync(self, replicas: int) -> bool:
        found = self.partitions()
        return len(found) == self.topics * PARTITIONS and all(
            leader >= 0 and in_sync >= replicas for leader, in_sync in found
        )

    def led_by(self, broker: int) -> int:
        return sum(leader == broker for leader, _ in self.partitions())

    def create(self) -> None:
        admin = AdminClient({"bootstrap.servers": self.cluster.bootstrap})
        with self.results.time(f"create {self.topics} topics, {AT_ONCE} in a request"):
            for first in range(0, self.topics, AT_ONCE):
                names = [f"t{n:05}" for n in range(first, min(first + AT_ONCE, self.topics))]
                wanted = [NewTopic(name, PARTITIONS, REPLICATION) for name in names]
                for future in admin.create_topics(wanted, request_timeout=60).values():
                    future.result()
        with self.results.time("... until all replicas of all are in sync"):
            wait_until(lambda: self.all_in_sync(REPLICATION), "all replicas in sync after creation")
        with self.results.time("list all topics (one Metadata)"):
            admin.list_topics(timeout=30)

    def memory(self, when: str) -> None:
        for broker in self.running():
            pages = int(Path(f"/proc/{self.cluster.pid(broker)}/statm").read_text().split()[1])
            self.results.add(f"RSS of broker {broker}, {when}", pages * 4096 / 1e6, "MB")

    def idle(self) -> None:
        time.sleep(3)
        before = self.cpu()
        time.sleep(5)
        self.results.add("CPU of the idle cluster", (self.cpu() - before) / 5, "CPU-s/s")

    def cpu(self) -> float:
        total = 0
        for broker in self.running():
            stat = Path(f"/proc/{self.cluster.pid(broker)}/stat").read_text()
            fields = stat.rpartition(")")[2].split()
            total += int(fields[11]) + int(fields[12])
        return total * TICK_S

    def lose_a_broker(self) -> None:
        victim = self.cluster.ids[0]
        led = self.led_by(victim)
        self.cluster.kill(victim)
        with self.results.time(f"kill -9 of a broker that leads {led}: until all have a leader"):
            wait_until(
                lambda: self.led_by(victim) == 0 and self.all_in_sync(1),
                "all partitions led by other brokers",
            )
        with self.results.time("start it again: until all replicas are in sync"):
            self.cluster.start_broker(victim, timeout_s=PATIENCE_S)
            wait_until(lambda: self.all_in_sync(REPLICATION), "all replicas in sync after a kill")

    def stop_and_start(self) -> None:
        with self.results.time("clean stop of all three, one after the other"):
            for broker in self.cluster.ids:
                self.cluster.stop(broker, timeout_s=PATIENCE_S)
        with self.results.time("start all after a clean stop: until all are in sync"):
            self.start_all()
        for broker in self.cluster.ids:
            self.cluster.kill(broker)
        with self.results.time("start all after kill -9 of all: until all are in sync"):
            self.start_all()

    def start_all(self) -> None:
        for broker in self.cluster.ids:
            self.cluster.start_broker(broker, wait=False)
        self.cluster.wait_ready(PATIENCE_S)
        wait_until(lambda: self.all_in_sync(REPLICATION), "all replicas in sync after a start")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--topics", type=int, default=1000)
    parser.add_argument("--json", type=Path, help="also write the results to this JSON file")
    arguments = parser.parse_args()
    results = Results()
    settings = {"auto.create.topics.enable": "false"}
    with LocalCluster(brokers=3, settings=settings, wait_s=PATIENCE_S) as cluster:
        scale = Scale(cluster, arguments.topics, results)
        scale.create()
        scale.memory("all topics created")
        scale.idle()
        scale.lose_a_broker()
        scale.stop_and_start()
        scale.memory("after the last start")
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(results.seconds, indent=2) + "\n")


if __name__ == "__main__":
    main()
