"""The growth of real brokers' cost with partitions, connections, segments, followers, groups,
producers and request sizes; and their memory under overload.

Each cost is measured at sizes that grow by a factor of two to four. It is given in CPU seconds of
the brokers where possible, because these are nearly the same on a busy machine. The benchmark fits
the exponent of the size to the upper half of the sizes: 0 is flat, 1 is linear. Rows that grow
faster than allowed are marked. The exit code is 1 only if the benchmark itself fails.

    make bench-scaling                 all parts, ten minutes at most
    make bench-scaling QUICK=1 ROWS=segments
"""

import argparse
import json
import os
import re
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from scaling import connections, docs_output, groups, overload, partitions, producing, segments
from scaling.laws import Results


class Part(NamedTuple):
    """One dimension that grows."""

    name: str
    measure: Callable[[Results, tuple[int, ...]], None]
    sizes: tuple[int, ...]
    quick: tuple[int, ...]


OVERLOAD = "overload"
PARTS = (
    Part("partitions", partitions.measure, partitions.SIZES, partitions.QUICK),
    Part("connections", connections.measure, connections.SIZES, connections.QUICK),
    Part("segments", segments.measure, segments.SIZES, segments.QUICK),
    Part(
        "followers",
        producing.measure_followers,
        producing.FOLLOWER_SIZES,
        producing.FOLLOWER_SIZES,
    ),
    Part("groups", groups.measure, groups.SIZES, groups.QUICK),
    Part(
        "producers",
        producing.measure_producers,
        producing.PRODUCER_SIZES,
        producing.PRODUCER_QUICK,
    ),
    Part(
        "request sizes",
        producing.measure_request_sizes,
        producing.BATCH_SIZES,
        producing.BATCH_QUICK,
    ),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", default="", help="only parts whose name contains this")
    parser.add_argument("--quick", action="store_true", help="fewer sizes, two minutes at most")
    parser.add_argument("--json", type=Path, help="also write the results to this JSON file")
    parser.add_argument("--plot", type=Path, help="write the plots to this folder")
    parser.add_argument("--page", type=Path, help="update the figures on this page")
    parser.add_argument(
        "--again", type=Path, help="do not measure; read the results from this JSON file"
    )
    arguments = parser.parse_args()
    if arguments.again is None:
        results = measure(arguments.rows, arguments.quick)
    else:
        results = json.loads(arguments.again.read_text())
    machine = f"Python {results['python']}, {results['cores']} cores, {results['date']}"
    print(f"{machine}, load of the machine before: {results['load']:.1f}")
    print(Results.from_json(results["rows"]).table())
    if results["overload"]:
        print("\n" + overload.table(results["overload"]))
    if arguments.json is not None:
        arguments.json.write_text(compact(results))
    if arguments.page is not None:
        arguments.page.write_text(docs_output.update_page(arguments.page.read_text(), results))
    if arguments.plot is not None:
        for path in docs_output.draw(results, arguments.plot):
            print(f"drawn: {path}", file=sys.stderr)


def compact(results: dict[str, Any]) -> str:
    """Return JSON with one row a line and four significant digits."""
    rounded = json.loads(json.dumps(results), parse_float=lambda text: float(f"{float(text):.4g}"))
    return re.sub(r", (?=\{)", ",\n", json.dumps(rounded)) + "\n"


def measure(rows: str, quick: bool) -> dict[str, Any]:
    found = Results()
    known = [*(part.name for part in PARTS), OVERLOAD]
    if not any(rows in name for name in known):
        sys.exit(f"no part has a name with {rows!r}; parts: {', '.join(known)}")
    load = os.getloadavg()[0]
    for part in PARTS:
        if rows in part.name:
            began = time.monotonic()
            part.measure(found, part.quick if quick else part.sizes)
            print(f"{part.name}: {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
    return {
        "python": sys.version.split()[0],
        "cores": os.cpu_count(),
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "load": load,
        "rows": found.as_json(),
        "overload": overload.measure(quick) if rows in OVERLOAD else [],
    }


if __name__ == "__main__":
    main()
