"""What people are told while the metadata store fails: the cause once, not at every retry.

A broker whose store fails tries again several times a second and fences itself when its session
runs out. One line says why. The same line is told again after a minute, and the first write that
succeeds ends it. A store that is only busy is not told here (write_lock_holder.py).
"""

import sqlite3
import time
from collections.abc import Callable

from tidelog.shell.store.cluster_file import StoreError, unusable

AGAIN_S = 60.0


class StoreTrouble:
    """Remembers what was told last."""

    __slots__ = ("_failing", "_path", "_tell", "_told")

    def __init__(self, path: str, tell: Callable[[str], None]) -> None:
        self._path = path
        self._tell = tell
        self._told: dict[str, float] = {}
        """What was told, and when: two causes may take turns."""
        self._failing = False

    def failed(self, error: BaseException | None) -> None:
        """A call failed. Anything but a failure of the file itself is passed over."""
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
