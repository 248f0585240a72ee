"""Spark's reads and writes of topics through format("tidelog"), compared with its own connector.

Each side is a Spark of its own: Tidelog's with the project's PySpark, the connector's with the
newest PySpark for which its jars are available. Both use local[2] with the recommended
settings. They take turns on the same topics and brokers, in one run. Only one of them works at a
time, and the side that works first changes with each round.

The first job after the start is cold; the others are warm, and the table has their best and their
median. CPU is that of the JVM, the driver and all Python workers, for a row; the brokers' CPU is
beside it. `others` is the CPU that other processes used meanwhile, in cores: above 0.3 compare CPU,
not time.

    make bench-spark                    all rows, about fifteen minutes
    make bench-spark ROWS='100 B'       rows whose name contains that
"""

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, suppress
from itertools import cycle, islice
from pathlib import Path
from typing import Any, NamedTuple

from processes import ROOT, TICK_S, cpu_s, machine_cpu_s, script_output

from tidelog.apps.spark.session import JVM_OPTIONS
from tidelog.core.record.compression import Codec
from tidelog.core.record.encoder import encode_batch
from tidelog.core.record.record import Record
from tidelog.shell.client.admin import create_topic, delete_topic
from tidelog.shell.client.cluster import Cluster
from tidelog.shell.client.producer import produce
from tidelog.shell.supervisor.cluster import LocalCluster

MASTER, HEAP = "local[2]", "2g"
SINK_TASKS = 2
SINK_BATCHES = {"kafka.batch.size": str(512 << 10), "kafka.linger.ms": "5"}
STREAM_ROWS = 2000
STREAM_BATCHES = 60
MIN_ROUNDS = 2
HERE = Path(__file__).parent
TIDELOG, KAFKA = "tidelog", "kafka"
CONNECTOR = ROOT / "build" / "spark-connector"
FS_MANAGER = "org.apache.spark.sql.execution.streaming.FileSystemBasedCheckpointFileManager"
SETTINGS = {
    TIDELOG: {},  # spark_session sets the recommended ones
    KAFKA: {
        "spark.sql.streaming.checkpointFileManagerClass": FS_MANAGER,
        "spark.driver.extraJavaOptions": JVM_OPTIONS,
        "spark.sql.session.timeZone": "UTC",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
    },
}
PARTITIONS = 2
DIFFERENT = 24
BATCH_BYTES = 128_000
"""Bytes of records in a batch; a producer under load fills its batches."""
LEADER_ONLY = 1
WORDS = tuple(f"{word}{n} " for n in range(16) for word in ("order", "paid", "sent", "late"))
"""Text made of these compresses to a third of its size with lz4."""


class Row(NamedTuple):
    """One line of the table."""

    name: str
    job: str
    size: int
    rows: int
    codec: Codec
    goal: float
    """How many times as fast as the connector Tidelog should be; 0: no goal."""
    floor: float
    given: dict[str, Any]


