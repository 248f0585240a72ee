"""The spelling of IP addresses in ACLs and in the descriptions of groups.

Kafka compares the host of an ACL with `InetAddress.getHostAddress` as text. Java writes all eight
groups of an IPv6 address, and an IPv4 address that is mapped into IPv6 as IPv4.
"""

import socket
import struct

_GROUPS = struct.Struct(">8H")
_MAPPED = bytes(10) + b"\xff\xff"


def java_host_address(host: str) -> str:
    """Return an IP address as Java writes it; a text that is no IPv6 address stays as it is."""
    if ":" not in host:
        return host
    address, percent, scope = host.partition("%")
    try:
        packed = socket.inet_pton(socket.AF_INET6, address)
    except (OSError, ValueError):
        return host
    if packed.startswith(_MAPPED):
        return socket.inet_ntoa(packed[12:])
    return ":".join(f"{group:x}" for group in _GROUPS.unpack(packed)) + percent + _number(scope)


def _number(scope: str) -> str:
    """Return the number of a network interface, which Java writes, for its name."""
    try:
        return str(socket.if_nametoindex(scope))
    except OSError:
        return scope
