"""Flushes files to the disk in a separate thread, so that they survive a power failure.

A flush takes from a fraction of a millisecond to many. Meanwhile the loop continues, and all
records that arrive share the next flush (group commit). The thread starts with the first flush.
"""

from collections import deque
from collections.abc import Callable

from tidelog.core.node import events as on
from tidelog.core.node.effects import Flush
from tidelog.core.storage.disk import DiskError
from tidelog.shell.net.event_loop import EventLoop
from tidelog.shell.os_disk import OsDisk


class Flusher:
    """A thread that carries out flushes in order."""

    def __init__(self, loop: EventLoop, disk: OsDisk, step: Callable[[on.Event], None]) -> None:
        self._loop = loop
        self._disk = disk
        self._step = step
        self._waiting: deque[Flush] = deque()
        self._wake: Callable[[], object] | None = None
        self._closed = False

    def flush(self, effect: Flush) -> None:
        self._waiting.append(effect)
        if self._wake is None:
            self._begin()
        assert self._wake is not None
        self._wake()

    def close(self) -> None:
        """Finish the current flush without reporting it, and end the thread."""
        self._closed = True
        if self._wake is not None:
            self._wake()

    def _begin(self) -> None:
        from threading import Semaphore, Thread

        semaphore = Semaphore(0)
        self._wake = semaphore.release

        def work() -> None:
            while True:
                semaphore.acquire()
                if self._closed:
                    return
                self._carry_out(self._waiting.popleft())

        Thread(target=work, name="flusher", daemon=True).start()

    def _carry_out(self, effect: Flush) -> None:
        problem: str | None = None
        try:
            self._disk.sync_many(effect.files, effect.directories)
        except DiskError as error:
            problem = str(error)
        except Exception as error:  # noqa: BLE001 - otherwise requests would wait for ever
            problem = f"{type(error).__name__}: {error}"

        def completed() -> None:
            if not self._closed:
                self._step(on.FlushCompleted(effect.flush, problem, self._loop.clock.now_ms()))

        self._loop.call_from_thread(completed)
