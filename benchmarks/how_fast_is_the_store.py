"""The time of a metadata change, and the time until other brokers receive it.

Estimate: a guarded transaction is eight statements of about 10 µs and one fdatasync, so it is as
fast as the disk. Another process is notified by a datagram (0.1 ms), and reads the store twice.

    python benchmarks/how_fast_is_the_store.py [--format json]

Figures are wall-clock times of calls one after another, so other work on the machine adds to them.
A plain fsync in the same folder is measured for comparison.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any

from tidelog.core.controller.metadata.metadata_store import Batch, Guard, Put, TxnResult
from tidelog.shell.clock import boot_ms
from tidelog.shell.store import cluster_file
from tidelog.shell.store.log_dir_lock import LockProof
from tidelog.shell.store.sqlite_store_client import SqliteStoreClient

VALUE = b"x" * 200
TTL_MS = 60_000
NO_REVISION = 0


class Client:
    """A store client that waits for each response."""

    def __init__(self, path: str) -> None:
        self.callbacks: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self.client = SqliteStoreClient(path, LockProof(), boot_ms, self.callbacks.put)

    def call(self, method: Callable[..., None], *args: object) -> Any:
        answers: list[Any] = []
        method(*args, answers.append)
        while not answers:
            self.callbacks.get()()
        return answers[0]

    def put(self, key: str, value: bytes, rev: int | None = None) -> int:
        guards = () if rev is None else (Guard(key, rev),)
        answer = self.call(self.client.transact, guards, (Put(key, value),))
        assert isinstance(answer, TxnResult)
        assert answer.ok
        return answer.rev


def quantiles(times_s: list[float]) -> dict[str, float]:
    times_s.sort()
    ranks = {"p50": len(times_s) // 2, "p99": len(times_s) * 99 // 100}
    return {name: round(times_s[rank] * 1000, 3) for name, rank in ranks.items()}


def timed(times: int, act: Callable[[], object]) -> dict[str, float]:
    taken = []
    for _ in range(times):
        began = time.perf_counter()
        act()
        taken.append(time.perf_counter() - began)
    return quantiles(taken)


def append_and_sync(folder: str) -> dict[str, float]:
    fd = os.open(os.path.join(folder, "plain"), os.O_CREAT | os.O_RDWR)

    def append() -> None:
        os.write(fd, VALUE)
        os.fsync(fd)

    try:
        return timed(500, append)
    finally:
        os.close(fd)


def write_many(path: str, key: str) -> dict[str, float]:
    client = Client(path)
    rev = 0

    def put() -> None:
        nonlocal rev
        rev = client.put(key, VALUE, rev)

    put()
    figures = timed(500, put)
    client.client.close()
    return figures


def start(role: str, path: str, key: str = "") -> subprocess.Popen[str]:
    command = [sys.executable, __file__, "--role", role, "--path", path, "--key", key]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def in_another_process(role: str, path: str) -> dict[str, float]:
    figures: dict[str, float] = json.loads(start(role, path).communicate()[0])
    return figures


def three_processes(path: str) -> dict[str, float]:
    """Return the figures of the median process of three that write without a pause."""
    children = [start("writer", path, f"w{n}") for n in range(3)]
    figures = [json.loads(child.communicate()[0]) for child in children]
    middle: dict[str, float] = sorted(figures, key=lambda figure: float(figure["p50"]))[1]
    return middle


def stamp(path: str) -> None:
    """Write the current time repeatedly, so that another process can compute the delay."""
    client = Client(path)
    for _ in range(200):
        client.put("time", b"%d" % time.monotonic_ns())
        time.sleep(0.01)
    client.client.close()


def notification_delay(path: str) -> dict[str, float]:
    """Measure from before a transaction is sent until another process's loop has the change."""
    client = Client(path)
    lags: list[float] = []

    def changed(batch: Batch) -> None:
        now = time.monotonic_ns()
        lags.extend((now - int(c.kv.value)) / 1e9 for c in batch.changes if c.kv)

    client.client.watch(client.put("before", b"0"), changed, lambda: None)
    child = start("stamper", path)
    while len(lags) < 200:
        client.callbacks.get()()
    child.communicate()
    client.client.close()
    return quantiles(lags)


def idle_client(path: str) -> dict[str, float]:
    """Measure the CPU of an idle client with a session and a watch, and the memory of a client."""
    before_kb = resident_kb()
    client = Client(path)
    client.call(client.client.open_session, TTL_MS)
    client.client.watch(client.put("before", b"0"), lambda _batch: None, lambda: None)
    time.sleep(1.0)
    after_kb = resident_kb()
    cpu_s, wall_s = time.process_time(), time.monotonic()
    time.sleep(10.0)
    cost = (time.process_time() - cpu_s) / (time.monotonic() - wall_s)
    client.client.close()
    return {"idle CPU-s/s": round(cost, 6), "KiB": after_kb - before_kb}


def resident_kb() -> int:
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") // 1024


def ten_thousand_keys(path: str) -> dict[str, dict[str, float]]:
    client = Client(path)
    for topic in range(100):
        ops = tuple(Put(f"topics/id/{topic:032x}/{n:06d}", VALUE) for n in range(100))
        client.call(client.client.transact, (), ops)
    figures = {
        "transaction of 100 puts, ms": timed(
            50, lambda: client.call(client.client.transact, (), ops)
        ),
        "snapshot of 10,000 keys, ms": timed(
            10, lambda: client.call(client.client.read, NO_REVISION)
        ),
    }
    client.client.close()
    return figures


def measure() -> dict[str, dict[str, float]]:
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "cluster.db")
        began = time.perf_counter()
        cluster_file.prepare(path)
        made = time.perf_counter()
        return {
            "create the file, ms": {"once": round((made - began) * 1000, 3)},
            "append and fsync, ms": append_and_sync(folder),
            "guarded transaction, ms": write_many(path, "k"),
            "the same in three processes at once, ms": three_processes(path),
            "another process is notified, ms": notification_delay(path),
            **ten_thousand_keys(path),
            "an idle client": in_another_process("idle", path),
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--format", choices=("text", "json"), default="text")
    parser.add_argument("--role", help=argparse.SUPPRESS)
    parser.add_argument("--path", help=argparse.SUPPRESS)
    parser.add_argument("--key", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.role == "writer":
        print(json.dumps(write_many(arguments.path, arguments.key)))
    elif arguments.role == "idle":
        print(json.dumps(idle_client(arguments.path)))
    elif arguments.role == "stamper":
        stamp(arguments.path)
    elif arguments.format == "json":
        print(json.dumps(measure(), indent=2))
    else:
        for what, figures in measure().items():
            print(f"{what:42}", "  ".join(f"{name} {n}" for name, n in figures.items()))


if __name__ == "__main__":
    main()
