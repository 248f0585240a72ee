"""How a worker process talks with the run that started it: JSON lines each way.

The first line that a worker reads is what to do, a later one tells it to end. A worker
whose input closes has lost its run and leaves at once, so no worker outlives `verify`.
"""

import json
import os
import sys
import threading
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

from tidelog.apps.verify.history.rows import TICKS_A_SECOND

ORPHANED = 3
REPORT_EVERY_S = 0.2


class Task(NamedTuple):
    """What one worker process is to do."""

    role: str
    bootstrap: str
    topic: str
    partitions: int
    tag: str
    """Of the run, in hex."""
    folder: str
    """For the journals."""
    began_ns: int
    """When the run began, on the clock that all processes of a machine share."""
    names: Sequence[int]
    """The producers to be, or the number of the reader."""
    rate: float = 0.0
    """Records a second, all producers of the worker together."""
    acks: str = "all"
    idempotence: bool = True
    seed: int = 0

    def ticks(self) -> int:
        """Since the run began."""
        return (time.monotonic_ns() - self.began_ns) // (1_000_000_000 // TICKS_A_SECOND)


class Orders:
    """What the run said."""

    def __init__(self) -> None:
        self.task = Task(**json.loads(sys.stdin.readline()))
        self.ends: list[int] = []
        """Set before `stopping`: where a reader may stop, by partition."""
        self._stopping = threading.Event()
        threading.Thread(target=self._listen, daemon=True).start()

    @property
    def stopping(self) -> bool:
        return self._stopping.is_set()

    def _listen(self) -> None:
        for line in sys.stdin:
            self.ends = json.loads(line)["ends"]
            self._stopping.set()
        os._exit(ORPHANED)


def say(**told: Any) -> None:
    """One line to the run."""
    sys.stdout.write(json.dumps(told) + "\n")
    sys.stdout.flush()
