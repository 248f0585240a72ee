"""The messages between a worker process and the run that started it: JSON lines each way.

The first line that a worker reads is its task; a later line asks it to stop. A worker whose input
closes has lost its run and exits at once, so no worker outlives `verify`.
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
    """The task of one worker process."""

    role: str
    bootstrap: str
    topic: str
    partitions: int
    tag: str
    """The tag of the run, in hex."""
    folder: str
    """Where the journals are written."""
    began_ns: int
    """When the run began, on the clock that all processes of a machine share."""
    names: Sequence[int]
    """The numbers of the producers, or that of the reader."""
    rate: float = 0.0
    """Records a second, for all producers of the worker together."""
    acks: str = "all"
    idempotence: bool = True
    seed: int = 0

    def ticks(self) -> int:
        """The time since the run began."""
        return (time.monotonic_ns() - self.began_ns) // (1_000_000_000 // TICKS_A_SECOND)


class Orders:
    """The task and the later messages from the run."""

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


def say(**report: Any) -> None:
    """Send one line to the run."""
    sys.stdout.write(json.dumps(report) + "\n")
    sys.stdout.flush()
