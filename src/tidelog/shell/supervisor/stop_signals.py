"""SIGINT, SIGTERM and SIGHUP, as something a loop can wait for.

Always true: between `install` and `restore` none of them ends the process; each is counted
and makes `fd` readable.
"""

import os
import signal
from types import FrameType
from typing import Any

NUMBERS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class StopSignals:
    """How often somebody asked this process to stop."""

    def __init__(self) -> None:
        self.received: list[int] = []
        self.fd, self._out = os.pipe()
        os.set_blocking(self.fd, False)
        os.set_blocking(self._out, False)
        self._before: dict[int, Any] = {}

    @property
    def fds(self) -> list[int]:
        """Both ends, for a fork to close."""
        return [self.fd, self._out]

    def install(self) -> None:
        """From now on they are counted."""
        signal.set_wakeup_fd(self._out, warn_on_full_buffer=False)
        for number in NUMBERS:
            if signal.getsignal(number) is not signal.SIG_IGN or number != signal.SIGHUP:
                self._before[number] = signal.signal(number, self._note)

    def wake_for_children(self) -> None:
        """Make `fd` readable too when a child of this process ends."""
        self._before[signal.SIGCHLD] = signal.signal(signal.SIGCHLD, lambda _number, _frame: None)

    def restore(self) -> None:
        """As it was before."""
        for number, handler in self._before.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(-1)
        for file in self.fds:
            os.close(file)

    def drain(self) -> None:
        """Make `fd` wait for the next one."""
        try:
            while os.read(self.fd, 256):
                pass
        except BlockingIOError:
            return

    def _note(self, number: int, _frame: FrameType | None) -> None:
        self.received.append(number)
