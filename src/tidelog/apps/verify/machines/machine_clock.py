"""The wall clock of a machine: a file with an offset, which the brokers of the machine add.

The kernel has one wall clock for all namespaces, so the brokers' processes read it through this
module. A broker reads the wall clock only with Python's `time.time` and `time.time_ns`; both are
replaced before the broker's own modules are imported. The monotonic clocks and `time.sleep` stay as
they are, as on a machine whose clock is set. libfaketime can't do this: in version 0.9.10,
`time.sleep` fails if the monotonic clock is not faked too.

The offset is the same for all processes and valid at once. etcd is not affected: it measures its
leases with the monotonic clock.
"""

import mmap
import os
import time
from collections.abc import Callable
from struct import Struct
from typing import Any

ENTRY = f"{__name__}:run_brokers"
"""The function that a broker's process runs, for LocalCluster."""
FILE_VARIABLE = "TIDELOG_VERIFY_CLOCK"
_OFFSET = Struct("<q")
_NS_A_SECOND = 1_000_000_000


def set_clock(path: str, offset_s: int) -> None:
    """Set the offset of a machine's clock, for its running brokers too."""
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        os.pwrite(file, _OFFSET.pack(offset_s * _NS_A_SECOND), 0)
    finally:
        os.close(file)


def use_clock(path: str) -> None:
    """Let this process read the wall clock of a machine."""
    with open(path, "rb") as file:
        offset = mmap.mmap(file.fileno(), _OFFSET.size, prot=mmap.PROT_READ)
    right_ns, unpack = time.time_ns, _OFFSET.unpack_from

    def time_ns() -> int:
        ahead: int = unpack(offset)[0]
        return right_ns() + ahead

    time.time_ns = time_ns
    time.time = lambda: time_ns() / _NS_A_SECOND


def run_brokers(settings: list[Any], report: Callable[[dict[str, object]], None]) -> int:
    """Run brokers on the clock of their machine; return the exit code."""
    use_clock(os.environ[FILE_VARIABLE])
    from tidelog.shell.broker import process

    return process.run_brokers(settings, report)
