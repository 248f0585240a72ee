"""The loads: librdkafka from C, Kafka's own ProducerPerformance, and bare requests.

Each load is a process of its own, so that the client's speed does not depend on Tidelog. Each
returns its message counts, its seconds, and the CPU seconds of the client and of the brokers. It
also returns the brokers' peak memory, and `foreign_load`: the CPU that other processes used, in
cores.
"""

import json
import re
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from beside_kafka.kafka_cluster import class_path, java
from beside_kafka.sides import Side
from how_fast_is_a_cluster import produce_frame
from processes import PATIENCE_S, Meter, compile_c, library, run_json

BULK = ("linger.ms=5", "batch.size=1000000", "queue.buffering.max.messages=1000000")
BULK += ("queue.buffering.max.kbytes=1000000",)
FETCH = ("fetch.message.max.bytes=4194304", "check.crcs=false", "queued.min.messages=1000000")
JAVA_BULK = ("linger.ms=5", "batch.size=131072")
RATE = re.compile(r"([\d.]+) records/sec \(([\d.]+) MB/sec\)")


class Loads:
    """The load programs, compiled and located once."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory()
        folder = Path(self._folder.name)
        self._load = compile_c("librdkafka_load.c", folder)
        self._pipelined = compile_c("pipelined_requests.c", folder)
        self._frame = folder / "frame"
        self._class_path = class_path()

    def close(self) -> None:
        self._folder.cleanup()

    def librdkafka(
        self,
        side: Side,
        work: str,
        topic: str,
        partitions: str | int,
        count: int,
        size: int,
        *options: str,
    ) -> dict[str, Any]:
        """Run `produce` or other work as described in librdkafka_load.c."""
        where = [self._load, library(), work, side.bootstrap, topic]
        return run_measured(side, [[*where, partitions, count, size, *options]])

    def consumers(
        self, side: Side, topic: str, readers: int, partitions: int, count: int, size: int
    ) -> dict[str, Any]:
        """Run `readers` consumers at once, each with an equal share of equally long partitions."""
        share = partitions // readers
        where = [self._load, library(), "consume", side.bootstrap, topic]
        commands = [
            [*where, f"{n * share}-{n * share + share - 1}", count // readers, size, *FETCH]
            for n in range(readers)
        ]
        return run_measured(side, commands)

    def requests(
        self, side: Side, topic: str, count: int, size: int, connections: int, window: int
    ) -> dict[str, Any]:
        """Send a Produce request with one record repeatedly to the leader of partition 0."""
        self._frame.write_bytes(produce_frame(size, topic))
        port = side.brokers.port(side.leader(topic))
        where: list[Any] = [self._pipelined, "127.0.0.1", port, self._frame]
        return run_measured(side, [[*where, count, connections, window]])

    def producer_performance(
        self, side: Side, topic: str, count: int, size: int, acks: str
    ) -> dict[str, Any]:
        """Run Kafka's own tool; it warms up with 20 % more records, which it does not time."""
        warm = count // 5
        command = [java(), "-Xmx1G", "-cp", self._class_path]
        command += ["-Dorg.slf4j.simpleLogger.defaultLogLevel=error"]
        command += ["org.apache.kafka.tools.ProducerPerformance", "--topic", topic]
        command += ["--num-records", str(count + warm), "--warmup-records", str(warm)]
        command += ["--record-size", str(size), "--throughput", "-1"]
        command += ["--bootstrap-server", side.bootstrap]
        command += ["--command-property", f"acks={acks}", *JAVA_BULK]
        meter = Meter(side.pids)
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S)
        rates = RATE.findall(done.stdout)
        if done.returncode or not rates:
            raise SystemExit(f"ProducerPerformance: {done.stdout[-300:]} {done.stderr[-700:]}")
        rate = float(rates[-1][0])
        result = {"messages": count, "bytes": count * size, "seconds": count / rate, "failed": 0}
        return {**result, **meter.read(), "cpu_bytes": (count + warm) * size}


def run_measured(side: Side, commands: Sequence[Sequence[Any]]) -> dict[str, Any]:
    """Run all commands at once; the total time is that of the slowest."""
    meter = Meter(side.pids)
    if len(commands) == 1:
        result = run_json(list(commands[0]))
    else:
        result = run_at_once([list(map(str, command)) for command in commands])
    return {**result, **meter.read(), "cpu_bytes": result["bytes"]}


def run_at_once(commands: list[list[str]]) -> dict[str, Any]:
    running = [subprocess.Popen(one, stdout=subprocess.PIPE, text=True) for one in commands]
    try:
        results = [json.loads(process.communicate(timeout=PATIENCE_S)[0]) for process in running]
    finally:
        for process in running:
            process.kill()  # has no effect if it has ended
            process.wait()
    result = {name: sum(each[name] for each in results) for name in ("messages", "failed", "bytes")}
    result["seconds"] = max(each["seconds"] for each in results)
    return result
