"""Time and memory of three brokers with many partitions: create them, lose a broker, stop, and
start again after a clean stop and after kill -9; on SQLite or etcd, and beside Apache Kafka.

    make bench-scale TOPICS=1000
    make bench-scale TOPICS=1000 PARTITIONS=10 STORE=etcd KAFKA=1

Clusters run one after the other, each alone. With --store etcd three etcd nodes run beside the
brokers. Their CPU and memory count. Beside the time of a step stands the CPU of its brokers and of
etcd: other programs on the machine change it less than the time.
"""

import argparse
import json
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import cast

from beside_kafka.kafka_cluster import KafkaCluster, java_version, release
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from processes import allow_open_files, cpu_s, machine_cpu_s, rss_mb

from tidelog.apps.verify.machines.etcd_member import (
    EtcdMember,
    await_ready,
    find_etcd,
    store_url,
)
from tidelog.apps.verify.machines.namespaces import Network
from tidelog.shell.client.cluster import Cluster
from tidelog.shell.supervisor.cluster import LocalCluster

REPLICATION = 3
AT_ONCE = 100
SAMPLE = 20
TOPIC_PREFIX = "scale-"
PATIENCE_S = 900.0
OPEN_FILES = 200_000
SETTINGS = {"auto.create.topics.enable": "false"}
ETCD_NODES = (1, 2, 3)


class Results:
    """The seconds and other figures of each step of one cluster."""

    def __init__(self, cpu: Callable[[], float]) -> None:
        self.figures: dict[str, float] = {}
        self._cpu = cpu
        """Returns the CPU seconds of the brokers and of etcd so far."""

    @contextmanager
    def time(self, what: str) -> Iterator[None]:
        began, used, busy = time.monotonic(), self._cpu(), machine_cpu_s()
        yield
        self.add(what, time.monotonic() - began)
        self.add(f"   CPU: {what}", self._cpu() - used, "CPU-s")
        print(f"{'':62} {machine_cpu_s() - busy:10.3f} CPU-s of the machine", flush=True)

    def add(self, what: str, figure: float, unit: str = "s") -> None:
        self.figures[f"{what}, {unit}"] = round(figure, 3)
        print(f"{what:62} {figure:10.3f} {unit}", flush=True)


def wait_until(done: Callable[[], bool], what: str) -> None:
    """Check again and again, at most a fifth of the time: the check costs a broker CPU too."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        began = time.monotonic()
        if done():
            return
        if time.monotonic() > deadline:
            raise SystemExit(f"timeout after {PATIENCE_S:g} s: {what}")
        time.sleep(max(0.05, 4 * (time.monotonic() - began)))


class Loopback:
    """Addresses of etcd's nodes on this machine, in place of the network of `verify --machines`."""

    machines = ETCD_NODES

    def address(self, machine: int) -> str:
        pid = os.getpid()
        return f"127.{pid >> 8 & 127 | 128}.{pid & 255}.{machine}"

    def command(self, machine: int) -> Sequence[str]:  # noqa: ARG002 - as in Network
        return ()


@contextmanager
def etcd() -> Iterator[tuple[str, list[EtcdMember]]]:
    """Run three etcd nodes with default settings; yield the URL of a store."""
    network = cast(Network, Loopback())
    binary = find_etcd()
    with tempfile.TemporaryDirectory(prefix="tidelog-etcd-") as folder:
        members = [EtcdMember(network, node, folder, binary) for node in ETCD_NODES]
        try:
            for member in members:
                member.start()
            await_ready(members)
            yield store_url(network, 1), members
        finally:
            for member in members:
                member.kill()


