"""Throughput and latency of a real cluster, compared with librdkafka's mock cluster, in one run.

The load comes from librdkafka, from C and in a process of its own, so that the client's speed does
not depend on Tidelog. Each row has the work done in a second, and the CPU of all brokers and of the
client for a gigabyte or a request. It also has the CPU of other processes, and the ratio to the
mock, which is C, in memory, and in the client's process.

Each row runs several times, on a fresh cluster. The best round is printed with the worst beside it.
A virtual machine that has to return its memory and get it again writes at a third of its speed.
Such a round is not a result of the brokers.

    make bench                 all rows, about three minutes
    make bench ROWS=produce    rows whose name contains this
"""

import argparse
import json
import os
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

from processes import Meter, compile_c, interpreter, library, rss_mb, run_json

from tidelog.core.record.encoder import encode_value
from tidelog.core.wire.codec import encode_request
from tidelog.shell.client.admin import create_topic
from tidelog.shell.client.cluster import Cluster
from tidelog.shell.supervisor.cluster import LocalCluster

BULK = ("linger.ms=5", "batch.size=1000000", "queue.buffering.max.messages=1000000")
BULK += ("queue.buffering.max.kbytes=1000000", "acks=all")
ONE_IN_FLIGHT = ("linger.ms=0",)
FETCH = ("fetch.message.max.bytes=4194304", "check.crcs=false", "queued.min.messages=1000000")
PRODUCE = 0


class Row(NamedTuple):
    """One line of the table."""

    name: str
    work: str
    size: int
    count: int
    partitions: int
    replication: int
    options: tuple[str, ...]
    floor: str
    """The minimum that a machine with two cores must reach, in this row's unit."""


ROWS = (
    Row("produce RF1 1 KB", "produce", 1000, 1_000_000, 1, 1, BULK, "600 MB/s"),
    Row("produce RF1 100 B", "produce", 100, 6_000_000, 1, 1, BULK, "150 MB/s"),
    Row("produce RF3 1 KB", "produce", 1000, 1_000_000, 1, 3, BULK, "250 MB/s"),
    Row("produce RF3 100 B", "produce", 100, 4_000_000, 1, 3, BULK, "100 MB/s"),
    Row("produce RF3 1 KB, 4 partitions", "produce", 1000, 1_000_000, 4, 3, BULK, ""),
    Row("consume 1 KB", "consume", 1000, 1_000_000, 1, 1, FETCH, "450 MB/s"),
    Row("consume 100 B", "consume", 100, 6_000_000, 1, 1, FETCH, "120 MB/s"),
    Row("latency RF1 acks=1", "latency", 100, 5000, 1, 1, (*ONE_IN_FLIGHT, "acks=1"), "300 us"),
    Row("latency RF3 acks=all", "latency", 100, 5000, 1, 3, (*ONE_IN_FLIGHT, "acks=all"), "800 us"),
    Row("tiny requests, window 32", "pipelined", 100, 100_000, 1, 1, ("1", "32"), "40000 req/s"),
    Row(
        "tiny requests, 16 connections", "pipelined", 100, 60_000, 1, 1, ("16", "1"), "15000 req/s"
    ),
    Row("fsynced, tiny, window 32", "pipelined", 100, 30_000, 1, 1, ("1", "32"), "10000 req/s"),
    Row("fsynced, 1 MB, window 5", "pipelined", 1_000_000, 500, 1, 1, ("1", "5"), "300 MB/s"),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", default="", help="only rows whose name contains this")
    parser.add_argument("--scale", type=float, default=1.0, help="factor on the work of each row")
    parser.add_argument("--rounds", type=int, default=3, help="rounds of each row")
    parser.add_argument("--one-process", action="store_true", help="three brokers in one process")
    parser.add_argument("--json", type=Path, help="also write the results to this JSON file")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        load = compile_c("librdkafka_load.c", Path(folder))
        pipelined = compile_c("pipelined_requests.c", Path(folder))
        results = []
        heading()
        for row in ROWS:
            if arguments.rows in row.name:
                scaled = row._replace(count=max(int(row.count * arguments.scale), 100))
                rounds = [
                    measure(scaled, load, pipelined, Path(folder), arguments.one_process)
                    for _ in range(arguments.rounds)
                ]
                best = min(rounds, key=figure)
                best["worst"] = max(figure(result) for result in rounds) / figure(best)
                results.append(best)
                print(line(best), flush=True)
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(results, indent=2) + "\n")


def figure(result: dict[str, Any]) -> float:
    """Return the figure that is compared between rounds; less is better."""
    return float(result["p50_us"] if "p50_us" in result else result["seconds"])


