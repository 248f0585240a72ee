"""Ports that the brokers want: free or not, and who has them.

Always true: looking leaves nothing behind; a port that is reported free was bound and given
back within this call.
"""

import errno
import os

from tidelog.shell.net.listener import CannotListen, bind
from tidelog.shell.supervisor.preflight.refusal import Refusal

PORT_MAX = 65535
LISTENING = "0A"
LOCAL_ADDRESS, STATE, INODE = 1, 3, 9
"""Columns of /proc/net/tcp."""


def check_free(host: str, ports: list[int]) -> None:
    """Raise Refusal for the first port that can't be had; 0 stands for any."""
    for port in ports:
        if port > PORT_MAX:
            raise Refusal(f"port {port} is above {PORT_MAX}; choose a smaller --port")
        if port:
            try:
                for sock in bind(host, port):
                    sock.close()
            except CannotListen as error:
                raise _refusal(port, error) from error


def _refusal(port: int, error: CannotListen) -> Refusal:
    number = getattr(error.__cause__, "errno", None)
    if number == errno.EADDRINUSE:
        pid = holder(port)
        who = f"by pid {pid} ({_program(pid)})" if pid else "by another program"
        if pid and (cluster := _cluster(pid)):
            return Refusal(f"port {port} is in use {who}, {cluster}")
        return Refusal(f"port {port} is in use {who}; stop it, or take free ones with --port 0")
    if number == errno.EACCES:
        return Refusal(f"no permission to listen on port {port}; choose a --port above 1023")
    return Refusal(f"can't listen on {error}")


def _cluster(pid: int) -> str:
    """Of which cluster of ours this process is a broker, and what to do; empty: of none."""
    from tidelog.shell.supervisor import up_file
    from tidelog.shell.supervisor.operating.live_brokers import places_of

    for data, broker in places_of(pid):
        where = up_file.option(data)
        return (
            f"broker {broker} of the cluster in {data}; see: tidelog status{where},"
            f" stop it: tidelog down{where}, or use free ports with --port 0"
        )
    return ""


def holder(port: int) -> int | None:
    """The pid that listens on this port, as far as /proc lets us see."""
    inodes = _listening_inodes(port)
    if not inodes:
        return None
    for name in os.listdir("/proc"):
        if name.isdecimal() and inodes & _socket_inodes(name):
            return int(name)
    return None


def _listening_inodes(port: int) -> set[str]:
    found = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        try:
            with open(table, encoding="ascii") as file:
                rows = [line.split() for line in file][1:]
        except OSError:
            continue
        found |= {
            row[INODE]
            for row in rows
            if row[STATE] == LISTENING and int(row[LOCAL_ADDRESS].rpartition(":")[2], 16) == port
        }
    return found


def _socket_inodes(pid: str) -> set[str]:
    found = set()
    try:
        for entry in os.listdir(f"/proc/{pid}/fd"):
            target = os.readlink(f"/proc/{pid}/fd/{entry}")
            if target.startswith("socket:["):
                found.add(target[len("socket:[") : -1])
    except OSError:
        return found  # it is not ours to look at, or it has just gone
    return found


def _program(pid: int) -> str:
    try:
        with open(f"/proc/{pid}/comm", encoding="utf-8", errors="replace") as file:
            return file.read().strip()
    except OSError:
        return "?"