class Scale:
    """One run of the benchmark on one cluster."""

    def __init__(
        self,
        cluster: LocalCluster | KafkaCluster,
        shape: tuple[int, int],
        beside: Sequence[EtcdMember] = (),
    ) -> None:
        self.cluster = cluster
        self.topics, self.partitions_each = shape
        self.beside = beside
        self.results = Results(self.cluster_cpu)

    def run(self) -> dict[str, float]:
        """Run all steps; return the figures."""
        busy, began, own = machine_cpu_s(), time.monotonic(), sum(os.times()[:2])
        self.create()
        self.memory("all topics created")
        self.idle()
        self.lose_a_broker()
        self.restart_one()
        self.stop_and_start()
        self.memory("after the last start")
        wall, used = time.monotonic() - began, machine_cpu_s() - busy
        own = sum(os.times()[:2]) - own
        self.results.add("CPU of the whole machine", used / wall, "cores")
        self.results.add("CPU of this client", own / wall, "cores")
        return self.results.figures

    def running(self) -> list[int]:
        return [broker for broker in self.cluster.ids if self.cluster.is_running(broker)]

    def partitions(self) -> list[tuple[int, int]]:
        """Return the leader and the number of in-sync replicas of every partition."""
        for broker in self.running():
            try:
                with Cluster(f"127.0.0.1:{self.cluster.port(broker)}", timeout_s=30) as client:
                    known = client.refresh().topics
                    found = [
                        p
                        for name, topic in known.items()
                        if not name.startswith("__")
                        for p in topic.partitions.values()
                    ]
                    return [(p.leader, len(p.isr)) for p in found]
            except Exception as error:  # noqa: BLE001 - a broker that is just starting
                print("  retrying:", error)
        return []

    def all_in_sync(self, replicas: int) -> bool:
        found = self.partitions()
        return len(found) == self.topics * self.partitions_each and all(
            leader >= 0 and in_sync >= replicas for leader, in_sync in found
        )

    def all_logs_exist(self) -> bool:
        """Whether every broker has created the folders of all its partitions."""
        wanted = self.topics * self.partitions_each
        return all(
            sum(name.startswith(TOPIC_PREFIX) for name in os.listdir(self.cluster.log_dir(broker)))
            >= wanted
            for broker in self.cluster.ids
        )

    def left(self, broker: int) -> bool:
        """Whether every partition has a leader, and none is led by this broker."""
        return all(leader not in (broker, -1) for leader, _ in self.partitions())

    def led_by(self, broker: int) -> list[tuple[str, int]]:
        with Cluster(self.cluster.bootstrap, timeout_s=30) as client:
            topics = client.refresh().topics.items()
            return [
                (name, number)
                for name, topic in topics
                for number, partition in topic.partitions.items()
                if partition.leader == broker
            ]

    def create(self) -> None:
        admin = AdminClient({"bootstrap.servers": self.cluster.bootstrap})
        before = self.cluster_cpu()
        with self.results.time(f"create {self.topics} topics, {AT_ONCE} in a request"):
            for first in range(0, self.topics, AT_ONCE):
                names = [
                    f"{TOPIC_PREFIX}{n:05}" for n in range(first, min(first + AT_ONCE, self.topics))
                ]
                wanted = [NewTopic(name, self.partitions_each, REPLICATION) for name in names]
                made = admin.create_topics(wanted, request_timeout=300, operation_timeout=300)
                for future in made.values():
                    future.result()
        with self.results.time("... until all replicas of all are in sync"):
            wait_until(lambda: self.all_in_sync(REPLICATION), "all replicas in sync after creation")
        with self.results.time("... until all logs of all replicas are on disk"):
            wait_until(self.all_logs_exist, "all logs on disk")
        used = self.cluster_cpu() - before
        self.results.add("CPU of brokers and etcd for all three", used, "CPU-s")
        with self.results.time("list all topics (one Metadata)"):
            admin.list_topics(timeout=30)

    def memory(self, when: str) -> None:
        for broker in self.running():
            self.results.add(f"RSS of broker {broker}, {when}", rss_mb(self.pid(broker)), "MB")
        if self.beside:
            total = sum(rss_mb(member.pid) for member in self.beside)
            self.results.add(f"RSS of all etcd nodes, {when}", total, "MB")

    def pid(self, broker: int) -> int:
        return self.cluster.pid(broker)

    def idle(self) -> None:
        time.sleep(3)
        before = self.cluster_cpu()
        time.sleep(5)
        self.results.add("CPU of the idle cluster", (self.cluster_cpu() - before) / 5, "CPU-s/s")

    def cluster_cpu(self) -> float:
        """Return the CPU seconds of all brokers so far, also of those that ended, and of etcd."""
        ended = sum(os.times()[2:4])
        pids = [self.pid(broker) for broker in self.running()]
        return ended + sum(map(cpu_s, [*pids, *(member.pid for member in self.beside)]))

    def lose_a_broker(self) -> None:
        victim = self.cluster.ids[0]
        led = self.led_by(victim)
        self.results.add("partitions that the killed broker leads", len(led), "partitions")
        began = time.monotonic()
        with self.results.time("kill -9 of it: until all have another leader"):
            self.cluster.kill(victim)
            wait_until(lambda: self.left(victim), "all partitions led by other brokers")
        self.produce(led[:: max(1, len(led) // SAMPLE)])
        self.results.add("... and a sample has acknowledged records", time.monotonic() - began)
        with self.results.time("start it again: until all replicas are in sync"):
            self.start(victim)
            wait_until(lambda: self.all_in_sync(REPLICATION), "all replicas in sync after a kill")

    def produce(self, sample: Sequence[tuple[str, int]]) -> None:
        """Send a record to each partition with acks=all, and wait for the acknowledgements."""
        errors: list[object] = []
        producer = Producer({"bootstrap.servers": self.cluster.bootstrap, "acks": "all"})
        for topic, partition in sample:
            producer.produce(
                topic, b"x", partition=partition, on_delivery=lambda error, _: errors.append(error)
            )
        if producer.flush(PATIENCE_S) or any(errors):
            raise SystemExit(f"records were not acknowledged: {errors}")

    def restart_one(self) -> None:
        broker = self.cluster.ids[-1]
        with self.results.time("clean stop of one broker"):
            self.cluster.stop(broker, timeout_s=PATIENCE_S)
        with self.results.time("start it again after that: until all are in sync"):
            self.start(broker)
            wait_until(lambda: self.all_in_sync(REPLICATION), "all replicas in sync after a stop")

    def stop_and_start(self) -> None:
        if isinstance(self.cluster, LocalCluster):  # Kafka's last broker waits for a quorum
            with self.results.time("clean stop of all three, one after the other"):
                for broker in self.cluster.ids:
                    self.cluster.stop(broker, timeout_s=PATIENCE_S)
            with self.results.time("start all after a clean stop: until all are in sync"):
                self.start_all()
        for broker in self.cluster.ids:
            self.cluster.kill(broker)
        with self.results.time("start all after kill -9 of all: until all are in sync"):
            self.start_all()

    def start(self, broker: int) -> None:
        if isinstance(self.cluster, LocalCluster):
            self.cluster.start_broker(broker, wait=False)
        else:
            self.cluster.start_broker(broker)

    def start_all(self) -> None:
        for broker in self.cluster.ids:
            self.start(broker)
        wait_until(lambda: self.all_in_sync(REPLICATION), "all replicas in sync after a start")


def measure_tidelog(shape: tuple[int, int], store: str) -> dict[str, float]:
    if store == "sqlite":
        with LocalCluster(brokers=3, settings=SETTINGS, wait_s=PATIENCE_S) as cluster:
            return Scale(cluster, shape).run()
    with (
        etcd() as (url, members),
        LocalCluster(brokers=3, settings=SETTINGS, wait_s=PATIENCE_S, store=url) as cluster,
    ):
        return Scale(cluster, shape, members).run()


def measure_kafka(shape: tuple[int, int]) -> dict[str, float]:
    cluster = KafkaCluster(SETTINGS)
    try:
        for broker in cluster.ids:
            cluster.start_broker(broker)
        scale = Scale(cluster, shape)
        wait_until(lambda: brokers_listed(cluster) == len(cluster.ids), "all of Kafka's brokers")
        return scale.run()
    finally:
        cluster.close()


def brokers_listed(cluster: KafkaCluster) -> int:
    try:
        with Cluster(cluster.bootstrap, timeout_s=5) as client:
            return len(client.refresh([]).brokers)
    except Exception:  # noqa: BLE001 - no broker listens yet
        return 0


def print_table(columns: dict[str, dict[str, float]]) -> None:
    """Print the figures of two clusters side by side, and how many times the second is larger."""
    ours, theirs = columns.values()
    first, second = columns
    print(f"\n| {' | '.join(['', first, second, 'ratio'])} |\n|---|---|---|---|")
    for what in dict.fromkeys([*ours, *theirs]):
        a, b = ours.get(what), theirs.get(what)
        ratio = f"{b / a:.2f}" if a and b is not None else ""
        cells = ["" if each is None else f"{each:,.2f}" for each in (a, b)]
        print(f"| {what} | {cells[0]} | {cells[1]} | {ratio} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--topics", type=int, default=1000)
    parser.add_argument("--partitions", type=int, default=3, help="partitions of each topic")
    parser.add_argument("--store", choices=("sqlite", "etcd"), default="sqlite")
    parser.add_argument("--kafka", action="store_true", help="measure Apache Kafka too")
    parser.add_argument("--json", type=Path, help="also write the results to this JSON file")
    arguments = parser.parse_args()
    allow_open_files(OPEN_FILES)
    shape = arguments.topics, arguments.partitions
    columns = {f"Tidelog on {arguments.store}": measure_tidelog(shape, arguments.store)}
    if arguments.kafka:
        name = f"{release()}, {java_version()}"
        print(f"\n{name}", flush=True)
        columns[name] = measure_kafka(shape)
        print_table(columns)
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(columns, indent=2) + "\n")


if __name__ == "__main__":
    main()