SUM, ALL = {"query": "sum"}, {"query": "all columns"}
PRUNED = {"query": "sum", "schema": "value binary"}
SMALL, LARGE = 8_000_000, 2_000_000
ROWS = (
    Row("read 100 B", "read", 100, SMALL, Codec.NONE, 2, 1.2, SUM),
    Row("read 100 B, all columns", "read", 100, SMALL, Codec.NONE, 0, 0, ALL),
    Row("read 100 B, ours pruned to value", "read", 100, SMALL, Codec.NONE, 0, 0, PRUNED),
    Row("read 100 B lz4", "read", 100, SMALL, Codec.LZ4, 2, 1.2, SUM),
    Row("read 1 KB", "read", 1000, LARGE, Codec.NONE, 1.6, 1, SUM),
    Row("read 1 KB lz4", "read", 1000, LARGE, Codec.LZ4, 1.6, 1, SUM),
    Row("micro-batch of 2,000 rows", "stream", 100, 400_000, Codec.NONE, 1, 1 / 1.3, {}),
    Row("sink 100 B", "write", 100, 3_000_000, Codec.NONE, 1.5, 1, {}),
    Row("sink 100 B, batches of 512 KB", "write", 100, 3_000_000, Codec.NONE, 0, 0, SINK_BATCHES),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", default="", help="only rows whose name contains this")
    parser.add_argument("--scale", type=float, default=1.0, help="factor on the work of each row")
    parser.add_argument("--rounds", type=int, default=5, help="warm rounds of each row")
    parser.add_argument("--json", type=Path, help="also write the results to this JSON file")
    arguments = parser.parse_args()
    rows = [row for row in ROWS if arguments.rows in row.name]
    if not rows:
        names = ", ".join(row.name for row in ROWS)
        sys.exit(f"no row has a name with {arguments.rows!r}; rows: {names}")
    pythons = {TIDELOG: sys.executable, KAFKA: connector_python()}
    print(f"Python {sys.version.split()[0]}, {os.cpu_count()} cores, {MASTER}, {HEAP} of heap each")
    print(heading(), flush=True)
    results = []
    with LocalCluster(brokers=3, settings={"auto.create.topics.enable": "false"}) as cluster:
        topics: dict[tuple[int, Codec, int], tuple[str, int]] = {}
        for row in rows:
            scaled = row._replace(rows=max(int(row.rows * arguments.scale), 10_000))
            result = measure(scaled, cluster, pythons, topics, max(arguments.rounds, MIN_ROUNDS))
            results.append(result)
            print(line(result), flush=True)
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(results, indent=2) + "\n")


def measure(
    row: Row,
    cluster: LocalCluster,
    pythons: dict[str, str],
    topics: dict[tuple[int, Codec, int], tuple[str, int]],
    rounds: int,
) -> dict[str, Any]:
    """Do the row's job on both sides in fresh processes: once cold, then in turns."""
    brokers = [cluster.pid(broker) for broker in cluster.ids]
    kind = (row.size, row.codec, row.rows)
    if row.job != "write" and kind not in topics:
        name = f"bench-{row.size}-{row.codec.name.lower()}-{row.rows}"
        topics[kind] = name, fill(cluster.bootstrap, name, row.rows, row.size, row.codec)
    topic, count = topics.get(kind, ("", row.rows))
    found: dict[str, list[dict[str, Any]]] = {TIDELOG: [], KAFKA: []}
    with ExitStack() as stack:
        sides = []
        for name, python in pythons.items():
            sides.append(Side(name, python, MASTER, HEAP))
            stack.callback(sides[-1].close)
        for turn in range(1 + rounds):
            for side in sides if turn % 2 == 0 else reversed(sides):
                found[side.name].append(one_job(row, side, cluster, brokers, topic, turn))
    check_same_result(
        {name: [one.get("found") for one in each] for name, each in found.items()}, row
    )
    return summary(row, count, found)


def one_job(
    row: Row, side: "Side", cluster: LocalCluster, brokers: list[int], topic: str, turn: int
) -> dict[str, Any]:
    where = {"kafka.bootstrap.servers": cluster.bootstrap}
    if row.job == "read":
        return side("read", brokers, options={**where, "subscribe": topic}, **row.given)
    if row.job == "stream":
        options = {**where, "subscribe": topic, "startingOffsets": "earliest"}
        options["maxOffsetsPerTrigger"] = str(STREAM_ROWS)
        answer = side("stream", brokers, options=options, batches=STREAM_BATCHES)
        # The limit is divided among partitions, and the shares are rounded down.
        if not STREAM_ROWS - 2 <= answer["rows"][0] <= answer["rows"][-1] <= STREAM_ROWS:
            sys.exit(f"{side.name}: micro-batches of {answer['rows']} rows, not of {STREAM_ROWS}")
        return answer
    fresh = f"sink-{side.name}-{turn}"
    with Cluster(cluster.bootstrap) as client:
        create_topic(client, fresh, 2, 1)
        options = {**where, **row.given, "topic": fresh}
        size = {"rows": row.rows, "size": row.size, "tasks": SINK_TASKS}
        answer = side("write", brokers, options=options, **size)
        delete_topic(client, fresh)
    return answer


