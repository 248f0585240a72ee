"""The two sides as processes, with their CPU: the JVM, the driver, and all Python workers."""

import json
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from processes import ROOT, TICK_S, cpu_s, machine_cpu_s, script_says

from tidelog.apps.spark.session import JVM_OPTIONS

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


def connector_python() -> str:
    """Return the Python of the environment with Spark's own connector; create it if missing."""
    return script_says("set_up_connector.py", CONNECTOR)


class Side:
    """A worker process in its environment; it is idle between jobs."""

    def __init__(self, name: str, python: str, master: str, heap: str) -> None:
        self.name = name
        given = {"master": master, "heap": heap, "settings": SETTINGS[name]}
        self._log = tempfile.TemporaryFile("w+")  # noqa: SIM115 -- until close
        self._process = subprocess.Popen(
            [python, str(HERE / "worker.py"), name, json.dumps(given)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
        )
        self._answer()

    def __call__(self, job: str, watched: Sequence[int], **given: Any) -> dict[str, Any]:
        """Run a job; return its result with the CPU of this side, of `watched`, and of others."""
        own, brokers = tree_cpu_s(self._process.pid), sum(map(cpu_s, watched))
        everybody, began = machine_cpu_s(), time.monotonic()
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"job": job, "with": given}) + "\n")
        self._process.stdin.flush()
        answer = self._answer()
        wall = time.monotonic() - began
        answer["cpu_s"] = tree_cpu_s(self._process.pid) - own
        answer["broker_cpu_s"] = sum(map(cpu_s, watched)) - brokers
        strangers = machine_cpu_s() - everybody - answer["cpu_s"] - answer["broker_cpu_s"]
        answer["foreign_load"] = max(strangers, 0) / wall
        return answer

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        answer: dict[str, Any] = json.loads(line or '{"error": "it ended"}')
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
    children, burned = defaultdict(list), {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            fields = path.read_text().rpartition(")")[2].split()
            pid = int(path.parent.name)
            children[int(fields[1])].append(pid)
            burned[pid] = sum(map(int, fields[11:15])) * TICK_S
    total, left = 0.0, [root]
    while left:
        pid = left.pop()
        total += burned.get(pid, 0.0)
        left += children[pid]
    return total
