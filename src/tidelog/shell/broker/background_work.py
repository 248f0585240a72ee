"""Carry out slow effects outside the loop: flushes in a thread, cleanings in processes.

A flush takes from a fraction of a millisecond to many. Meanwhile the loop continues, and all
records that arrive share the next flush (group commit).

A process is started for each cleaning (compaction of one log) and ends with it, so a broker
without compacted topics has none. If the process dies or is silent for a minute, the cleaning has
failed; the node decides when to retry.
"""

import os
import select
import signal
import socket
import sys
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress

from tidelog.core.node import events as on
from tidelog.core.node.effects import CleanLog, Flush, StopCleaning
from tidelog.core.storage.cleaning.plan import CleanedGroup, CleaningMessage
from tidelog.core.storage.disk import DiskError
from tidelog.shell.net.event_loop import READABLE, WRITABLE, EventLoop, Timer
from tidelog.shell.os_disk import OsDisk

SILENT_MAX_MS = 60_000
REAP_MS = 50
_BOOT = "from tidelog.shell.broker.cleaner_process import main; main()"
_DISCONNECTED = select.POLLERR | select.POLLHUP


class Cleaner:
    """Starts and stops the processes of cleanings."""

    def __init__(
        self,
        loop: EventLoop,
        roots: Sequence[str],
        on_message: Callable[[int, CleaningMessage], None],
    ) -> None:
        """`roots`: the log directories, in the order of `log.dirs`."""
        self._loop = loop
        self._roots = roots
        self._on_message = on_message
        self._processes: dict[int, _CleanerProcess] = {}

    def clean(self, effect: CleanLog) -> None:
        number = effect.cleaning

        def forward(message: CleaningMessage) -> None:
            if number in self._processes:
                if not isinstance(message, CleanedGroup):
                    self._processes.pop(number).end()
                self._on_message(number, message)

        try:
            process = _CleanerProcess(self._loop, forward)
        except OSError as error:
            failed = f"can't start a cleaner process: {error}"
            self._loop.after(0, lambda: self._on_message(number, failed))
            return
        self._processes[number] = process
        process.order(self._roots[effect.place], effect)

    def stop(self, effect: StopCleaning) -> None:
        process = self._processes.pop(effect.cleaning, None)
        if process is not None:
            process.end()

    def close(self) -> None:
        while self._processes:
            self._processes.popitem()[1].end()


class _CleanerProcess:
    """A cleaner process and the socket to it."""

    def __init__(self, loop: EventLoop, on_message: Callable[[CleaningMessage], None]) -> None:
        self._loop = loop
        self._on_message = on_message
        self._unsent = memoryview(b"")
        self._received = bytearray()
        self._sock, theirs = socket.socketpair()
        try:
            self._pid = os.posix_spawn(
                sys.executable,
                [sys.executable, "-c", _BOOT],
                os.environ,
                # The child must hold no descriptor of the broker: others detect its end by them.
                file_actions=[
                    (os.POSIX_SPAWN_DUP2, theirs.fileno(), 0),
                    (os.POSIX_SPAWN_DUP2, theirs.fileno(), 1),
                ],
                setpgroup=0,  # Ctrl-C in the terminal must not reach it
            )
        except OSError:
            self._sock.close()
            raise
        finally:
            theirs.close()
        self._sock.setblocking(False)
        self._silence: Timer = loop.after(SILENT_MAX_MS, self._silent)
        self._ended = False
        loop.watch(self._sock, self)

    def order(self, root: str, effect: CleanLog) -> None:
        import pickle

        from tidelog.shell.broker.cleaner_process import Order

        order = Order(os.getpid(), root, effect.plan, effect.bytes_per_second)
        data = pickle.dumps(order)
        self._unsent = memoryview(len(data).to_bytes(4, "big") + data)
        self._send()

    def ready(self, events: int) -> None:
        if events & WRITABLE:
            self._send()
        if events & (READABLE | _DISCONNECTED) and not self._ended:
            self._receive()

    def _send(self) -> None:
        with suppress(BlockingIOError, OSError):  # reading detects that it has ended
            while self._unsent:
                self._unsent = self._unsent[self._sock.send(self._unsent) :]
        self._loop.rewatch(self._sock, READABLE | WRITABLE if self._unsent else READABLE)

    def _receive(self) -> None:
        try:
            data = self._sock.recv(65_536)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._on_message("the cleaner process ended unexpectedly")
            return
        self._silence.cancel()
        self._silence = self._loop.after(SILENT_MAX_MS, self._silent)
        self._received += data
        self._take_frames()

    def _take_frames(self) -> None:
        import pickle

        received = self._received
        while len(received) >= 4 and not self._ended:
            end = 4 + int.from_bytes(received[:4], "big")
            if len(received) < end:
                return
            frame = bytes(received[4:end])
            del received[:end]
            if frame:
                self._on_message(pickle.loads(frame))

    def _silent(self) -> None:
        self._on_message(f"the cleaner process was silent for {SILENT_MAX_MS // 1000} s")

    def end(self) -> None:
        """Kill the process. Groups that it has reported stay cleaned; the rest is discarded."""
        self._ended = True
        self._silence.cancel()
        self._loop.unwatch(self._sock)
        self._sock.close()
        with suppress(ProcessLookupError):
            os.kill(self._pid, signal.SIGKILL)
        self._reap()

    def _reap(self) -> None:
        # A process that waits for the disk ends late: check again later.
        with suppress(ChildProcessError):
            if os.waitpid(self._pid, os.WNOHANG)[0] == 0:
                self._loop.after(REAP_MS, self._reap)


class Flusher:
    """Flushes files to the disk, in order, in a thread that starts with the first flush."""

    def __init__(
        self,
        loop: EventLoop,
        disks: Sequence[OsDisk | None],
        step: Callable[[on.Event], None],
    ) -> None:
        """`disks`: those of the log directories, in the order of `log.dirs`."""
        self._loop = loop
        self._disks = disks
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
            disk = self._disks[effect.place]
            assert disk is not None, "no log is in a directory that could not be used"
            disk.sync_many(effect.files, effect.directories)
        except DiskError as error:
            problem = str(error)
        except Exception as error:  # noqa: BLE001 - otherwise requests would wait for ever
            problem = f"{type(error).__name__}: {error}"

        def completed() -> None:
            if not self._closed:
                self._step(on.FlushCompleted(effect.flush, problem, self._loop.clock.now_ms()))

        self._loop.call_from_thread(completed)