def check_same_result(found: dict[str, list[Any]], row: Row) -> None:
    """Exit if the two sides, or two rounds, did not read the same."""
    if len({json.dumps(one) for each in found.values() for one in each}) != 1:
        sys.exit(f"{row.name}: the results of the sides or rounds differ: {found}")


def figure(one: dict[str, Any]) -> float:
    """Return the figure to compare; less is better."""
    return float(one["median_ms"] if "median_ms" in one else one["seconds"])


def summary(row: Row, count: int, found: dict[str, list[dict[str, Any]]]) -> dict[str, Any]:
    result: dict[str, Any] = {"row": row._asdict(), "count": count}
    for name, (cold, *warm) in found.items():
        result[name] = {
            "cold": figure(cold),
            "best": min(map(figure, warm)),
            "median": statistics.median(map(figure, warm)),
            "cpu_s": statistics.median(one["cpu_s"] for one in warm),
            "broker_cpu_s": statistics.median(one["broker_cpu_s"] for one in warm),
            "rounds": [cold, *warm],
        }
    ours, theirs = result[TIDELOG], result[KAFKA]
    pairs = zip(found[TIDELOG][1:], found[KAFKA][1:], strict=True)
    ratios = sorted(figure(their) / figure(our) for our, their in pairs)
    result["ratio"] = theirs["best"] / ours["best"]
    result["ratio_of_medians"] = theirs["median"] / ours["median"]
    result["ratio_spread"] = [ratios[0], ratios[-1]]
    result["ratio_cold"] = theirs["cold"] / ours["cold"]
    result["ratio_cpu"] = theirs["cpu_s"] / ours["cpu_s"]
    loads = [one["foreign_load"] for each in found.values() for one in each]
    result["foreign_load"] = statistics.mean(loads)
    return result


def heading() -> str:
    sides = " ".join(
        f"{f'{name}: cold':>14} {'best':>9} {'median':>9} {'CPU':>8} {'brokers':>8}"
        for name in (TIDELOG, KAFKA)
    )
    return (
        f"{'row':32} {sides} {'ratio':>6} {'spread':>11} {'cold':>5} {'CPU':>5}"
        f" {'goal':>5} {'floor':>5} {'others':>6}"
    )


def line(result: dict[str, Any]) -> str:
    row, count = result["row"], result["count"]
    is_stream = row["job"] == "stream"

    def shown_side(name: str) -> str:
        side = result[name]
        work = STREAM_BATCHES * STREAM_ROWS if is_stream else count
        times = [side["cold"], side["best"], side["median"]]
        shown = [f"{t:.0f} ms" if is_stream else f"{work / t / 1e6:.2f} M/s" for t in times]
        cpu, brokers = (side[key] / work * 1e6 for key in ("cpu_s", "broker_cpu_s"))
        return f"{shown[0]:>14} {shown[1]:>9} {shown[2]:>9} {cpu:>5.2f} us {brokers:>5.2f} us"

    low, high = result["ratio_spread"]
    wanted = [f"{row[key]:.2g}" if row[key] else "-" for key in ("goal", "floor")]
    return (
        f"{row['name']:32} {shown_side(TIDELOG)} {shown_side(KAFKA)} {result['ratio']:>6.2f}"
        f" {f'{low:.2f}-{high:.2f}':>11} {result['ratio_cold']:>5.2f} {result['ratio_cpu']:>5.2f}"
        f" {wanted[0]:>5} {wanted[1]:>5} {result['foreign_load']:>6.2f}"
    )


# -- topics to read: a few batches that are sent repeatedly ----------------------------------


