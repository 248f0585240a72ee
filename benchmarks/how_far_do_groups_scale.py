"""The cost of consumer groups: fifty consumers that rebalance, a thousand groups that commit, a
killed coordinator, two thousand idle connections.

Each job runs on three fresh brokers with three replicas of everything. If possible, it also runs on
librdkafka's mock cluster: C, in memory, one thread, no replication. The mock waits for a timer in a
rebalance, so it has no figures there.

The table has the best and the worst of several rounds, and the brokers' CPU seconds for the whole
job. It also has the CPU that other processes used meanwhile, in cores: above 0.3, compare
CPU, not time.

    make bench-groups            all jobs, less than four minutes
    make bench-groups JOBS=commits
"""

import argparse
import json
import os
import signal
import sys
import time
from collections.abc import Callable
from types import FrameType
from typing import NamedTuple, NoReturn

from group_load.commits import few_groups, thousand_groups
from group_load.figures import Figures, percentile
from group_load.rebalances import bare_protocol, librdkafka_group
from group_load.targets import TOPIC, Stopwatch, Target, mock, tidelog
from processes import allow_open_files, cpu_s, rss_mb

from tidelog.core.api_table import METADATA
from tidelog.core.types import BrokerId
from tidelog.shell.client.cluster import Cluster
from tidelog.shell.client.connection import KafkaConnection

BUDGET_S = 180
"""No round starts later than this."""
LIMIT_S = 230
"""The run ends by then, finished or not."""
CONNECTIONS = 2000
SPARE_FILES = 500
IDLE_S = 3.0
NEW_CLIENTS = 50


class Job(NamedTuple):
    """One measurement."""

    name: str
    run: Callable[[Target, Figures], None]
    on_mock: bool


def idle_connections(target: Target, figures: Figures) -> None:
    """Open the connections; each sends ApiVersions once, as every client does."""
    count = min(CONNECTIONS, allow_open_files(CONNECTIONS + SPARE_FILES) - SPARE_FILES)
    with Cluster(target.bootstrap) as client:
        broker = min(client.metadata.brokers)
        pid = target.pid(broker)
        before_mb = rss_mb(pid)
        idle = []
        try:
            watch = Stopwatch(target)
            for _ in range(count):
                connection = client.own_connection(BrokerId(broker))
                idle.append(connection)
                connection.versions  # noqa: B018 - sends ApiVersions
            watch.stop()
            job = f"{count:,} connections to one broker: made"
            figures.note(job, target, count / watch.seconds, "/s", watch)
            grown_kb = (rss_mb(pid) - before_mb) * 1e3 / count
            figures.note("... memory for each", target, grown_kb, "KB")
            burned = cpu_s(pid)
            time.sleep(IDLE_S)
            burned = (cpu_s(pid) - burned) / IDLE_S
            figures.note("... idle: CPU of that broker", target, burned * 100, "% of a core")
            found = client.metadata.brokers[broker]
            _new_clients(target, figures, found.host, found.port)
        finally:
            for connection in idle:
                connection.close()


def _new_clients(target: Target, figures: Figures, host: str, port: int) -> None:
    took = []
    watch = Stopwatch(target)
    for _ in range(NEW_CLIENTS):
        began = time.perf_counter()
        with KafkaConnection(host, port) as connection:
            connection.call(METADATA, {"topics": [{"name": TOPIC}]})
        took.append(time.perf_counter() - began)
    watch.stop()
    job = "... a new client connects and asks for metadata, p50"
    figures.note(job, target, percentile(took, 50) * 1e3, "ms", watch)


JOBS = (
    Job("rebalances", librdkafka_group, on_mock=False),
    Job("protocol", bare_protocol, on_mock=False),
    Job("groups", thousand_groups, on_mock=True),
    Job("commits", few_groups, on_mock=True),
    Job("connections", idle_connections, on_mock=True),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--jobs", default="", help="only jobs whose name contains this")
    parser.add_argument(
        "--rounds", type=int, default=3, help="rounds of each job; none starts after 180 s"
    )
    parser.add_argument("--format", choices=("table", "json"), default="table")
    arguments = parser.parse_args()
    jobs = [job for job in JOBS if arguments.jobs in job.name]
    if not jobs:
        sys.exit(
            f"no job has a name with {arguments.jobs!r}; jobs: {', '.join(j.name for j in JOBS)}"
        )
    signal.signal(signal.SIGALRM, _on_alarm)
    signal.signal(signal.SIGTERM, _on_sigterm)
    signal.alarm(LIMIT_S)
    figures = Figures()
    began = time.monotonic()
    for number in range(arguments.rounds):
        for job in jobs:
            if number and time.monotonic() > began + BUDGET_S:
                break
            print(f"round {number + 1}: {job.name}", file=sys.stderr, flush=True)
            for make in (tidelog, mock) if job.on_mock else (tidelog,):
                with make() as target:
                    job.run(target, figures)
    signal.alarm(0)
    if arguments.format == "json":
        print(json.dumps(figures.rows(), indent=2))
    else:
        print(f"Python {sys.version.split()[0]}, {os.cpu_count()} cores")
        print(figures.table())


def _on_alarm(_signal: int, _frame: FrameType | None) -> NoReturn:
    sys.exit(f"not done after {LIMIT_S} s: the machine is too busy; choose fewer jobs with --jobs")


def _on_sigterm(_signal: int, _frame: FrameType | None) -> NoReturn:
    """Exit on SIGTERM; the context managers then end brokers and consumers."""
    sys.exit(1)


if __name__ == "__main__":
    main()
