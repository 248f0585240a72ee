"""The process that carries out one cleaning and then ends.

Its stdin is a socket to the broker. It receives one frame with the order, and sends frames with
results, and empty ones as a sign of life. A frame is four bytes of length and its content.

Invariants: it writes only `.cleaned` files; it runs at low priority and in bounded memory; it ends
with its broker.
"""

import os
import pickle
import signal
import sys
import time
from typing import NamedTuple, NoReturn

from tidelog.core.storage.cleaning.cleaner import clean
from tidelog.core.storage.cleaning.plan import CleaningMessage, CleaningPlan
from tidelog.shell.os_disk import OsDisk

NICENESS = 10
LIFE_SIGN_S = 1.0
LOOK_BYTES = 131_072
"""After this many bytes the process checks the clock and its broker."""
SLEEP_MAX_S = 0.5
BESIDE_THE_MAP_BYTES = 1 << 30
"""Memory for the interpreter, and for a batch before and after decompression."""
_PR_SET_PDEATHSIG = 1
_SOCKET = 0


class Order(NamedTuple):
    """The broker's order."""

    broker_pid: int
    root: str
    plan: CleaningPlan
    bytes_per_second: float


def main() -> NoReturn:
    """Carry out one order; ends the process."""
    status = 1
    try:
        order: Order = pickle.loads(_receive())
        _end_with(order.broker_pid)
        os.nice(NICENESS)
        _bound_memory(order.plan.map_bytes)
        pace = _Pace(order)
        for message in clean(OsDisk(order.root), order.plan, pace.progress):
            send(message)
        status = 0
    except BrokenPipeError:
        pass  # the broker has ended
    except Exception as error:  # noqa: BLE001 - reported to the broker
        send(f"{type(error).__name__}: {error}")
    finally:
        os._exit(status)


class _Pace:
    """Limits the rate of a cleaning, and sends signs of life."""

    def __init__(self, order: Order) -> None:
        self._broker_pid = order.broker_pid
        self._rate = order.bytes_per_second
        self._began_s = self._life_sign_s = time.monotonic()
        self._bytes = 0
        self._unseen = 0

    def progress(self, count: int) -> None:
        self._bytes += count
        self._unseen += count
        if count and self._unseen < LOOK_BYTES:
            return
        self._unseen = 0
        while True:
            now_s = time.monotonic()
            if os.getppid() != self._broker_pid:
                os._exit(1)
            if now_s - self._life_sign_s >= LIFE_SIGN_S:
                self._life_sign_s = now_s
                _send_frame(b"")
            ahead_s = self._bytes / self._rate - (now_s - self._began_s)
            if ahead_s <= 0:
                return
            time.sleep(min(ahead_s, SLEEP_MAX_S))


def send(message: CleaningMessage) -> None:
    """Send a message to the broker that started this process."""
    _send_frame(pickle.dumps(message))


def _send_frame(data: bytes) -> None:
    frame = memoryview(len(data).to_bytes(4, "big") + data)
    while frame:
        frame = frame[os.write(_SOCKET, frame) :]


def _receive() -> bytes:
    return _read_exactly(int.from_bytes(_read_exactly(4), "big"))


def _read_exactly(count: int) -> bytes:
    data = b""
    while len(data) < count:
        more = os.read(_SOCKET, count - len(data))
        if not more:
            raise BrokenPipeError
        data += more
    return data


def _end_with(broker_pid: int) -> None:
    """Let the kernel end this process with its broker; on other systems `_Pace` checks."""
    if sys.platform == "linux":
        from ctypes import CDLL

        CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != broker_pid:
        raise BrokenPipeError


def _bound_memory(map_bytes: int) -> None:
    """Limit the memory, so that a log that needs more fails and the machine does not."""
    if sys.platform != "linux":
        return
    import resource

    limit = map_bytes + BESIDE_THE_MAP_BYTES
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    if hard == resource.RLIM_INFINITY or hard > limit:
        resource.setrlimit(resource.RLIMIT_DATA, (limit, hard))
