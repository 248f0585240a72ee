"""Log a failing metadata store: the cause once, not at every retry.

A broker whose store fails tries again several times a second and fences itself when its session
runs out. One line says why. The same line is logged again after a minute, until a write succeeds.
A store that is only busy is not logged here (write_lock_holder.py).
"""

import sqlite3
import time
from collections.abc import Callable

from tidelog.shell.store.cluster_file import StoreError, unusable

AGAIN_S = 60.0


class StoreTrouble:
    """Logs each cause once a minute."""

    __slots__ = ("_failing", "_path", "_tell", "_told")

    def __init__(self, path: str, tell: Callable[[str], None]) -> None:
        self._path = path
        self._tell = tell
        self._told: dict[str, float] = {}
        """When each line was last logged: two causes may alternate."""
        self._failing = False

    def failed(self, error: BaseException | None) -> None:
        """Log a failed call. Only failures of the file itself are logged."""
        if isinstance(error, OSError | sqlite3.Error):
            error = unusable(self._path, error)
        if not isinstance(error, StoreError):
            return
        text, now = str(error), time.monotonic()
        self._failing = True
        self._told = {cause: at for cause, at in self._told.items() if now - at < AGAIN_S}
        if text not in self._told:
            self._told[text] = now
            self._tell(f"{text}; retrying; this broker is fenced when its session ends")

    def over(self) -> None:
        """A write succeeded."""
        if self._failing:
            self._failing = False
            self._tell(f"metadata store {self._path}: works again")
