"""The run's side of its worker processes: start them, hear them, end them.

Always true: after `close` no worker is left, whatever happened before.
"""

import json
import os
import subprocess
import sys
import threading
from collections import Counter
from contextlib import suppress
from typing import Any

from tidelog.apps.verify.workload.orders import Task

END_S = 130.0
"""A worker that was told to end and drains what is open."""


class WorkerFailed(Exception):
    """A worker died; the text is one line."""


class Worker:
    """One worker process."""

    def __init__(self, task: Task) -> None:
        self.task = task
        self.told: dict[str, Any] = {}
        """The newest of everything that it said."""
        self._errors = open(  # noqa: SIM115 - closed in close
            os.path.join(task.folder, f"worker-{task.role.replace(' ', '-')}.err"), "wb"
        )
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tidelog.apps.verify.workload.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
        )
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()
        self._say(task._asdict())

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.told.update(json.loads(line))

    def _say(self, told: dict[str, Any]) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(told) + "\n")
            self._process.stdin.flush()
        except OSError:
            raise WorkerFailed(self._last_words()) from None

    def check(self) -> None:
        """Raise WorkerFailed if it is gone without being told to."""
        if self._process.poll() is not None and not self.told.get("done"):
            raise WorkerFailed(self._last_words())

    def _last_words(self) -> str:
        code = self._process.wait(5)
        with open(self._errors.name, errors="replace") as file:
            lines = file.read().strip().splitlines()
        return f"{self.task.role} ended with {code}: {lines[-1] if lines else 'no word why'}"

    def tell_to_end(self, ends: list[int] | None = None) -> None:
        """Producers drain; readers go on up to `ends`."""
        self._say({"ends": ends or []})

    def await_end(self) -> None:
        """Until it is done. Raises WorkerFailed."""
        self._listener.join(END_S)
        if not self.told.get("done"):
            raise WorkerFailed(
                f"{self.task.role} did not end within {END_S:g} s"
                if self._listener.is_alive()
                else self._last_words()
            )

    def close(self) -> None:
        """End it if it still runs, and let go of its pipes."""
        if self._process.poll() is None and not self.told.get("done"):
            self._process.kill()
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with suppress(BrokenPipeError):
            self._process.stdin.close()
        self._process.wait()
        self._listener.join()
        self._process.stdout.close()
        self._errors.close()


class Crew:
    """All workers of a run."""

    def __init__(self) -> None:
        self.producers: list[Worker] = []
        self.readers: list[Worker] = []

    @property
    def workers(self) -> list[Worker]:
        return self.producers + self.readers

    def tally(self) -> Counter[str]:
        """What all of them have counted so far."""
        total: Counter[str] = Counter()
        for worker in self.workers:
            total.update(worker.told.get("tally", {}))
        return total

    def check(self) -> None:
        """Raise WorkerFailed if one is gone."""
        for worker in self.workers:
            worker.check()

    def close(self) -> None:
        """No worker is left."""
        for worker in self.workers:
            worker.close()
