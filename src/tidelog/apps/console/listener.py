"""The console's listening socket. Imports nothing slow: `tidelog up --console` uses it too."""

import socket


def bind(host: str, port: int) -> socket.socket:
    """Return a listening socket; IPv4 is preferred, as browsers try both. Raises OSError."""
    found = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    found.sort(key=lambda each: each[0] != socket.AF_INET)
    family, kind, protocol, _, address = found[0]
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(128)
    except BaseException:
        listener.close()
        raise
    return listener
