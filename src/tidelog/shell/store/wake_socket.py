"""A socket by which others wake a thread: its own process, and other processes of the machine.

A datagram means "look"; it carries nothing, and a lost one costs only time, because whoever
waits here also looks by itself now and then.
"""

import select
import socket
from contextlib import suppress


class WakeSocket:
    """A datagram socket on the loopback interface, at a port of the system's choice."""

    __slots__ = ("_poll", "_socket", "port")

    def __init__(self) -> None:
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.setblocking(False)
        self._socket.bind(("127.0.0.1", 0))
        self.port: int = self._socket.getsockname()[1]
        self._poll = select.poll()
        self._poll.register(self._socket, select.POLLIN)

    def wait(self, timeout_s: float) -> None:
        """Sleep until somebody wakes us or the time is over."""
        if self._poll.poll(max(0.0, timeout_s * 1000)):
            with suppress(BlockingIOError):
                while True:
                    self._socket.recv(1)

    def wake(self, port: int) -> None:
        """Wake whoever waits at that port, if anybody does."""
        with suppress(OSError):
            self._socket.sendto(b"", ("127.0.0.1", port))

    def close(self) -> None:
        self._socket.close()
