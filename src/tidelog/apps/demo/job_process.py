"""The Spark job as a separate process, and the events it sends.

The job writes one JSON object per line; Spark's other output goes to a file. Invariant: when the
demo ends, in any way, the job and its JVM end too.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any, NamedTuple

ENTRY = "tidelog.apps.demo.spark_job:main"
LOOK_S = 0.1
END_S = 15.0
LINGER_S = 2.0
TAIL_LINES = 400
ERROR_CHARS = 200


class JobFailed(Exception):
    """The job exited or hangs. The message is one line; Spark's output is in `log_path`."""

    def __init__(self, why: str, log_path: str) -> None:
        super().__init__(why)
        self.log_path = log_path


class Event(NamedTuple):
    """One event that the job sent, and when it arrived."""

    at_s: float
    kind: str
    data: dict[str, Any]


class JobProcess:
    """The running Spark job. The constructor starts it; `close` ends it."""

    def __init__(self, bootstrap: str, work: str, entry: str = ENTRY) -> None:
        module, _, function = entry.partition(":")
        self.log_path = os.path.join(work, "spark.log")
        code = f"from {module} import {function}; {function}()"
        self.started_s = time.monotonic()
        self._events: list[Event] = []
        with open(self.log_path, "w", encoding="utf-8") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-c", code, bootstrap, work],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,
            )
        self._thread = threading.Thread(target=self._listen, name="demo-job", daemon=True)
        self._thread.start()

    def __enter__(self) -> "JobProcess":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is not None:
            self._signal(signal.SIGTERM)  # Spark's JVM then cleans up quickly
        self.close()

    def close(self) -> None:
        """End the job: close its input, then kill it if it does not exit."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with contextlib.suppress(OSError):
            self._process.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(END_S)
        # Its JVM and Python workers are in its process group, and may exit shortly after it.
        until = time.monotonic() + LINGER_S
        while self._signal(0) and time.monotonic() < until:
            time.sleep(LOOK_S)
        self._signal(signal.SIGKILL)
        self._process.wait()
        self._thread.join()
        self._process.stdout.close()

    def _signal(self, number: int) -> bool:
        """Send a signal to the job's process group; return False if no process is left."""
        try:
            os.killpg(self._process.pid, number)
        except (ProcessLookupError, PermissionError):
            return False
        return True

    def send(self, command: str, **details: object) -> None:
        """Send a command to the job. Raises JobFailed if the job has ended."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps({"do": command, **details}) + "\n")
            self._process.stdin.flush()
        except OSError:
            raise self._failed() from None

    def events(self, kind: str) -> list[Event]:
        """Return the events of one kind that have arrived so far."""
        return [event for event in list(self._events) if event.kind == kind]

    def wait_for(
        self, what: str, ready: Callable[[], bool], timeout_s: float, note: Callable[[], None]
    ) -> None:
        """Wait until `ready` is true. Raises JobFailed if the job ends first, or on a timeout."""
        until = time.monotonic() + timeout_s
        while not ready():
            if self._process.poll() is not None or self.events("failed"):
                raise self._failed()
            if time.monotonic() > until:
                text = f"timed out after {timeout_s:g} s while waiting for {what}"
                raise JobFailed(f"the Spark job hangs: {text}", self.log_path)
            note()
            time.sleep(LOOK_S)

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            with contextlib.suppress(ValueError, KeyError, TypeError):
                data = json.loads(line)
                self._events.append(Event(time.monotonic(), data.pop("event"), data))

    def _failed(self) -> JobFailed:
        for event in self.events("failed"):
            return JobFailed(f"the Spark job failed: {event.data['why']}", self.log_path)
        with open(self.log_path, encoding="utf-8", errors="replace") as log:
            lines = [line.strip() for line in log.readlines()[-TAIL_LINES:]]
        errors = [line for line in lines if "Error" in line or "Exception" in line]
        why = errors[-1][:ERROR_CHARS] if errors else "its log has no error"
        return JobFailed(f"the Spark job exited unexpectedly: {why}", self.log_path)
