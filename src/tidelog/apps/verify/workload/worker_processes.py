"""Start, monitor and stop the worker processes of a run.

Invariant: after `close` no worker is left, whatever happened before.
"""

import json
import os
import signal
import subprocess
import sys
import threading
import time
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
        role = f"{task.role.replace(' ', '-')}-{task.names[0]}"
        self._errors = open(  # noqa: SIM115 - closed in close
            os.path.join(task.folder, f"worker-{role}.err"), "wb"
        )
        self._start()

    def _start(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", ENTRY],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
        )
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()
        self._send(self.task._asdict())

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

    def tally(self) -> Counter[str]:
        """Return what the worker has counted so far."""
        return Counter(self.reported.get("tally", {}))

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
        self._end()
        self._errors.close()

    def _end(self) -> None:
        """Wait for the exit of the process, and close its pipes."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with suppress(BrokenPipeError):
            self._process.stdin.close()
        self._process.wait()
        self._listener.join()
        self._process.stdout.close()


class MortalWorker(Worker):
    """A worker that may kill itself with SIGKILL: it is restarted with its next life."""

    def __init__(self, task: Task) -> None:
        self._before: Counter[str] = Counter()
        self._stuck: list[str] = []
        """The counts and the stuck operations of earlier lives."""
        super().__init__(task)

    def tally(self) -> Counter[str]:
        return self._before + super().tally()

    @property
    def stuck(self) -> list[str]:
        """The operations that took the clients too long."""
        return self._stuck + list(self.reported.get("stuck", []))

    def check(self) -> None:
        if self._process.poll() == -signal.SIGKILL:
            self._restart()
        super().check()

    def stop(self, ends: list[int] | None = None) -> None:
        try:
            super().stop(ends)
        except WorkerFailed:
            if self._process.poll() != -signal.SIGKILL:  # `await_end` starts the next life
                raise

    def await_end(self) -> None:
        """Wait until the worker is done. If it kills itself meanwhile, its next life is stopped at
        once."""
        until = time.monotonic() + END_S
        while True:
            self._listener.join(max(0.0, until - time.monotonic()))
            if self._listener.is_alive() or self._process.wait() != -signal.SIGKILL:
                break
            self._restart()
            self.stop()
        super().await_end()

    def _restart(self) -> None:
        self._end()
        self._before, self._stuck = self.tally(), self.stuck
        self._before["killed"] += 1
        self.reported.clear()
        self.task = self.task._replace(life=self.task.life + 1)
        self._start()


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
            total.update(worker.tally())
        return total

    def check(self) -> None:
        """Raise WorkerFailed if a worker ended too early."""
        for worker in self.all:
            worker.check()

    def close(self) -> None:
        """Close all workers."""
        for worker in self.all:
            worker.close()
