"""A standalone Spark cluster from the pip package: a master and workers of one core each.

Invariants: after `close` no process that it started is left. Each process has its own session, so a
worker dies together with its executors, as a machine does.
"""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType

import pyspark

WAIT_S = 120.0
_URL = re.compile(r"spark://127\.0\.0\.1:\d+")


class SparkCluster:
    """Processes on 127.0.0.1, on free ports."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._processes: list[subprocess.Popen[bytes]] = []
        self.master = ""

    def __enter__(self) -> "SparkCluster":
        try:
            log = self._start("master", "org.apache.spark.deploy.master.Master", "--port", "0")
            self.master = self._wait_for(log, _URL)
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def add_worker(self) -> int:
        """Start a worker with one core and one gigabyte; return its number."""
        number = len(self._processes)
        name = f"worker-{number}"
        limits = ("--cores", "1", "--memory", "1g", "--work-dir", str(self._folder / name))
        program = "org.apache.spark.deploy.worker.Worker"
        log = self._start(name, program, self.master, "--port", "0", *limits)
        self._wait_for(log, re.compile("Successfully registered with master"))
        return number

    def kill(self, number: int) -> None:
        """End a worker and its executors at once."""
        os.killpg(self._processes[number].pid, signal.SIGKILL)
        self._processes[number].wait(WAIT_S)

    def executors(self, number: int) -> int:
        """Return how many executors a worker has started so far."""
        return len(list((self._folder / f"worker-{number}").glob("app-*/*")))

    def close(self) -> None:
        for number in reversed(range(len(self._processes))):
            if self._processes[number].poll() is None:
                self.kill(number)
        self._processes = []

    def _start(self, name: str, program: str, *words: str) -> Path:
        home = Path(pyspark.__file__).parent
        log = self._folder / f"{name}.log"
        environment = {
            **os.environ,
            "SPARK_HOME": str(home),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_DAEMON_MEMORY": "256m",
            "PYSPARK_PYTHON": sys.executable,
        }
        command = [str(home / "bin" / "spark-class"), program, "--host", "127.0.0.1"]
        with open(log, "wb") as out:
            process = subprocess.Popen(
                [*command, "--webui-port", "0", *words],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                env=environment,
                start_new_session=True,
            )
        self._processes.append(process)
        return log

    def _wait_for(self, log: Path, sign: re.Pattern[str]) -> str:
        until = time.monotonic() + WAIT_S
        while time.monotonic() < until:
            if found := sign.search(log.read_text(errors="replace")):
                return found[0]
            assert self._processes[-1].poll() is None, log.read_text()[-2000:]
            time.sleep(0.2)
        raise AssertionError(f"no {sign.pattern} in {log.read_text()[-2000:]}")
