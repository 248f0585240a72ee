"""The measured targets: three Tidelog brokers, or librdkafka's mock cluster in a process of its
own.

Both listen on loopback only, and stop at the end of their `with` block.
"""

import json
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from processes import cpu_s, library, machine_cpu_s, rss_mb

from tidelog.core.types import BrokerId
from tidelog.shell.client.admin import create_topic
from tidelog.shell.client.cluster import Cluster
from tidelog.shell.supervisor.cluster import LocalCluster

HERE = Path(__file__).parent
TOPIC = "orders"
PARTITIONS = 100
TIDELOG, MOCK = "tidelog", "mock"


class Target:
    """Brokers on this machine."""

    def __init__(self, name: str, bootstrap: str, pids: list[int]) -> None:
        self.name = name
        self.bootstrap = bootstrap
        self.pids = pids
        self._cluster: LocalCluster | None = None

    @classmethod
    def of(cls, cluster: LocalCluster) -> "Target":
        pids = [cluster.pid(broker) for broker in cluster.ids]
        target = cls(TIDELOG, cluster.bootstrap, pids)
        target._cluster = cluster
        return target

    @property
    def can_be_killed(self) -> bool:
        return self._cluster is not None

    def kill(self, broker: BrokerId) -> None:
        """Kill one broker with -9, and stop counting its CPU and memory."""
        assert self._cluster is not None
        self.pids.remove(self._cluster.pid(broker))
        self._cluster.kill(broker)

    def pid(self, broker: BrokerId) -> int:
        """Return the id of the process that runs this broker."""
        return self.pids[0] if self._cluster is None else self._cluster.pid(broker)

    def rss_mb(self) -> float:
        """Return the memory of all brokers together."""
        return sum(map(rss_mb, self.pids))


@contextmanager
def tidelog() -> Iterator[Target]:
    """Start three brokers with the defaults of `tidelog up`: three replicas of everything,
    acks=all."""
    with LocalCluster(brokers=3, settings={"auto.create.topics.enable": "false"}) as cluster:
        with Cluster(cluster.bootstrap) as client:
            create_topic(client, TOPIC, PARTITIONS, 3)
        yield Target.of(cluster)


@contextmanager
def mock() -> Iterator[Target]:
    """Start the mock cluster: C, in memory, one thread, no replication."""
    command = [sys.executable, HERE / "librdkafka_mock.py", library(), TOPIC, str(PARTITIONS)]
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    try:
        assert process.stdout is not None
        started = json.loads(process.stdout.readline())
        yield Target(MOCK, started["bootstrap"], [process.pid])
    finally:
        process.kill()
        process.communicate()


class Stopwatch:
    """Measures time, the brokers' CPU, and the load of other processes."""

    def __init__(self, target: Target, helpers: Sequence[int] = ()) -> None:
        self.began = time.monotonic()
        self.seconds = self.broker_cpu = self.foreign_load = 0.0
        self._target = target
        self._helpers = helpers
        self._before = {pid: cpu_s(pid) for pid in target.pids}
        self._ours_before, self._all_before = self._ours(), machine_cpu_s()

    def _ours(self) -> float:
        return time.process_time() + sum(map(cpu_s, self._helpers))

    def stop(self, ended: float | None = None) -> "Stopwatch":
        """Stop the measurement; `ended` is its end if that was before now."""
        wall = time.monotonic() - self.began
        self.seconds = wall if ended is None else ended - self.began
        self.broker_cpu = sum(cpu_s(pid) - self._before[pid] for pid in self._target.pids)
        total = machine_cpu_s() - self._all_before
        others = total - self.broker_cpu - (self._ours() - self._ours_before)
        self.foreign_load = max(others, 0) / wall
        return self
