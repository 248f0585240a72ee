"""Tidelog compared with Apache Kafka: the same work on both, in turns, in one run.

Three real Kafka brokers (jars of its newest release from Maven Central, its own defaults) and three
Tidelog brokers run at the same time. Only one side works at a time, and the side that works first
changes with each round. Kafka is warmed up first, because its JVMs need gigabytes of work to reach
their full speed. The result of the first gigabyte on both sides is shown as well. Starts, kills and
flushed logs have clusters of their own, after the others are closed.

A ratio above 1 means that Tidelog is better, by time or by the brokers' CPU. A goal is marked as
met or missed. RSS is the maximum of all three brokers during the load. `others` is the CPU that
other processes used meanwhile, in cores: above 0.3 compare CPU, not time.

    make bench-kafka                    all rows, three rounds, about 35 minutes
    make bench-kafka QUICK=1            the most important rows, a quarter of the work, 5 minutes
    make bench-kafka ROWS='RF3 1 KB'    rows whose name contains that
    make bench-kafka JSON=found.json    the figures as JSON too
    make bench-kafka DOCS=1             all rows; updates the docs' page, plot and JSON
"""

import argparse
import json
import os
import signal
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from beside_kafka.docs_output import plot, update_page
from beside_kafka.figures import goals_met, heading, line
from beside_kafka.kafka_cluster import java_version, release
from beside_kafka.rows import ROWS
from beside_kafka.turns import Turns
from processes import PAGE, allow_open_files, interpreter, touch_memory

SCALE, QUICK_SCALE = 1.0, 0.25
WARM_UP, QUICK_WARM_UP = 3, 2
TOUCHED_GB, QUICK_TOUCHED_GB = 6, 3
OPEN_FILES = 100_000
"""A Kafka broker with 3,000 partitions has 10,000 files open; brokers inherit the limit."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", default="", help="only rows whose name contains this")
    parser.add_argument("--quick", action="store_true", help="fewer rows, less work")
    parser.add_argument("--rounds", type=int, default=3, help="rounds of each row, at least one")
    parser.add_argument("--scale", type=float, help="factor on the work of each row")
    parser.add_argument("--warm-up", type=int, help="warm-up rounds of Kafka before the first row")
    parser.add_argument("--json", type=Path, help="also write the results to this JSON file")
    parser.add_argument("--plot", type=Path, help="write the plot of the ratios to this SVG file")
    parser.add_argument("--page", type=Path, help="update the figures on this Markdown page")
    parser.add_argument(
        "--from-json", type=Path, help="do not measure; show the results in this JSON file"
    )
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # closes all clusters
    if arguments.from_json is not None:
        found = json.loads(arguments.from_json.read_text())
        print("\n".join([heading(), *map(line, found["rows"])]))
    else:
        found = measure(arguments)
    print(goals_met(found["rows"]))
    if arguments.plot is not None:
        arguments.plot.parent.mkdir(parents=True, exist_ok=True)
        arguments.plot.write_text(plot(found))
    if arguments.page is not None:
        arguments.page.write_text(update_page(arguments.page.read_text(), found))
    failed = [row["row"] for row in found["rows"] if "error" in row]
    if failed:
        sys.exit(f"failed: {', '.join(failed)}")


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    """Measure all requested rows; rewrite the JSON file after each."""
    rows = [
        row for row in ROWS if arguments.rows in row.name and (row.quick or not arguments.quick)
    ]
    if not rows:
        names = "; ".join(row.name for row in ROWS)
        sys.exit(f"no row has a name with {arguments.rows!r}; rows: {names}")
    found: dict[str, Any] = describe_machine()
    allow_open_files(OPEN_FILES)
    for part in ("machine", "ours", "theirs"):
        print(found[part])
    found["touched"] = touch_memory(QUICK_TOUCHED_GB if arguments.quick else TOUCHED_GB)
    print(found["touched"])
    usual = (QUICK_SCALE, QUICK_WARM_UP) if arguments.quick else (SCALE, WARM_UP)
    scale = usual[0] if arguments.scale is None else arguments.scale
    warm_up = usual[1] if arguments.warm_up is None else arguments.warm_up
    rounds = max(arguments.rounds, 1)
    turns = Turns(rows, scale, warm_up, rounds, rounds_of_events=1 if arguments.quick else rounds)
    print(heading(), flush=True)

    def write_json() -> None:
        found.update(quick=arguments.quick, scale=scale, warm_up=warm_up)
        found.update(cold=turns.cold, rows=turns.results)
        if arguments.json is not None:
            arguments.json.write_text(json.dumps(found, indent=1) + "\n")

    write_json()
    turns.run(write_json)
    return found


def describe_machine() -> dict[str, str]:
    """Describe the machine and both sides; exit with one line if Java is missing."""
    java = java_version()
    cpus = [
        line.partition(":")[2].strip()
        for line in Path("/proc/cpuinfo").read_text().splitlines()
        if line.startswith("model name")
    ]
    memory = os.sysconf("SC_PHYS_PAGES") * PAGE / (1 << 30)
    return {
        "date": datetime.now(UTC).date().isoformat(),
        "machine": f"{os.cpu_count()} cores ({cpus[0] if cpus else os.uname().machine}),"
        f" {memory:.0f} GiB, Linux {os.uname().release}",
        "ours": f"Tidelog on {interpreter()}",
        "theirs": f"{release()} on {java}",
    }


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit("stopped; the JSON file of --json has the rows that are done")