def batches(size: int, codec: Codec) -> Iterator[tuple[int, bytes]]:
    """Yield batches, each with its number of records."""
    draw = random.Random(size)
    now = int(time.time() * 1000)  # retention would delete older records
    count = max(BATCH_BYTES // size, 1)
    for number in range(DIFFERENT):
        records = []
        for at in range(count):
            text = "".join(draw.choices(WORDS, k=size // 5 + 1)).encode()[:size]
            records.append(Record(b"%010d" % (number * count + at), text, now + at))
        yield count, bytes(encode_batch(records, attributes=codec))


def fill(bootstrap: str, topic: str, rows: int, size: int, codec: Codec) -> int:
    """Create a topic with about `rows` records; return the exact number."""
    with Cluster(bootstrap) as client:
        create_topic(client, topic, PARTITIONS, 1)
        known = client.topic(topic)
        made = list(batches(size, codec))
        wanted = -(-rows // made[0][0])
        written = 0
        for number, (count, batch) in enumerate(islice(cycle(made), wanted)):
            partition = number % PARTITIONS
            leader = client.broker(client.leader(topic, partition).leader)
            answer = produce(leader, known, partition, batch, LEADER_ONLY)
            if answer.error:
                raise SystemExit(
                    f"cannot write a batch to {topic}-{partition}: error {answer.error}"
                )
            written += count
    return written


# -- the two sides as processes, and their CPU -----------------------------------------------


def connector_python() -> str:
    """Return the Python of the environment with Spark's own connector; create it if missing."""
    return script_output("set_up_connector.py", CONNECTOR)


class Side:
    """A worker process in its environment; it is idle between jobs."""

    def __init__(self, name: str, python: str, master: str, heap: str) -> None:
        self.name = name
        given = {"master": master, "heap": heap, "settings": SETTINGS[name]}
        self._log = tempfile.TemporaryFile("w+")  # noqa: SIM115 -- until close
        self._process = subprocess.Popen(
            [python, str(HERE / "spark_worker.py"), name, json.dumps(given)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
        )
        self._answer()

    def __call__(self, job: str, watched: Sequence[int], **given: Any) -> dict[str, Any]:
        """Run a job; return its result with the CPU of this side, of `watched`, and of others."""
        own, brokers = tree_cpu_s(self._process.pid), sum(map(cpu_s, watched))
        total, began = machine_cpu_s(), time.monotonic()
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"job": job, "with": given}) + "\n")
        self._process.stdin.flush()
        answer = self._answer()
        wall = time.monotonic() - began
        answer["cpu_s"] = tree_cpu_s(self._process.pid) - own
        answer["broker_cpu_s"] = sum(map(cpu_s, watched)) - brokers
        others = machine_cpu_s() - total - answer["cpu_s"] - answer["broker_cpu_s"]
        answer["foreign_load"] = max(others, 0) / wall
        return answer

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        answer: dict[str, Any] = json.loads(line or '{"error": "the worker process ended"}')
        if "error" in answer:
            self._log.seek(0)
            sys.stderr.write(self._log.read()[-1500:])
            self.close()
            sys.exit(f"{self.name}: {answer['error']}")
        return answer

    def close(self) -> None:
        with suppress(OSError):
            self._process.communicate(timeout=30)
        if self._process.poll() is None:
            self._process.kill()
            self._process.communicate()
        self._log.close()


def tree_cpu_s(root: int) -> float:
    """Return the CPU seconds of a process and all its descendants, including ended children."""
    children, cpu = defaultdict(list), {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            fields = path.read_text().rpartition(")")[2].split()
            pid = int(path.parent.name)
            children[int(fields[1])].append(pid)
            cpu[pid] = sum(map(int, fields[11:15])) * TICK_S
    total, left = 0.0, [root]
    while left:
        pid = left.pop()
        total += cpu.get(pid, 0.0)
        left += children[pid]
    return total


if __name__ == "__main__":
    main()