def measure(
    row: Row, load: Path, pipelined: Path, folder: Path, one_process: bool
) -> dict[str, Any]:
    """Do the row's work on a cluster of its own, then on the mock."""
    settings = {"auto.create.topics.enable": "false"}
    if row.name.startswith("fsynced"):
        settings["log.flush.interval.messages"] = "1"
    with LocalCluster(brokers=3, settings=settings, one_process=one_process) as cluster:
        with Cluster(cluster.bootstrap) as client:
            create_topic(client, "bench", row.partitions, row.replication)
            leader = client.leader("bench", 0).leader
        pids = sorted({cluster.pid(broker) for broker in cluster.ids})
        if row.work == "consume":
            filled = [load, library(), "produce", cluster.bootstrap, "bench"]
            filled += [str(row.partitions), str(row.count), str(row.size), *BULK]
            run_json(filled)
        if row.work == "pipelined":
            frame = folder / "frame"
            frame.write_bytes(produce_frame(row.size))
            where = ["127.0.0.1", str(cluster.port(leader)), frame, str(row.count), *row.options]
            command = [pipelined, *where]
        else:
            command = [load, library(), row.work, cluster.bootstrap, "bench"]
            command += [str(row.partitions), str(row.count), str(row.size), *row.options]
        result = run_measured(command, pids)
        result["rss_mb"] = [round(rss_mb(pid), 1) for pid in pids]
    result["row"] = row._asdict()
    result["mock"] = None
    if row.work in ("produce", "latency"):
        mock = [load, library(), row.work, "mock:3", "bench", str(row.partitions)]
        result["mock"] = run_json([*mock, str(row.count), str(row.size), *row.options])
    return result


def produce_frame(size: int, topic: str = "bench") -> bytes:
    """Encode one Produce request with one record."""
    batch = bytes(encode_value(os.urandom(size)))
    partition = {"index": 0, "records": batch}
    request = {
        "acks": -1,
        "timeout_ms": 30_000,
        "topic_data": [{"name": topic, "partition_data": [partition]}],
    }
    return encode_request(PRODUCE, 9, 1, "bench", request)


def run_measured(command: list[Any], pids: list[int]) -> dict[str, Any]:
    """Run the command; return its result, and the CPU of the brokers and of other processes."""
    meter = Meter(lambda: pids)
    result = run_json(command)
    return {**result, **meter.read()}


def heading() -> None:
    print(f"{interpreter()}, {os.cpu_count()} cores")
    print(
        f"{'row':32} {'result':>22} {'floor':>12} {'mock':>22} {'ratio':>6} {'worst':>6}"
        f" {'brokers CPU':>14} {'client CPU':>12} {'others':>7} {'RSS MB':>16}"
    )


def line(result: dict[str, Any]) -> str:
    row, mock = result["row"], result["mock"]

    def per_gb(cpu: float) -> str:
        return f"{cpu / result['bytes'] * 1e9:.2f} s/GB"

    if row["work"] == "latency":
        shown, shown_mock = latency(result), latency(mock)
        ratio = f"{mock['p50_us'] / result['p50_us']:.2f}"
    else:
        shown, shown_mock = rate(result, row), rate(mock, row) if mock else "-"
        ratio = f"{mock['seconds'] / result['seconds']:.2f}" if mock else "-"
    if row["work"] == "latency" or (row["work"] == "pipelined" and row["size"] < 10_000):

        def per_gb(cpu):
            return f"{cpu / result['messages'] * 1e6:.1f} us/req"

    return (
        f"{row['name']:32} {shown:>22} {row['floor']:>12} {shown_mock:>22} {ratio:>6}"
        f" {result['worst']:>5.1f}x"
        f" {per_gb(result['broker_cpu_s']):>14} {per_gb(result['client_cpu']):>12}"
        f" {result['foreign_load']:>7.2f} {'/'.join(str(round(r)) for r in result['rss_mb']):>16}"
    )


def rate(result: dict[str, Any], row: dict[str, Any]) -> str:
    if row["work"] == "pipelined" and row["size"] < 10_000:
        return f"{result['messages'] / result['seconds']:.0f} req/s"
    kilo = result["messages"] / result["seconds"] / 1e3
    return f"{result['bytes'] / result['seconds'] / 1e6:.0f} MB/s {kilo:.0f} k/s"


def latency(result: dict[str, Any]) -> str:
    return f"p50 {result['p50_us']:.0f} p99 {result['p99_us']:.0f} us"


if __name__ == "__main__":
    main()
