"""Start, monitor and stop the worker processes of a run.

Invariant: after `close` no worker is left, whatever happened before.
"""

import json
import os
import subprocess
import sys
import threading
from collections import Counter
from contextlib import suppress
from typing import Any

from tidelog.apps.verify.workload.worker import Task

ENTRY = f"from {Task.__module__} import main; main()"
END_S = 130.0
"""How long a worker may take to finish its open sends after the request to stop."""


class WorkerFailed(Exception):
    """A worker process failed; the text is one line for users."""


class Worker:
    """One worker process."""

    def __init__(self, task: Task) -> None:
        self.task = task
        self.reported: dict[str, Any] = {}
        """The latest value of everything that the worker reported."""
        self._errors = open(  # noqa: SIM115 - closed in close
            os.path.join(task.folder, f"worker-{task.role.replace(' ', '-')}.err"), "wb"
        )
        self._process = subprocess.Popen(
            [sys.executable, "-c", ENTRY],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
        )
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()
        self._send(task._asdict())

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.reported.update(json.loads(line))

    def _send(self, message: dict[str, Any]) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(message) + "\n")
            self._process.stdin.flush()
        except OSError:
            raise WorkerFailed(self._failure()) from None

    def check(self) -> None:
        """Raise WorkerFailed if the worker ended too early."""
        if self._process.poll() is not None and not self.reported.get("done"):
            raise WorkerFailed(self._failure())

    def _failure(self) -> str:
        code = self._process.wait(5)
        with open(self._errors.name, errors="replace") as file:
            lines = file.read().strip().splitlines()
        return (
            f"{self.task.role} exited with code {code}: {lines[-1] if lines else 'no error output'}"
        )

    def stop(self, ends: list[int] | None = None) -> None:
        """Request the worker to stop: producers finish open sends, readers read up to `ends`."""
        self._send({"ends": ends or []})

    def await_end(self) -> None:
        """Wait until the worker is done. Raises WorkerFailed."""
        self._listener.join(END_S)
        if not self.reported.get("done"):
            raise WorkerFailed(
                f"{self.task.role} did not exit within {END_S:g} s"
                if self._listener.is_alive()
                else self._failure()
            )

    def close(self) -> None:
        """Kill the worker if it still runs, and close its pipes."""
        if self._process.poll() is None and not self.reported.get("done"):
            self._process.kill()
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with suppress(BrokenPipeError):
            self._process.stdin.close()
        self._process.wait()
        self._listener.join()
        self._process.stdout.close()
        self._errors.close()


class Workers:
    """All workers of a run."""

    def __init__(self) -> None:
        self.producers: list[Worker] = []
        self.readers: list[Worker] = []

    @property
    def all(self) -> list[Worker]:
        return self.producers + self.readers

    def tally(self) -> Counter[str]:
        """Add up what all workers have counted so far."""
        total: Counter[str] = Counter()
        for worker in self.all:
            total.update(worker.reported.get("tally", {}))
        return total

    def check(self) -> None:
        """Raise WorkerFailed if a worker ended too early."""
        for worker in self.all:
            worker.check()

    def close(self) -> None:
        """Close all workers."""
        for worker in self.all:
            worker.close()
