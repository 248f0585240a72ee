"""Faster connections between processes of one machine.

Brokers connect over a Unix socket beside the internal listener: it takes a third of the CPU of
TCP over loopback, through which every byte would pass twice for each replica. Only an internal
listener on a loopback address has one, because other machines can't reach that address. The
socket is named after the port, in Linux's abstract namespace: like the port it belongs to the
network namespace, and it leaves no file when the process ends.

Clients connect over loopback, and TCP pacing is off for them.

Invariants: the processes at both ends belong to the same user, and a large response fits into
the socket; otherwise brokers use TCP. Neither way is trusted: the handshake proves the peer
(core/api/handshake.py).
"""

import os
import socket
import struct
import sys
from contextlib import suppress

BUFFER_BYTES = 4 * 1024 * 1024
BUFFER_BYTES_MIN = 1024 * 1024
"""With less, a response would be sent in many small pieces, and TCP would be faster."""
_CREDENTIALS = struct.Struct("3i")


def listen_beside(sock: socket.socket, backlog: int) -> socket.socket | None:
    """Listen on the Unix socket beside a listening TCP socket; None if that is impossible."""
    host, port = sock.getsockname()[:2]
    if not _is_loopback(host):
        return None
    beside = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        if widen(beside):
            beside.setblocking(False)
            beside.bind(_name(host, port))
            beside.listen(backlog)
            return beside
    except OSError:
        pass
    beside.close()
    return None


def connect_beside(host: str, port: int) -> socket.socket | None:
    """Connect to the Unix socket beside an address, if a process of this user listens there."""
    if not _is_loopback(host):
        return None
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    sock.setblocking(False)
    try:
        sock.connect(_name(host, port))
        if widen(sock) and is_own_process(sock):
            return sock
    except OSError:
        pass
    sock.close()
    return None


def widen(sock: socket.socket) -> bool:
    """Enlarge the send buffer for large responses; return whether the system allows it."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, BUFFER_BYTES)
    return sock.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) >= BUFFER_BYTES_MIN


def unpace(sock: socket.socket, peer_host: str) -> None:
    """Turn TCP pacing off if the peer is on this machine.

    BBR, the congestion control of many machines, sets a timer for every few packets, which in a
    virtual machine costs more than the packets. Loopback is never congested. Every Linux has Reno.
    """
    if _is_loopback(peer_host):
        with suppress(OSError):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, b"reno")


def _is_loopback(host: str) -> bool:
    return sys.platform == "linux" and (host.startswith("127.") or host == "::1")


def _name(host: str, port: int) -> bytes:
    return b"\0tidelog-internal-%s:%d" % (host.encode(), port)


def is_own_process(sock: socket.socket) -> bool:
    """Whether the process at the other end of a Unix socket belongs to this process's user."""
    found = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    return bool(_CREDENTIALS.unpack(found)[1] == os.geteuid())
