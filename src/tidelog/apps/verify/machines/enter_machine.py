"""Become a process of a machine: `python -m … PARENT BOOT_ID COMMAND…`, in its namespace.

`ip netns exec` has already given the process mounts of its own. Each machine needs a boot id of its
own, because a broker that sees the same boot id checks the lock of another broker's folder: over
the network it could not. So a file with the machine's boot id is mounted over that of the kernel.

The process is killed when its parent ends, whose pid is PARENT. The command replaces it and keeps
its pid.
"""

import ctypes
import os
import signal
import sys

BOOT_ID = "/proc/sys/kernel/random/boot_id"
_BIND = 4096
_DIE_WITH_PARENT = 1


def main() -> None:
    """Mount the boot id and run the command."""
    parent, boot_id, *command = sys.argv[1:]
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mount(boot_id.encode(), BOOT_ID.encode(), None, _BIND, None):
        sys.exit(f"can't mount a boot id: {os.strerror(ctypes.get_errno())}")
    libc.prctl(_DIE_WITH_PARENT, signal.SIGKILL)
    if os.getppid() != int(parent):
        sys.exit("the parent process has ended")
    os.execvp(command[0], command)


if __name__ == "__main__":
    main()
