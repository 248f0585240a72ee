"""Child processes that a test controls; all are ended with the test."""

import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

WORKER = Path(__file__).with_name("store_worker.py")


class Worker:
    """A child process with a role."""

    def __init__(self, *words: object) -> None:
        self.process = subprocess.Popen(
            [sys.executable, str(WORKER), *map(str, words)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )

    @property
    def key(self) -> str:
        return f"ids/{self.process.pid}"

    def said(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().decode().strip()

    def call(self, name: str, *args: object) -> Any:
        """Let a `server` process carry out a call."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        pickle.dump((name, args), self.process.stdin)
        self.process.stdin.flush()
        answer = pickle.load(self.process.stdout)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def end(self) -> None:
        """End the process in whatever state it is."""
        self.kill()
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            pipe.close()


Start: TypeAlias = Callable[..., Worker]
