"""A console on 3,000 partitions: memory stays bounded, and a page of one partition stays live."""

import json
import subprocess
import sys
import time
from functools import partial
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest
from console_client import CALM, PATIENCE_S, Page

from tidelog.core.record.record import Record
from tidelog.shell.client import admin
from tidelog.shell.client.cluster import Cluster
from tidelog.shell.client.producer import Producer
from tidelog.shell.supervisor.cluster import LocalCluster

MEMORY_MAX_KB = 300 * 1024
"""Twice what it takes."""
WATCHED_S = 5.0


def peak_kb(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM"))


def committed(end: int, data: dict[str, Any]) -> bool:
    return bool(data["partition"]["replicas"][0]["high_watermark"] == end)


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="memory is read from /proc")
def test_memory_is_bounded_with_3000_partitions(tmp_path: Path) -> None:
    with (
        LocalCluster(brokers=1, settings=CALM) as running,
        Cluster(running.bootstrap, timeout_s=PATIENCE_S) as cluster,
    ):
        admin.create_topic(cluster, "many", 3000, 1)
        command = [sys.executable, "-m", "tidelog", "console", "-b", running.bootstrap]
        with subprocess.Popen(
            [*command, "--port", "0"], stdout=subprocess.PIPE, text=True, cwd=tmp_path
        ) as console:
            try:
                assert console.stdout is not None
                port = int(console.stdout.readline().rpartition(":")[2])
                pages = [
                    Page(HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S), f"/api/live/{path}")
                    for path in ("overview", "topics/many", "partitions/many/2999", "brokers/1")
                ]
                assert pages[0].until(lambda data: data["counts"]["partitions"] == 3000)
                assert len(pages[1].until(lambda data: data["partitions"])["partitions"]) == 3000
                producer = Producer(cluster, timeout_s=PATIENCE_S)
                end, until = 0, time.monotonic() + WATCHED_S
                while time.monotonic() < until:
                    producer.append("many", 2999, [Record(None, b"x", 1)])
                    end += 1
                    pages[2].until(partial(committed, end))
                assert peak_kb(console.pid) < MEMORY_MAX_KB, json.dumps(peak_kb(console.pid))
                for page in pages:
                    page.close()
            finally:
                console.terminate()
        assert console.returncode == 0
