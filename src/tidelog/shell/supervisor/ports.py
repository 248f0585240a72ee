"""Check that the brokers' ports are free, and reserve them over restarts.

`check_free` binds each port and releases it within the call. If a port is in use, the error names
the process that holds it.
"""

import errno
import os
import socket
import sys

from tidelog.shell.net.listener import CannotListen, bind
from tidelog.shell.supervisor.data_folder import Refusal

PORT_MAX = 65535
LISTENING = "0A"
LOCAL_ADDRESS, STATE, INODE = 1, 3, 9
"""Columns of /proc/net/tcp."""


def check_free(host: str, ports: list[int]) -> None:
    """Raise Refusal for the first port that can't be used; 0 means any free port."""
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
        return Refusal(f"port {port} is in use {who}; stop it, or use free ports with --port 0")
    if number == errno.EACCES:
        return Refusal(f"no permission to listen on port {port}; choose a --port above 1023")
    return Refusal(str(error))


def _cluster(pid: int) -> str:
    """If the process is a broker of a Tidelog cluster: which one, and what to do; else empty."""
    from tidelog.shell.supervisor import up_file
    from tidelog.shell.supervisor.live_brokers import places_of

    for data, broker in places_of(pid):
        where = up_file.option(data)
        return (
            f"broker {broker} of the cluster in {data}; see: tidelog status{where},"
            f" stop it: tidelog down{where}, or use free ports with --port 0"
        )
    return ""


def holder(port: int) -> int | None:
    """The pid that listens on this port, if /proc shows it."""
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
        return found  # another user's process, or it has just ended
    return found


def _program(pid: int) -> str:
    try:
        with open(f"/proc/{pid}/comm", encoding="utf-8", errors="replace") as file:
            return file.read().strip()
    except OSError:
        return "?"


_TRIES = 20


class HeldPorts:
    """Sockets that reserve the ports of a cluster while its brokers are down.

    The system may assign a free port to any process, also the port of a broker that is about to be
    restarted. A socket that is bound and does not listen prevents that. On Linux a broker can
    still listen on the port, because both set SO_REUSEADDR. On other systems it could not,
    so nothing is reserved. Connections are refused unless a broker listens.
    """

    def __init__(self) -> None:
        self._sockets: list[socket.socket] = []

    def hold(self, host: str, port: int) -> int:
        """Reserve this port, or a free one for 0; return the port, reserved or not."""
        if sys.platform != "linux":
            return port
        for _ in range(1 if port else _TRIES):
            held = _bound(host, port)
            if held:
                self._sockets += held
                return int(held[0].getsockname()[1])
        return port

    def close(self) -> None:
        for sock in self._sockets:
            sock.close()
        self._sockets = []


def _bound(host: str, port: int) -> list[socket.socket]:
    """Bind the same port on all addresses of the host; empty if one of them is in use."""
    found: list[socket.socket] = []
    for family, kind, protocol, _, address in socket.getaddrinfo(
        host, port, 0, socket.SOCK_STREAM, 0, socket.AI_PASSIVE
    ):
        wanted = found[0].getsockname()[1] if found else port
        sock = socket.socket(family, kind, protocol)
        try:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            sock.bind((address[0], wanted, *address[2:]))
            found.append(sock)
        except OSError as error:
            sock.close()
            if error.errno == errno.EADDRNOTAVAIL:
                continue
            for each in found:
                each.close()
            return []
    return found
