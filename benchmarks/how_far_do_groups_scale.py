"""What consumer groups take: fifty consumers that rebalance, a thousand groups that commit, a
coordinator that is killed, two thousand connections that do nothing.

Each job runs on three fresh brokers with three replicas of everything. If possible, it also runs on
librdkafka's mock cluster: C, in memory, one thread, no replication. The mock waits for a timer in a
rebalance, so it has no figures there.

The table has the best and the worst of several rounds, and the brokers' CPU seconds for the whole
job. It also has the CPU that other processes used meanwhile, in cores: above 0.3 a time says
little.

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
from group_load.connections import idle_connections
from group_load.figures import Figures
from group_load.rebalances import bare_protocol, librdkafka_group
from group_load.targets import Target, mock, tidelog

BUDGET_S = 180
"""No round starts later than this."""
LIMIT_S = 230
"""The run ends by then, finished or not."""


class Job(NamedTuple):
    """One measurement."""

    name: str
    run: Callable[[Target, Figures], None]
    on_mock: bool


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
    parser.add_argument("--rounds", type=int, default=3, help="of each job, while there is time")
    parser.add_argument("--format", choices=("table", "json"), default="table")
    asked = parser.parse_args()
    jobs = [job for job in JOBS if asked.jobs in job.name]
    if not jobs:
        sys.exit(f"no job is called {asked.jobs!r}; there are {', '.join(j.name for j in JOBS)}")
    signal.signal(signal.SIGALRM, _too_long)
    signal.signal(signal.SIGTERM, _told_to_stop)
    signal.alarm(LIMIT_S)
    figures = Figures()
    began = time.monotonic()
    for number in range(asked.rounds):
        for job in jobs:
            if number and time.monotonic() > began + BUDGET_S:
                break
            print(f"round {number + 1}: {job.name}", file=sys.stderr, flush=True)
            for make in (tidelog, mock) if job.on_mock else (tidelog,):
                with make() as target:
                    job.run(target, figures)
    signal.alarm(0)
    if asked.format == "json":
        print(json.dumps(figures.rows(), indent=2))
    else:
        print(f"Python {sys.version.split()[0]}, {os.cpu_count()} cores")
        print(figures.table())


def _too_long(_signal: int, _frame: FrameType | None) -> NoReturn:
    sys.exit(f"not done after {LIMIT_S} s: the machine is too busy; take fewer --jobs")


def _told_to_stop(_signal: int, _frame: FrameType | None) -> NoReturn:
    """Exit on SIGTERM; the context managers then end brokers and consumers."""
    sys.exit(1)


if __name__ == "__main__":
    main()
