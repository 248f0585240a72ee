"""How fast Tidelog is beside Apache Kafka itself: the same work on both, in turns, in one run.

Three real Kafka brokers (the newest release, jars from Maven Central, its own defaults) and
three Tidelog brokers are up at the same time; only one side works at a time, and who comes
first changes with each round. Kafka is warmed up first, for its JVMs take gigabytes to reach
their speed; what it did with its first one is shown as well. A ratio above 1 says that
Tidelog is better: by time, and by the brokers' CPU. `others` is what strangers burned
meanwhile, in cores: with more than 0.3 look at the CPU rather than at the time.

    make bench-kafka                    all rows, three rounds
    make bench-kafka QUICK=1            in less than five minutes
    make bench-kafka ROWS='RF3 1 KB'    rows whose name contains that
"""

import argparse
import json
import os
import sys
import sysconfig
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from beside_kafka.figures import figure, heading, line, summary
from beside_kafka.loads import Loads
from beside_kafka.rows import ROWS, Row, consume, produce, requests
from beside_kafka.sides import KAFKA, TIDELOG, Side

WARM_UP = (
    produce(1000, 1.0, 1, 3),
    produce(1000, 1.0, 1, 1),
    produce(100, 0.4, 6, 3),
    consume(1000, 1.0, 1),
    requests(16, 1, 20_000),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", default="", help="only rows whose name contains this")
    parser.add_argument("--quick", action="store_true", help="few rows, a third of the work")
    parser.add_argument("--rounds", type=int, default=3, help="of each row, at least one")
    parser.add_argument("--scale", type=float, default=1.0, help="of the work in each row")
    parser.add_argument("--warm-up", type=int, default=3, help="times that all kinds are done")
    parser.add_argument("--json", type=Path, help="write the results there too")
    asked = parser.parse_args()
    rows = [row for row in ROWS if asked.rows in row.name and (row.quick or not asked.quick)]
    if not rows:
        sys.exit(f"no row has {asked.rows!r} in its name: {', '.join(row.name for row in ROWS)}")
    scale = asked.scale / 3 if asked.quick else asked.scale
    with ExitStack() as stack:
        loads = Loads()
        stack.callback(loads.close)
        sides = [stack.enter_context(Side(name)) for name in (TIDELOG, KAFKA)]
        results = run(rows, loads, sides, scale, max(asked.rounds, 1), asked.warm_up)
    if asked.json is not None:
        asked.json.write_text(json.dumps(results, indent=2) + "\n")


def run(
    rows: list[Row], loads: Loads, sides: list[Side], scale: float, rounds: int, warm_up: int
) -> dict[str, Any]:
    optimised = "--enable-optimizations" in (sysconfig.get_config_var("CONFIG_ARGS") or "")
    build = "optimised" if optimised else "perhaps not optimised"
    print(f"Python {sys.version.split()[0]} ({build}), {os.cpu_count()} cores")
    for side in sides:
        print(f"{side.name}: ready after {side.start_s:.2f} s, {side.rss_mb():.0f} MB in all")
    cold = first_gigabyte(loads, sides, scale)
    for _ in range(warm_up):
        for work in WARM_UP:
            work(loads, sides[1], scale)
    print(heading(), flush=True)
    results = []
    for row in rows:
        found: dict[str, list[dict[str, Any]]] = {side.name: [] for side in sides}
        for turn in range(rounds):
            for side in sides if turn % 2 == 0 else reversed(sides):
                found[side.name].append(row.work(loads, side, scale))
        results.append(summary(row, found))
        print(line(results[-1]), flush=True)
    return {"cold": cold, "rows": results}


def first_gigabyte(loads: Loads, sides: list[Side], scale: float) -> dict[str, Any]:
    """Before anything is warm: what a developer or a CI job meets."""
    row = ROWS[0]
    found = {side.name: row.work(loads, side, scale) for side in sides}
    told = ", ".join(f"{name} {figure(row, one):.0f} {row.unit}" for name, one in found.items())
    print(f"the first gigabyte, {row.name}: {told}", flush=True)
    return found


if __name__ == "__main__":
    main()
